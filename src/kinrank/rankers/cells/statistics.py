"""Judged queries remembered as cells: the summed statistics of queries that are alike.

A local model is learned from the nearest cells, so it costs the same whether a cell stands for ten judged queries or
for ten thousand.
"""

from __future__ import annotations

from typing import Any, Self

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.errors import DataError
from kinrank.learn.base import pair_weights
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.statistics import PairStatistics, packed_size
from kinrank.neighbors import NeighborIndex
from kinrank.rankers.local.neighborhoods import Neighborhoods
from kinrank.rankers.local.training_sets import StatisticsTrainingSet


class CellStatistics(StatisticsTrainingSet):
    """The summed statistics of cells, in float64, so that what was added can be taken away again.

    Parameters
    ----------
    learner
        RankRLS; whether it balances pairs or queries is settled when a query is added.
    statistics
        Of each cell.
    counts
        How many judged queries each cell holds.
    names
        A judged query of each cell, the nearest to its center, as text: what an explanation calls the cell.
    nearness
        How far that query is from the center.
    """

    def __init__(
        self,
        learner: RankRLS,
        statistics: PairStatistics,
        counts: Float64,
        names: NDArray[np.str_],
        nearness: Float64,
    ) -> None:
        super().__init__(learner, statistics)
        self._counts = counts
        self.names = names
        self.nearness = nearness

    @classmethod
    def empty(cls, learner: RankRLS, n_cells: int, n_features: int) -> Self:
        """Cells without a query."""
        gram = np.zeros((n_cells, packed_size(n_features)))
        statistics = PairStatistics(gram, np.zeros((n_cells, n_features)), np.zeros(n_cells))
        names = np.array([f"cell {cell}" for cell in range(n_cells)])
        return cls(learner, statistics, np.zeros(n_cells), names, np.full(n_cells, np.inf))

    @property
    def counts(self) -> Float64:
        """How many judged queries each cell holds."""
        return self._counts

    def pair_weights(self, index: Int64, weights: Float64 | None) -> Float64:
        """What is balanced was balanced when it was added."""
        return np.ones(len(index)) if weights is None else weights

    def prefix_sums(self, index: Int64, counts: Int64) -> PairStatistics:
        """The sums over the nearest ``counts[i]`` queries: whole cells, and a part of the last."""
        shares = covering_shares(self.counts[index], counts)
        members, starts = np.tile(index, len(shares)), np.arange(len(shares) + 1) * len(index)
        return self.statistics.sums(members, starts, shares.ravel())

    def add(self, cells: Int64, distances: Float64, qid: NDArray[Any], each: PairStatistics) -> None:
        """Take in queries, given their cells, how far they are from the centers, and their statistics."""
        self._change(cells, each, 1.0)
        order = np.lexsort((distances, cells))
        first = order[np.append(True, np.diff(cells[order]) != 0)] if len(order) else order
        self._name(cells[first], qid[first].astype(np.str_), distances[first])

    def remove(self, cells: Int64, qid: NDArray[Any], each: PairStatistics) -> None:
        """Take queries out again; where one of them named its cell, the cell goes by its number."""
        lacking = np.flatnonzero(self.counts < np.bincount(cells, minlength=len(self.counts)))
        if len(lacking):
            query = qid[cells == lacking[0]][0].item()
            raise DataError(f"query {query!r} cannot be forgotten: its cell holds fewer queries; was it ever added?")
        self._change(cells, each, -1.0)
        own_name = np.isin(self.names, qid.astype(np.str_))
        self.names = np.where(own_name, [f"cell {cell}" for cell in range(len(self.names))], self.names)
        self.nearness = np.where(own_name, np.inf, self.nearness)

    def merge(self, other: CellStatistics) -> None:
        """Take in the cells of another memory, cell by cell."""
        self.merge_packed(other.pack())

    def _sums(self) -> tuple[NDArray[Any], ...]:
        return self.statistics.gram, self.statistics.moment, self.statistics.pairs, self._counts

    def _change(self, cells: Int64, each: PairStatistics, sign: float) -> None:
        weights = sign * pair_weights(each.pairs, self.learner.balance, None)
        gram, moment, pairs, counts = self._sums()
        _add_to_cells(cells, weights, each.gram, each.moment, each.pairs, gram, moment, pairs)
        np.add.at(counts, cells, sign)
        emptied = counts[cells] == 0  # rounding must not outlive the last query of a cell
        for sums in (gram, moment, pairs):
            sums[cells[emptied]] = 0.0

    def _name(self, cells: Int64, names: NDArray[np.str_], nearness: Float64) -> None:
        """Let cells go by these queries where they are nearer to the center."""
        nearer = nearness < self.nearness[cells]
        self.names = self.names.astype(np.result_type(self.names, names), copy=False)
        self.names[cells[nearer]], self.nearness[cells[nearer]] = names[nearer], nearness[nearer]

    def get_state(self) -> State:
        """Sums, counts and names."""
        own = {"counts": self.counts, "names": self.names, "nearness": self.nearness}
        return super().get_state() | own

    @classmethod
    def from_state(cls, learner: RankRLS, state: State) -> Self:
        """What `get_state` gave."""
        statistics = PairStatistics.from_state(state)
        return cls(learner, statistics, state["counts"], state["names"], state["nearness"])

    def pack(self) -> State:
        """The cells that hold a query, and which they are: what a part of the data has to say."""
        held = np.flatnonzero(self.counts)
        return {name: array[held] for name, array in self.get_state().items()} | {"cells": held}

    def merge_packed(self, state: State) -> None:
        """Take in what `pack` gave."""
        cells = state["cells"]
        mine = dict(zip(("gram", "moment", "pairs", "counts"), self._sums(), strict=True))
        for name, sums in mine.items():
            sums[cells] += state[name]
        self._name(cells, state["names"], state["nearness"])

    def copy(self) -> Self:
        """Cells that can be changed without changing these, nor the folder they may lie in."""
        return self.from_state(self.learner, {name: np.array(array) for name, array in self.get_state().items()})


def covering_shares(counts: Float64, wanted: Int64) -> Float64:
    """What part of each cell, nearest first, is needed for so many queries: 1 or 0, and a share of the last.

    Parameters
    ----------
    counts
        Queries of each cell, one row of cells or several.
    wanted
        How many queries; one row of the answer for each.

    Examples
    --------
    >>> covering_shares(np.array([10.0, 0.0, 4.0, 6.0]), np.array([5, 12])).tolist()
    [[0.5, 0.0, 0.0, 0.0], [1.0, 0.0, 0.5, 0.0]]
    """
    before = np.cumsum(counts, axis=-1) - counts
    needed = np.clip(np.asarray(wanted)[..., None] - before, 0.0, counts)
    shares: Float64 = np.divide(needed, counts, out=np.zeros_like(needed), where=counts > 0)
    return shares


def nearest_cells(index: NeighborIndex, counts: Float64, points: Float32, n_neighbors: int) -> Neighborhoods:
    """The cells nearest to each point that together hold `n_neighbors` queries; the last counts in part."""
    n_cells = len(counts)
    wanted = min(n_neighbors, int(counts.sum()))
    asked = min(n_cells, 4 + int(2 * wanted * n_cells / max(counts.sum(), 1)))
    while True:
        distances, cells = index.query(points, asked)
        held = counts[cells]
        if asked == n_cells or held.sum(axis=1).min() >= wanted:
            break
        asked = min(n_cells, 2 * asked)
    shares = covering_shares(held, np.full(len(points), wanted))
    used = shares > 0
    starts = np.append(0, np.cumsum(used.sum(axis=1)))
    return Neighborhoods(cells[used], starts, distances[used], shares[used])


@numba.njit(cache=True, nogil=True)
def _add_to_cells(cells, weights, gram, moment, pairs, grams, moments, all_pairs):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Query after query, so that a sum does not depend on how the queries were cut into parts."""
    for q in range(len(cells)):
        cell, weight = cells[q], weights[q]
        for a in range(gram.shape[1]):
            grams[cell, a] += weight * gram[q, a]
        for a in range(moment.shape[1]):
            moments[cell, a] += weight * moment[q, a]
        all_pairs[cell] += weight * pairs[q]
