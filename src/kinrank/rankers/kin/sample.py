"""The judged queries that trees learn from: all of them, or a sample that keeps groups whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinrank.arrays import Int64, State
from kinrank.data.blocks import Sample
from kinrank.data.hashes import hash_ids
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import VECTORS
from kinrank.errors import DataError
from kinrank.rankers.cells.training import CellPlan


class JudgedBlocks(ABC):
    """Judged queries in blocks, none of which is empty."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    @abstractmethod
    def __call__(self, block: int) -> QuerySet:
        """Return a block."""

    def split(self, values: Int64) -> list[Int64]:
        """Split one value per query by block."""
        return np.split(values, np.cumsum(self.sizes)[:-1])

    def take(self, places: Int64) -> QuerySet:
        """Return the queries at some ascending places."""
        starts = np.cumsum([0, *self.sizes])
        bounds = np.searchsorted(places, starts)
        parts = [
            self(block)[places[bounds[block] : bounds[block + 1]] - starts[block]]
            for block in range(len(self))
            if bounds[block + 1] > bounds[block]
        ]
        return parts[0] if len(parts) == 1 else QuerySet.concat(parts)


class QueriesInMemory(JudgedBlocks):
    """Blocks in memory.

    Examples
    --------
    >>> queries = QuerySet.from_arrays(np.zeros((5, 1)), [0, 1, 0, 1, 2], group=[1] * 5)
    >>> kept = QueriesInMemory(queries[:3], queries[3:])
    >>> [block.tolist() for block in kept.split(np.arange(5))]
    [[0, 1, 2], [3, 4]]
    >>> kept.take(np.array([1, 4])).qid.tolist()
    [1, 4]
    """

    def __init__(self, *parts: QuerySet) -> None:
        super().__init__([len(part) for part in parts])
        self.parts = parts

    def __call__(self, block: int) -> QuerySet:
        """Return a block."""
        return self.parts[block]


@dataclass(frozen=True)
class TreeSample:
    """Chooses about a share of the queries: evenly spaced, or whole groups.

    A group is in the sample entirely or not at all, so that a query's local model can be learned without its group.
    """

    share: float
    """The share of the queries; 1.0 for all."""
    group_column: str | None
    """The query column with the group."""

    def of(self, queries: QuerySet) -> QuerySet:
        """Return the sampled queries, without columns that trees and local models do not need.

        Examples
        --------
        >>> columns = {"movie": ["a", "b", "c", "a"], "text": ["w", "x", "y", "z"]}
        >>> queries = QuerySet.from_arrays(np.zeros((4, 1)), [0, 1, 0, 1], group=[1] * 4, query_columns=columns)
        >>> TreeSample(0.5, None).of(queries).qid.tolist()
        [0, 3]
        >>> TreeSample(0.3, "movie").of(queries).query_columns["movie"].tolist()
        ['a', 'c', 'a']
        """
        return _without_other_columns(self._choose(queries), self.group_column)

    def _choose(self, queries: QuerySet) -> QuerySet:
        if self.group_column is None or self.share == 1.0:
            return Sample((), self.share).of(queries)
        hashes = hash_ids(queries.query_columns[self.group_column])
        return queries[hashes < np.uint64(self.share * 2.0**64)]


def _without_other_columns(queries: QuerySet, group_column: str | None) -> QuerySet:
    columns = {name: values for name, values in queries.query_columns.items() if name in (VECTORS, group_column)}
    return queries.replace(query_columns=columns, doc_id=None)


def only_judgments(kept: JudgedBlocks, group_column: str | None) -> QuerySet:
    """Return all queries with their grades, weights and groups, but without features."""
    if not len(kept):
        raise DataError("no query is in the sample that trees learn from: set tree_queries higher")
    parts = []
    for block in range(len(kept)):
        queries = kept(block)
        columns = {} if group_column is None else {group_column: queries.query_columns[group_column]}
        nothing = np.zeros((queries.n_rows, 1), dtype=np.float32)
        parts.append(queries.replace(X=nothing, feature_names=(), query_columns=columns))
    return QuerySet.concat(parts)


def sums_of_folds(plan: CellPlan, kept: JudgedBlocks, folds: list[Int64]) -> list[list[State]]:
    """Return the packed cells of each fold, for each repeat of the cross-fitting."""
    sums = [[plan.no_sums() for _ in range(int(fold.max()) + 1)] for fold in folds]
    split = [kept.split(fold) for fold in folds]
    for block in range(len(kept)):
        queries = kept(block)
        for of_repeat, by_block in zip(sums, split, strict=True):
            for held_out, cells in enumerate(of_repeat):
                plan.add_to(cells, queries[by_block[block] == held_out])
    return [[cells.pack() for cells in of_repeat] for of_repeat in sums]


def spread_over(count: int, wanted: int) -> Int64:
    """Return evenly spaced positions.

    Examples
    --------
    >>> spread_over(10, 4).tolist()
    [0, 3, 6, 9]
    """
    return np.linspace(0, count - 1, min(count, wanted)).astype(np.int64)


def weights_differ(queries: QuerySet) -> bool:
    """Return whether the weights of relevant documents differ within most queries, as those from clicks do.

    Such weights tell how often a document was shown, and so does its standing by the engine's score. Documents that
    nobody has seen have grade 0, so the weight that they are given does not matter here.

    Examples
    --------
    >>> shown = QuerySet.from_arrays(np.zeros((3, 1)), [1, 2, 0], group=[3], sample_weight=[0.9, 0.1, 0.1])
    >>> human = QuerySet.from_arrays(np.zeros((3, 1)), [1, 2, 0], group=[3], sample_weight=[1.0, 1.0, 0.1])
    >>> weights_differ(shown), weights_differ(human)
    (True, False)
    """
    if queries.sample_weight is None:
        return False
    relevant = (queries.grades > 0) & (queries.sample_weight > 0)
    weight, owner = queries.sample_weight[relevant], queries.query_of_row[relevant]
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    if not len(starts):
        return False
    several = np.diff(starts, append=len(owner)) > 1
    differs = np.maximum.reduceat(weight, starts) > np.minimum.reduceat(weight, starts)
    return bool(2 * np.count_nonzero(differs) > np.count_nonzero(several))
