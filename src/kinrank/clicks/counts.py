"""Counts of impressions and clicks by query, document and rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kinrank.arrays import Float64, Int64
from kinrank.clicks.funnel import Funnel
from kinrank.data.grouping import offsets_of
from kinrank.errors import DataError

SPANS = ("even", "late")
COUNTED = (
    "impressions",
    "clicks",
    "reward",
    "examined",
    *(f"{span}_{what}" for span in SPANS for what in ("impressions", "clicks")),
)


@dataclass(frozen=True, eq=False)
class ClickCounts:
    """Counts of a click log. A *pair* is a document of a query; a *cell* is a pair at one rank.

    Attributes
    ----------
    query, document : string arrays of shape (pairs,)
        The pairs, sorted by query.
    offsets : int64 array of shape (pairs + 1,)
        Pair ``i`` owns cells ``offsets[i]:offsets[i + 1]``.
    rank : int64 array of shape (cells,)
        Ranks, from 1.
    impressions, clicks, reward, examined : float64 arrays of shape (cells,)
        How often the document was shown at the rank, how often it was clicked, the sum of the values of the actions on
        it (1 for each click if clicks are the only action), and how often the rank was examined if users stop at their
        last click.
    spans : dict of str to pair of arrays
        Impressions and clicks of two parts of the log: "even" days, and the "late" fifth of the time.
    funnel : Funnel
        What was read and dropped.
    """

    query: pa.Array
    document: pa.Array
    offsets: Int64
    rank: Int64
    impressions: Float64
    clicks: Float64
    reward: Float64
    examined: Float64
    spans: dict[str, tuple[Float64, Float64]]
    funnel: Funnel

    @classmethod
    def from_table(cls, cells: pa.Table, funnel: Funnel) -> ClickCounts:
        """Build from a table of cells, sorted by query, document and rank."""
        if not len(cells):
            reasons = ", ".join(f"{rows:,} {stage}: {why}" for (stage, why), rows in funnel.dropped.items())
            raise DataError(f"no impression is left of this log ({reasons or 'it is empty'}): check the options")
        cells = cells.combine_chunks()
        query, document = (cells[name].combine_chunks().dictionary_encode() for name in ("query", "document"))
        codes = [column.indices.to_numpy() for column in (query, document)]
        new = np.r_[True, (np.diff(codes[0]) != 0) | (np.diff(codes[1]) != 0)]
        first = np.flatnonzero(new)

        def numbers(name: str) -> Float64:
            values: Float64 = cells[name].to_numpy().astype(np.float64)
            return values

        return cls(
            query=query.take(pa.array(first)),
            document=document.take(pa.array(first)),
            offsets=np.r_[first, len(new)].astype(np.int64),
            rank=cells["rank"].to_numpy().astype(np.int64),
            impressions=numbers("impressions"),
            clicks=numbers("clicks"),
            reward=numbers("reward"),
            examined=numbers("examined"),
            spans={span: (numbers(f"{span}_impressions"), numbers(f"{span}_clicks")) for span in SPANS},
            funnel=funnel,
        )

    @property
    def n_pairs(self) -> int:
        """The number of documents of all queries."""
        return len(self.offsets) - 1

    @property
    def n_ranks(self) -> int:
        """The lowest rank in the log."""
        return int(self.rank.max())

    @cached_property
    def pair_of_cell(self) -> Int64:
        """The pair of each cell."""
        return np.repeat(np.arange(self.n_pairs), np.diff(self.offsets))

    @cached_property
    def query_codes(self) -> Int64:
        """The number of each pair's query, counted from 0 in the order of the pairs."""
        codes: NDArray[np.int64] = self.query.indices.to_numpy()
        return np.cumsum(np.r_[False, np.diff(codes) != 0]).astype(np.int64)

    @cached_property
    def query_offsets(self) -> Int64:
        """Query ``i`` owns pairs ``query_offsets[i]:query_offsets[i + 1]``."""
        return offsets_of(np.bincount(self.query_codes))

    def by_pair(self, cells: Float64) -> Float64:
        """Sum the values of cells over each pair."""
        return np.add.reduceat(cells, self.offsets[:-1])

    def by_rank(self, cells: Float64) -> Float64:
        """Sum the values of cells over each rank."""
        total: Float64 = np.bincount(self.rank - 1, weights=cells, minlength=self.n_ranks).astype(np.float64)
        return total

    def span(self, name: str, *, rest: bool = False) -> ClickCounts:
        """Return the counts of one part of the log, or of the rest of it, with the same cells."""
        impressions, clicks = self.spans[name]
        if rest:
            impressions, clicks = self.impressions - impressions, self.clicks - clicks
        return replace(self, impressions=impressions, clicks=clicks, reward=clicks)
