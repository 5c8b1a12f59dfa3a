"""Cells: the summed statistics of similar judged queries.

A local model is learned from the nearest cells, so it costs the same whether a cell holds ten judged queries or ten
thousand.
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
    """The summed statistics of cells, in float64 so that queries can be subtracted again.

    Parameters
    ----------
    learner
        The learner. Its balance of pairs or queries is applied when a query is added.
    statistics
        The sums of each cell.
    counts
        The number of judged queries in each cell.
    names
        The id of the judged query nearest to each cell's center, as text. It names the cell in explanations.
    distances
        The distance of that query from the center.
    """

    def __init__(
        self,
        learner: RankRLS,
        statistics: PairStatistics,
        counts: Float64,
        names: NDArray[np.str_],
        distances: Float64,
    ) -> None:
        super().__init__(learner, statistics)
        self._counts = counts
        self.names = names
        self.distances = distances

    @classmethod
    def empty(cls, learner: RankRLS, n_cells: int, n_features: int) -> Self:
        """Return cells without queries."""
        gram = np.zeros((n_cells, packed_size(n_features)))
        statistics = PairStatistics(gram, np.zeros((n_cells, n_features)), np.zeros(n_cells))
        names = np.array([f"cell {cell}" for cell in range(n_cells)])
        return cls(learner, statistics, np.zeros(n_cells), names, np.full(n_cells, np.inf))

    @property
    def counts(self) -> Float64:
        """The number of judged queries in each cell."""
        return self._counts

    def nearest(self, index: NeighborIndex, points: Float32, k: int) -> Neighborhoods:
        """Return the cells nearest to each point that together hold `k` queries; the last counts in part."""
        return nearest_cells(index, self.counts, points, k)

    def pair_weights(self, index: Int64, weights: Float64 | None) -> Float64:
        """Return the weights of the cells; balance was applied when the queries were added."""
        return np.ones(len(index)) if weights is None else weights

    def prefix_sums(self, index: Int64, counts: Int64) -> PairStatistics:
        """Return the sums over the first ``counts[i]`` queries: whole cells, and a part of the last one."""
        shares = covering_shares(self.counts[index], counts)
        members, starts = np.tile(index, len(shares)), np.arange(len(shares) + 1) * len(index)
        return self.statistics.sums(members, starts, shares.ravel())

    def add(self, cells: Int64, distances: Float64, qid: NDArray[Any], statistics: PairStatistics) -> None:
        """Add queries, given their cells, their distances from the centers, and their statistics."""
        self._change(cells, statistics, 1.0)
        order = np.lexsort((distances, cells))
        first = order[np.append(True, np.diff(cells[order]) != 0)] if len(order) else order
        self._name(cells[first], qid[first].astype(np.str_), distances[first])

    def remove(self, cells: Int64, qid: NDArray[Any], statistics: PairStatistics) -> None:
        """Remove queries. A cell that was named by one of them is named by its number."""
        lacking = np.flatnonzero(self.counts < np.bincount(cells, minlength=len(self.counts)))
        if len(lacking):
            query = qid[cells == lacking[0]][0].item()
            raise DataError(
                f"cannot forget query {query!r}: its cell holds fewer queries; give only queries that were added"
            )
        self._change(cells, statistics, -1.0)
        own_name = np.isin(self.names, qid.astype(np.str_))
        self.names = np.where(own_name, [f"cell {cell}" for cell in range(len(self.names))], self.names)
        self.distances = np.where(own_name, np.inf, self.distances)

    def merge(self, other: CellStatistics) -> None:
        """Add other cells, cell by cell."""
        self.merge_packed(other.pack())

    def _sums(self) -> tuple[NDArray[Any], ...]:
        return self.statistics.gram, self.statistics.moment, self.statistics.pairs, self._counts

    def _change(self, cells: Int64, statistics: PairStatistics, sign: float) -> None:
        weights = sign * pair_weights(statistics.pairs, self.learner.balance, None)
        gram, moment, pairs, counts = self._sums()
        _add_to_cells(cells, weights, statistics.gram, statistics.moment, statistics.pairs, gram, moment, pairs)
        np.add.at(counts, cells, sign)
        emptied = counts[cells] == 0  # leave no rounding errors in a cell without queries
        for sums in (gram, moment, pairs):
            sums[cells[emptied]] = 0.0

    def _name(self, cells: Int64, names: NDArray[np.str_], distances: Float64) -> None:
        """Name cells by these queries if they are nearer to the center."""
        nearer = distances < self.distances[cells]
        self.names = self.names.astype(np.result_type(self.names, names), copy=False)
        self.names[cells[nearer]], self.distances[cells[nearer]] = names[nearer], distances[nearer]

    def get_state(self) -> State:
        """Return the sums, counts and names."""
        names_and_counts = {"counts": self.counts, "names": self.names, "nearness": self.distances}
        return super().get_state() | names_and_counts

    @classmethod
    def from_state(cls, learner: RankRLS, state: State) -> Self:
        """Restore from the arrays of `get_state`."""
        statistics = PairStatistics.from_state(state)
        return cls(learner, statistics, state["counts"], state["names"], state["nearness"])

    def pack(self) -> State:
        """Return the state of the cells that hold queries, and their numbers."""
        held = np.flatnonzero(self.counts)
        return {name: array[held] for name, array in self.get_state().items()} | {"cells": held}

    def merge_packed(self, state: State) -> None:
        """Add the cells that `pack` returned."""
        cells = state["cells"]
        for name, sums in zip(("gram", "moment", "pairs", "counts"), self._sums(), strict=True):
            sums[cells] += state[name]
        self._name(cells, state["names"], state["nearness"])

    def without_packed(self, state: State) -> Self:
        """Return these cells without the queries of the cells that `pack` returned. Names stay."""
        rest = self.copy()
        cells = state["cells"]
        for name, sums in zip(("gram", "moment", "pairs", "counts"), rest._sums(), strict=True):
            sums[cells] -= state[name]
        emptied = cells[rest.counts[cells] == 0]  # leave no rounding errors in a cell without queries
        for sums in rest._sums():
            sums[emptied] = 0.0
        return rest

    def copy(self) -> Self:
        """Return a copy that can change independently of this one and of a memory-mapped model folder."""
        return self.from_state(self.learner, {name: np.array(array) for name, array in self.get_state().items()})


def covering_shares(counts: Float64, wanted: Int64) -> Float64:
    """Return the share of each cell, nearest first, that is needed to cover a number of queries.

    Cells count entirely or not at all, except the last one needed.

    The result has one row for each number of queries in `wanted`.

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
    """Return the cells nearest to each point that together hold `n_neighbors` queries; the last counts in part."""
    n_cells = len(counts)
    wanted = min(n_neighbors, int(counts.sum()))
    n_nearest = min(n_cells, 4 + int(2 * wanted * n_cells / max(counts.sum(), 1)))
    while True:
        distances, cells = index.query(points, n_nearest)
        held = counts[cells]
        if n_nearest == n_cells or held.sum(axis=1).min() >= wanted:
            break
        n_nearest = min(n_cells, 2 * n_nearest)
    shares = covering_shares(held, np.full(len(points), wanted))
    used = shares > 0
    starts = np.append(0, np.cumsum(used.sum(axis=1)))
    return Neighborhoods(cells[used], starts, distances[used], shares[used])


@numba.njit(cache=True, nogil=True)
def _add_to_cells(cells, weights, gram, moment, pairs, grams, moments, all_pairs):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add query by query, so that a sum does not depend on how the queries are split into parts."""
    for q in range(len(cells)):
        cell, weight = cells[q], weights[q]
        for a in range(gram.shape[1]):
            grams[cell, a] += weight * gram[q, a]
        for a in range(moment.shape[1]):
            moments[cell, a] += weight * moment[q, a]
        all_pairs[cell] += weight * pairs[q]
