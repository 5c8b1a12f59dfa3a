"""Learn cells from any number of judged queries: scales and cells from a sample, then sums in one pass.

The data come as numbered blocks. Each block is summed separately, and the sums are added in the order of block
numbers, always in the same grouping, so the bytes of the result depend only on the data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Self

import numba
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.blocks import SAMPLE_ROWS, Blocks, Sample
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.kin import Describer
from kinrank.kin.indexes import NeighborIndex
from kinrank.kin.indexes._cells import CellTree
from kinrank.kin.indexes.base import Neighborhoods
from kinrank.learn._prepare import Preparer
from kinrank.learn.base import pair_weights
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.statistics import PairStatistics, packed_size
from kinrank.parallel import Executor, map_ordered
from kinrank.rankers._local.training_sets import StatisticsTrainingSet
from kinrank.store import nest

# --- cells: the summed statistics of similar judged queries -----------------------------------------------------------


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


# --- scales and cells from a sample, then sums in one pass ------------------------------------------------------------


POINTS_PER_CELL = 32
"""Number of queries per cell that the centers are fitted on."""

FAN_IN = 16
"""Number of sums that are merged into one sum of the next level."""

_QUERIES_AT_ONCE = 1024  # their statistics fit into the cache: 4.6 MB with 46 features
_USUAL = 1000  # number of queries to sample distances from


@dataclass(frozen=True, eq=False)
class CellPlan:
    """How queries are prepared, described and assigned to cells; fixed before the pass over all queries."""

    learner: RankRLS
    preparer: Preparer
    describer: Describer
    tree: CellTree
    """The learner of local models, the scaling of features, the description of queries, and the cells."""
    usual_distances: Float64
    """Sampled distances of queries from the center of their cell, ascending."""

    def points(self, queries: QuerySet) -> Float32:
        """Return the queries as points."""
        return self.describer.points(queries)

    def locate(self, queries: QuerySet) -> tuple[Int64, Float64, PairStatistics]:
        """Return the cell of each query, its distance from the center, and its statistics."""
        return *self.tree.assign(self.points(queries)), PairStatistics.from_queries(self.preparer.apply(queries))

    def sums(self, parts: Iterable[QuerySet]) -> CellStatistics:
        """Return the cells of some queries, which are read part by part."""
        sums = self.no_sums()
        for part in parts:
            self.add_to(sums, part)
        return sums

    def no_sums(self) -> CellStatistics:
        """Return cells without queries."""
        return CellStatistics.empty(self.learner, len(self.tree), len(self.preparer.center_))

    def add_to(self, sums: CellStatistics, part: QuerySet) -> None:
        """Add queries to cells."""
        with threadpool_limits(1):  # several BLAS threads may add in another order
            for start in range(0, len(part), _QUERIES_AT_ONCE):
                queries = part[start : start + _QUERIES_AT_ONCE]
                queries = queries.replace(y=queries.grades)
                cells, distances, statistics = self.locate(queries)
                sums.add(cells, distances, queries.qid, statistics)

    def digest(self) -> str:
        """Return a digest that two plans share only if their sums may be added."""
        seen = hashlib.sha256(repr(self.learner).encode())
        for name, array in sorted(self.get_state().items()):
            seen.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return seen.hexdigest()

    def get_state(self) -> State:
        """Return plain arrays to save."""
        parts = nest(
            preparer=self.preparer.get_state(), describer=self.describer.get_state(), tree=self.tree.get_state()
        )
        return parts | {"usual_distances": self.usual_distances}


def rows_per_block(n_cells: int, n_features: int) -> int:
    """Return the number of rows of a block, large enough that its sums take at most an eighth of its size.

    The sums are C cells of D (D + 3) / 2 float64 numbers; a row is D float32 numbers. With up to 1,000 cells a block
    takes half a second.

    Examples
    --------
    >>> rows_per_block(1024, 46), rows_per_block(65_536, 46)
    (401408, 25690112)
    """
    return max(400_000, 8 * n_cells * (n_features + 3))


def plan_cells(
    blocks: Blocks, n_cells: int, learner: RankRLS, preparer: Preparer, describer: Describer, executor: Executor
) -> CellPlan:
    """Fit the preparer, the describer and the cells on a sample of the queries."""
    sample = Sample.of_rows(blocks, SAMPLE_ROWS)
    sampled = map_ordered(executor, _BlockSampler(blocks, sample, preparer), sample.blocks)
    queries = QuerySet.concat(list(chain.from_iterable(sampled)))
    with threadpool_limits(1):  # several BLAS threads may add in another order
        preparer.fit(queries)
        describer.fit(queries)
        points = describer.points(queries)
        wanted = POINTS_PER_CELL * n_cells
        if len(queries) < wanted and sample.share < 1.0:
            more = Sample.of_rows(blocks, int(wanted * queries.n_rows / len(queries)))
            sampler = _BlockSampler(blocks, more, preparer)
            described = map_ordered(executor, _BlockDescriber(sampler, describer), more.blocks)
            points = np.concatenate(list(chain.from_iterable(described)))
    tree = CellTree(n_cells).fit(points, partial(map_ordered, executor))
    sample_positions = np.linspace(0, len(points) - 1, min(len(points), _USUAL)).astype(np.int64)
    return CellPlan(learner, preparer, describer, tree, np.sort(tree.assign(points[sample_positions])[1]))


@dataclass(frozen=True, eq=False)
class _BlockSampler:
    """Reads the queries of a block that are in a sample."""

    blocks: Blocks
    sample: Sample
    preparer: Preparer

    def __call__(self, block: int) -> list[QuerySet]:
        """Return the sampled queries. They are checked here so that an error can name the block."""
        sampled = self.sample.select(self.blocks.read(block))
        with self.blocks.error_context(block):
            for part in sampled:
                self.preparer.check(part.X, part)
        return sampled


@dataclass(frozen=True, eq=False)
class _BlockDescriber:
    """Describes the queries of a block that are in a sample."""

    sampler: _BlockSampler
    describer: Describer

    def __call__(self, block: int) -> list[Float32]:
        """Return the points of the sampled queries."""
        return [self.describer.points(part) for part in self.sampler(block)]


@dataclass(frozen=True, eq=False)
class BlockSummer:
    """Sums the cells of a block."""

    plan: CellPlan
    blocks: Blocks

    def __call__(self, block: int) -> CellStatistics:
        """Return the sums."""
        with self.blocks.error_context(block):
            return self.plan.sums(self.blocks.read(block))


def merge_all(parts: Iterable[CellStatistics]) -> CellStatistics:
    """Merge the cells of many parts in a tree with `FAN_IN` children per node.

    The order of additions depends only on the number of parts. One running sum per level is kept in memory.
    """
    levels: list[tuple[CellStatistics, int] | None] = []
    for part in parts:
        carried: CellStatistics | None = part
        level = 0
        while carried is not None:
            if level == len(levels):
                levels.append(None)
            held = levels[level]
            total, count = (carried, 1) if held is None else (_merged(held[0], carried), held[1] + 1)
            carried = total if count == FAN_IN else None
            levels[level] = None if count == FAN_IN else (total, count)
            level += 1
    rest: CellStatistics | None = None
    for held in levels:
        if held is not None:
            rest = held[0] if rest is None else _merged(held[0], rest)
    if rest is None:
        raise DataError("there is no query to learn from")
    return rest


def _merged(total: CellStatistics, more: CellStatistics) -> CellStatistics:
    total.merge(more)
    return total
