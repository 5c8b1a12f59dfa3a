"""Counts of impressions and clicks by query, document and rank, and of what was dropped, by reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kinrank.arrays import Float64, Int64
from kinrank.data.query_rows import offsets_of
from kinrank.errors import DataError


@dataclass
class Funnel:
    """Counts of the rows of a log at each stage.

    Examples
    --------
    >>> funnel = Funnel()
    >>> funnel.count("queries", {None: 8, "no text": 2})
    >>> funnel.kept("queries"), funnel.dropped
    (8, {('queries', 'no text'): 2})
    """

    read: dict[str, int] = field(default_factory=dict)
    """Rows read by stage: "queries", "events", "impressions"."""
    dropped: dict[tuple[str, str], int] = field(default_factory=dict)
    """Rows dropped by stage and reason."""
    columns: list[str] = field(default_factory=list)
    """Sentences about columns that the log lacks, or that were found by their names; they are said first."""
    notes: list[str] = field(default_factory=list)
    """Sentences about choices that were made for this log."""

    def count(self, stage: str, by_reason: dict[str | None, int]) -> None:
        """Add the rows of a stage; the reason None is for those that were kept."""
        self.read[stage] = self.read.get(stage, 0) + sum(by_reason.values())
        for reason, rows in by_reason.items():
            if reason is not None:
                self.drop(stage, reason, rows)

    def drop(self, stage: str, reason: str, rows: int) -> None:
        """Count rows of a stage as dropped."""
        if rows:
            self.dropped[stage, reason] = self.dropped.get((stage, reason), 0) + rows

    def kept(self, stage: str) -> int:
        """Return the number of rows of a stage that were used."""
        return self.read.get(stage, 0) - sum(rows for (of, _), rows in self.dropped.items() if of == stage)

    def add(self, other: Funnel) -> None:
        """Add the counts of another log, and what it says about columns."""
        for stage, rows in other.read.items():
            self.read[stage] = self.read.get(stage, 0) + rows
        for (stage, reason), rows in other.dropped.items():
            self.drop(stage, reason, rows)
        self.columns += [each for each in other.columns if each not in self.columns]


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
    dates: pa.Array | None = None
    """The day on which each query was first asked (ISO 8601), by its code; None if the log has no times."""

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


_KEYS = ["code", "document"]


def collect_cells(
    batches: Iterable[pa.RecordBatch],
    texts: pa.Array,
    funnel: Funnel,
    few: NDArray[np.bool_] | None = None,
    dates: pa.Array | None = None,
) -> ClickCounts:
    """Build counts from a stream of cells.

    Batches have the columns code (of the query), document, rank, reason, impressions and clicks, both also for even
    and odd days, and optionally reward and examined. Rows without a code come first: the impressions that were
    dropped for a reason. The others are sorted by code, document and rank.
    """
    dropped: dict[str | None, int] = {}
    columns: dict[str, list[NDArray[Any]]] = {}
    pairs: list[pa.RecordBatch] = []
    starts: list[Int64] = []
    last: pa.RecordBatch | None = None
    n_cells = 0
    for batch in batches:
        unused = batch.slice(0, batch["code"].null_count)
        for reason, rows in zip(unused["reason"].to_pylist(), unused["impressions"].to_pylist(), strict=True):
            dropped[reason] = dropped.get(reason, 0) + rows
        batch = batch.slice(len(unused))
        if not len(batch):
            continue
        keys = batch.select(_KEYS)
        new = _first_cells(keys, last)
        pairs.append(keys.take(pa.array(new)))
        starts.append(new + n_cells)
        for name in set(batch.schema.names) - {*_KEYS, "reason"}:
            columns.setdefault(name, []).append(batch[name].to_numpy().copy())  # a view would keep the whole batch
        n_cells += len(batch)
        last = keys.slice(len(keys) - 1)
    numbers: dict[str, NDArray[Any]] = {name: np.concatenate(columns.pop(name)) for name in list(columns)}
    funnel.count("impressions", {None: int(numbers["impressions"].sum()) if pairs else 0, **dropped})
    if not pairs:
        reasons = ", ".join(f"{rows:,} {stage}: {why}" for (stage, why), rows in funnel.dropped.items())
        raise DataError(f"no impression is left of this log ({reasons or 'it is empty'}): check the options")
    named = pa.Table.from_batches(pairs).combine_chunks()
    return ClickCounts(
        query=pa.DictionaryArray.from_arrays(named["code"].combine_chunks(), texts),
        document=named["document"].combine_chunks(),
        offsets=np.concatenate([*starts, [n_cells]]),
        rank=numbers["rank"],
        impressions=numbers["impressions"],
        clicks=numbers["clicks"],
        reward=numbers.get("reward", numbers["clicks"]),
        examined=numbers.get("examined", numbers["impressions"]),
        days={day: (numbers[f"{day}_impressions"], numbers[f"{day}_clicks"]) for day in DAYS},
        funnel=funnel,
        few=None if few is None else few[named["code"].to_numpy()],
        dates=dates,
    )


def _first_cells(keys: pa.RecordBatch, last: pa.RecordBatch | None) -> Int64:
    """Return the rows that start another pair than the row before; `last` is the pair of the batch before."""
    changed = [
        pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(zero_copy_only=False)
        for column in keys.columns
    ]
    continued = last is not None and keys.slice(0, 1).equals(last)
    return np.flatnonzero(np.r_[not continued, changed[0] | changed[1]])
