"""Cells from judged queries of any number: a sample settles the scales and the cells, one pass sums the statistics.

The data come as numbered blocks. Each block is summed by itself, and the sums are added in the order of block
numbers, always in the same grouping; so the bytes of the result depend on the data and nothing else.
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
from kinrank.rankers.local.base import unit_moments
from kinrank.store import nest

SAMPLE_ROWS = 1 << 20
"""Rows that scales and descriptions are fitted on at most: 193 MB at 46 features."""

POINTS_PER_CELL = 32
"""Queries that the centers are found from, for each cell."""

FAN_IN = 16
"""Sums that are added up before the result goes into the next level."""

_QUERIES_AT_ONCE = 1024  # their statistics stay in the cache: 4.6 MB at 46 features
_USUAL = 1000  # queries that say how far from its center a query usually is


@dataclass(frozen=True, eq=False)
class CellPlan:
    """What is settled before the pass over all queries: how they are prepared, described and grouped.

    Attributes
    ----------
    learner, preparer, describer, tree
        What learns, what scales the features, what makes a query a point, what finds a point's cell.
    usual_distances : float64 array
        How far some of the queries are from the center of their cell, ascending.
    """

    learner: RankRLS
    preparer: Preparer
    describer: Describer
    tree: CellTree
    usual_distances: Float64

    def points(self, queries: QuerySet) -> Float32:
        """Queries as points."""
        return self.describer.transform(queries)

    def locate(self, queries: QuerySet) -> tuple[Int64, Float64, PairStatistics]:
        """The cell of each query, how far it is from the center, and its statistics."""
        return *self.tree.assign(self.points(queries)), PairStatistics.from_queries(self.preparer.apply(queries))

    def sums(self, parts: Iterable[QuerySet]) -> CellStatistics:
        """The cells of some queries, read part by part."""
        memory = CellStatistics.empty(self.learner, len(self.tree), len(self.preparer.center_))
        with threadpool_limits(1):  # several threads of BLAS may add in another order
            for part in parts:
                for start in range(0, len(part), _QUERIES_AT_ONCE):
                    queries = part[start : start + _QUERIES_AT_ONCE]
                    queries = queries.replace(y=queries.grades)
                    cells, distances, each = self.locate(queries)
                    memory.add(cells, distances, queries.qid, each)
        return memory

    def digest(self) -> str:
        """Differs where sums made by one plan must not be added to those of another."""
        seen = hashlib.sha256(repr(self.learner).encode())
        for name, array in sorted(self.get_state().items()):
            seen.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return seen.hexdigest()

    def get_state(self) -> State:
        """As plain arrays."""
        parts = nest(
            preparer=self.preparer.get_state(), describer=self.describer.get_state(), tree=self.tree.get_state()
        )
        return parts | {"usual_distances": self.usual_distances}


def rows_per_block(n_cells: int, n_features: int) -> int:
    """How many rows make a block whose sums are at most an eighth of its own size: half a second up to 1,000 cells.

    C cells of D (D + 3) / 2 float64 numbers against rows of D float32 numbers.

    Examples
    --------
    >>> rows_per_block(1024, 46), rows_per_block(65_536, 46)
    (401408, 25690112)
    """
    return max(400_000, 8 * n_cells * (n_features + 3))


def plan_cells(
    blocks: Blocks, n_cells: int, learner: RankRLS, preparer: Preparer, describer: Describer, executor: Executor
) -> CellPlan:
    """Fit preparer and describer on a sample of the queries, and find the cells of their descriptions."""
    sample = Sample.of_rows(blocks, SAMPLE_ROWS)
    picked = map_ordered(executor, BlockSampler(blocks, sample, preparer), sample.blocks)
    queries = QuerySet.concat(list(chain.from_iterable(picked)))
    targets = None
    with threadpool_limits(1):  # several threads of BLAS may add in another order
        preparer.fit(queries)
        if describer.needs_targets:
            targets = unit_moments(preparer.apply(queries))
        describer.fit(queries, targets=targets)
        points = describer.transform(queries)
        wanted = POINTS_PER_CELL * n_cells
        if len(queries) < wanted and sample.share < 1.0:
            more = Sample.of_rows(blocks, int(wanted * queries.n_rows / len(queries)))
            sampler = BlockSampler(blocks, more, preparer)
            described = map_ordered(executor, BlockDescriber(sampler, describer), more.blocks)
            points = np.concatenate(list(chain.from_iterable(described)))
    tree = CellTree(n_cells).fit(points, partial(map_ordered, executor))
    some = np.linspace(0, len(points) - 1, min(len(points), _USUAL)).astype(np.int64)
    return CellPlan(learner, preparer, describer, tree, np.sort(tree.assign(points[some])[1]))


@dataclass(frozen=True, eq=False)
class BlockSampler:
    """The queries of a block that are in a sample."""

    blocks: Blocks
    sample: Sample
    preparer: Preparer

    def __call__(self, block: int) -> list[QuerySet]:
        """Read the block and pick; a bad row is found here, where it is known which block it is in."""
        picked = self.sample.select(self.blocks.read(block))
        with self.blocks.error_context(block):
            for part in picked:
                self.preparer.check(part.X, part)
        return picked


@dataclass(frozen=True, eq=False)
class BlockDescriber:
    """The points of the queries of a block that are in a sample."""

    sampler: BlockSampler
    describer: Describer

    def __call__(self, block: int) -> list[Float32]:
        """Read the block, pick and describe."""
        return [self.describer.transform(picked) for picked in self.sampler(block)]


@dataclass(frozen=True, eq=False)
class BlockSummer:
    """The cells of one block."""

    plan: CellPlan
    blocks: Blocks

    def __call__(self, block: int) -> CellStatistics:
        """Read the block and sum."""
        with self.blocks.error_context(block):
            return self.plan.sums(self.blocks.read(block))


def merge_all(parts: Iterable[CellStatistics]) -> CellStatistics:
    """The sum of many cells, in a tree that depends on their number alone: `FAN_IN` at a time, level by level.

    Only one running sum is held for each level.
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
