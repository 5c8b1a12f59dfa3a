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

import numpy as np
from threadpoolctl import threadpool_limits

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.blocks import Blocks, Sample
from kinrank.data.queryset import QuerySet
from kinrank.describe import Describer
from kinrank.errors import DataError
from kinrank.learn.prepare import Preparer
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.statistics import PairStatistics
from kinrank.neighbors.cells import CellTree
from kinrank.parallel import Executor, map_ordered
from kinrank.rankers.cells.statistics import CellStatistics
from kinrank.rankers.local.intermediate import SAMPLE_ROWS
from kinrank.store import nest

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
