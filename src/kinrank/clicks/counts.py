"""Counts of impressions and clicks by query, document and rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kinrank.arrays import Float64, Int64
from kinrank.clicks.funnel import Funnel
from kinrank.data.grouping import offsets_of

DAYS = ("even", "odd")
Numbers = NDArray[np.int32] | Float64
"""Counts of cells, which are many: 32 bits if they are whole."""


@dataclass(frozen=True, eq=False)
class ClickCounts:
    """Counts of a click log. A *pair* is a document of a query; a *cell* is a pair at one rank."""

    query: pa.Array
    document: pa.Array
    """The pairs, sorted by query; shape (pairs,)."""
    offsets: Int64
    """Pair ``i`` owns cells ``offsets[i]:offsets[i + 1]``; shape (pairs + 1,)."""
    rank: NDArray[np.int32]
    """Ranks, from 1; shape (cells,)."""
    impressions: Numbers
    clicks: Numbers
    reward: Numbers
    examined: Numbers
    """How often the document was shown at the rank, how often it was clicked, the sum of the values of the actions on
    it (1 for each click if clicks are the only action), and how often the rank was examined if users stop at their last
    click; shape (cells,).
    """
    days: dict[str, tuple[Numbers, Numbers]]
    """Impressions and clicks on "even" and on "odd" days before the last fifth of the time; empty if these are the
    counts of such a part.
    """
    funnel: Funnel
    """What was read and dropped."""
    few: NDArray[np.bool_] | None = None
    """Pairs of queries that too few clients asked to write down their texts; None if the log names no clients."""

    @property
    def n_pairs(self) -> int:
        """The number of documents of all queries."""
        return len(self.offsets) - 1

    @cached_property
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

    def by_pair(self, cells: NDArray[Any]) -> Float64:
        """Sum the values of cells over each pair."""
        return np.add.reduceat(cells, self.offsets[:-1], dtype=np.float64)

    def by_rank(self, cells: NDArray[Any]) -> Float64:
        """Sum the values of cells over each rank."""
        total: Float64 = np.bincount(self.rank - 1, weights=cells, minlength=self.n_ranks).astype(np.float64)
        return total

    def part(self, name: str) -> ClickCounts:
        """Return the counts of one part of the log, with the same cells.

        Parameters
        ----------
        name
            "late" is the last fifth of the time and "early" is before; "even" and "odd" are the early days.
        """
        if name in DAYS:
            impressions, clicks = self.days[name]
        else:
            impressions, clicks = (even + odd for even, odd in zip(*self.days.values(), strict=True))
        if name == "late":
            impressions, clicks = self.impressions - impressions, self.clicks - clicks
        days = self.days if name == "early" else {}
        return replace(self, impressions=impressions, clicks=clicks, reward=clicks, days=days)
