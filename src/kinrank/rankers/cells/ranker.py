"""Local models from sums over cells of similar judged queries: the same cost for any number of queries."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from kinrank.arrays import State
from kinrank.data.blocks import Blocks, QuerySetBlocks
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError
from kinrank.kin import Describer, make_describer
from kinrank.kin.blocks import Spec
from kinrank.kin.indexes import NeighborIndex, restore_index
from kinrank.kin.indexes._cells import CellTree
from kinrank.learn import make_learner
from kinrank.learn._prepare import Missing, Preparer, Scale
from kinrank.learn.base import Learner
from kinrank.learn.rankrls import RankRLS
from kinrank.parallel import Executor, Serial, current_executor, map_ordered
from kinrank.rankers._local.model import LocalModel, LocalSettings, Prior
from kinrank.rankers._local.nearest import NeighborRanker
from kinrank.rankers._local.neighbor_model import JudgedQueries, NeighborModel, fit_index
from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.cells._training import BlockSummer, CellPlan, CellStatistics, merge_all, plan_cells, rows_per_block
from kinrank.rankers.intake import JudgedArrays, takes_arrays
from kinrank.store import nest, unnest

# --- the local model of cells -----------------------------------------------------------------------------------------


@dataclass(eq=False)
class _CellModel(NeighborModel):
    """A local model of cells."""

    learner: RankRLS
    preparer: Preparer
    training_set: CellStatistics
    tree: CellTree
    """The cells, whose centers are the points of the index."""

    @classmethod
    def of(cls, plan: CellPlan, cells: CellStatistics, index: str | NeighborIndex) -> Self:
        """Build from cells that were summed according to a plan."""
        return cls(
            plan.learner,
            plan.preparer,
            plan.describer,
            cells,
            _model_of_all(cells),
            fit_index(index, plan.tree.centers_),
            JudgedQueries(cells.names),
            plan.usual_distances,
            plan.tree,
        )

    @property
    def plan(self) -> CellPlan:
        """How queries are prepared, described and assigned to cells; rankers that merge must share it."""
        return CellPlan(self.learner, self.preparer, self.describer, self.tree, self.usual_distances)

    def with_cells(self, cells: CellStatistics) -> Self:
        """Return a model of other sums over the same cells."""
        names = JudgedQueries(cells.names)
        return replace(self, training_set=cells, judged=names, global_model=_model_of_all(cells))

    def get_state(self) -> State:
        """Return everything learned."""
        return super().get_state() | nest(tree=self.tree.get_state())

    @classmethod
    def restore(cls, settings: LocalSettings, learner: RankRLS, state: State, index: str | NeighborIndex) -> Self:
        """Restore from the arrays of `get_state`."""
        cells = CellStatistics.from_state(learner, unnest(state, "memory"))
        return cls(
            **vars(LocalModel.from_state(settings, state, cells)),
            index=restore_index(index, unnest(state, "index")),
            judged=JudgedQueries(state["qid"]),
            usual_distances=state["usual_distances"],
            tree=CellTree.from_state(unnest(state, "tree")),
        )


def _model_of_all(cells: CellStatistics) -> RankRLS:
    return cells.learn(np.arange(len(cells.counts)), np.ones(len(cells.counts)))


# --- the ranker -------------------------------------------------------------------------------------------------------


class CellRanker(NeighborRanker):
    """A model per query, learned from the nearest cells of judged queries.

    Similar judged queries form a cell, and only the sum of their statistics is kept. Learning a local model from
    the nearest cells costs the same for any number of judged queries. `KnnRanker` keeps every judged query instead.

    Parameters
    ----------
    n_neighbors : int
        How many judged queries to learn from: the nearest cells that hold this many, the last one in part.
    n_cells : int
        The number of cells. A tenth of the number of judged queries lost no quality on the data we measured.
    radius : float, optional
        Learn from all cells within this distance instead.
    learner : "rankrls" or RankRLS
        Learner of the local models. Only RankRLS learns from sums.
    describe, reference, index, neighbor_weights, prior, prior_strength, scale, missing
        As for `KnnRanker`.

    Attributes
    ----------
    qid_ : array of str
        For each cell, the judged query nearest to its center.
    global_ : RankRLS
        The model of all judged queries.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=60, seed=0)
    >>> CellRanker(n_neighbors=12, n_cells=4).fit(camps[:40]).score(camps[40:])
    1.0
    """

    _capabilities: ClassVar[Capabilities] = Capabilities(
        explains=True,
        weights=True,
        novelty=True,
        adds=True,
        forgets=True,
        merges=True,
        streams=True,
        vectors=True,
        missing=True,
    )

    model_: _CellModel

    def __init__(
        self,
        n_neighbors: int = 400,
        *,
        n_cells: int = 1024,
        radius: float | None = None,
        learner: str | Learner = "rankrls",
        describe: Spec | Describer = "auto",
        reference: str | int | None = None,
        index: str | NeighborIndex = "auto",
        neighbor_weights: str = "gaussian",
        prior: Prior = "global",
        prior_strength: float = 0.1,
        scale: Scale = "standard",
        missing: Missing = "mean",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_cells = n_cells
        self.radius = radius
        self.learner = learner
        self.describe = describe
        self.reference = reference
        self.index = index
        self.neighbor_weights = neighbor_weights
        self.prior = prior
        self.prior_strength = prior_strength
        self.scale = scale
        self.missing = missing

    # --- fitting --------------------------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.n_cells < 1:
            raise ParameterError(f"n_cells must be a whole number from 1, got {self.n_cells!r}")

    def _fit(self, queries: QuerySet) -> None:
        blocks = QuerySetBlocks(queries, rows_per_block(self.n_cells, queries.n_features))
        executor = current_executor(Serial())
        plan = self.plan_cells(blocks, executor)
        self.set_cells(plan, merge_all(map_ordered(executor, BlockSummer(plan, blocks), range(len(blocks)))))

    def plan_cells(self, blocks: Blocks, executor: Executor) -> CellPlan:
        """Fit scaling, description and cells on a sample of the blocks, according to the settings."""
        self._check_settings()
        describer = make_describer(self.describe, reference=self.reference)
        preparer = Preparer(self.scale, self.missing)
        return plan_cells(blocks, self.n_cells, self._rankrls(), preparer, describer, executor)

    def restore_plan(self, state: State) -> CellPlan:
        """Return the plan with the arrays of `CellPlan.get_state`, under these settings."""
        preparer = Preparer(self.scale, self.missing).set_state(unnest(state, "preparer"))
        describer = make_describer(self.describe, reference=self.reference).set_state(unnest(state, "describer"))
        tree = CellTree.from_state(unnest(state, "tree"))
        return CellPlan(self._rankrls(), preparer, describer, tree, state["usual_distances"])

    def set_cells(self, plan: CellPlan, cells: CellStatistics) -> Self:
        """Use cells that were summed according to a plan, as if fitted on their queries."""
        if not cells.pairs.any():
            raise DataError("in every query all grades are equal, so there is no order to learn: judge more queries")
        self.model_ = _CellModel.of(plan, cells, self.index)
        return self

    def _rankrls(self) -> RankRLS:
        learner = make_learner(self.learner)
        if not isinstance(learner, RankRLS):
            raise ParameterError(
                f"CellRanker needs RankRLS, the only learner that learns from sums, got learner={self.learner!r}: set "
                "learner='rankrls', or use KnnRanker"
            )
        if learner.nonnegative or learner.lower_is_better:
            raise ParameterError(
                "CellRanker cannot constrain the signs of weights: use KnnRanker, or a learner without nonnegative and "
                "lower_is_better"
            )
        return learner

    # --- new judgments ----------------------------------------------------------------------------------------------

    @takes_arrays
    def add(self, X: ArrayLike | QuerySet, y: ArrayLike | None = None, **arrays: Unpack[JudgedArrays]) -> Self:
        """Learn from further judged queries without fitting again.

        Scaling, description and cells stay as fitted. Cells do not keep the ids of their queries, so a query that is
        added twice counts twice. Do not call this while another thread predicts.
        """
        queries = self._queries(X, y, **arrays)
        return self._with_cells(self.model_.plan.sums([queries]))

    @takes_arrays
    def forget(self, X: ArrayLike | QuerySet, y: ArrayLike | None = None, **arrays: Unpack[JudgedArrays]) -> Self:
        """Subtract judged queries, given with the same candidates and grades as they were learned.

        The result equals learning from the other queries only, up to rounding in float64. Cells do not keep the ids of
        their queries: the caller must make sure that these were learned.
        """
        queries = self._queries(X, y, **arrays)
        cell_of_query, _, statistics = self.model_.plan.locate(queries.replace(y=queries.grades))
        cells = self.model_.training_set.copy()
        cells.remove(cell_of_query, queries.qid, statistics)
        if not cells.counts.any():
            raise DataError("cannot forget all judged queries: at least one must be left")
        return self._learn_from(cells)

    def without(self, packed: State) -> Self:
        """Return a new ranker without the queries of some cells, as `CellStatistics.pack` returns them."""
        return copy(self)._learn_from(self.model_.training_set.without_packed(packed))

    @takes_arrays
    def fit_alike(self, X: ArrayLike | QuerySet, y: ArrayLike | None = None, **arrays: Unpack[JudgedArrays]) -> Self:
        """Return a new ranker fitted on other judged queries, with the scaling, description and cells of this one.

        Such rankers can be merged, on whatever machine they were fitted.
        """
        queries = self._queries(X, y, **arrays)
        return copy(self)._learn_from(self.model_.plan.sums([queries]))

    def merge(self, other: Self) -> Self:
        """Add the cells of another ranker to these.

        Both must have the same scaling, description and cells; see `fit_alike`. A query that is in both counts twice.
        """
        check_is_fitted(self)
        check_is_fitted(other)
        if self.feature_names_ != other.feature_names_ or self.model_.plan.digest() != other.model_.plan.digest():
            raise ParameterError(
                "only rankers with the same scaling, description and cells can be merged: fit the second with "
                "first.fit_alike(queries)"
            )
        return self._with_cells(other.model_.training_set)

    def _with_cells(self, more: CellStatistics) -> Self:
        cells = self.model_.training_set.copy()
        cells.merge(more)
        return self._learn_from(cells)

    def _learn_from(self, cells: CellStatistics) -> Self:
        self.model_ = self.model_.with_cells(cells)
        return self

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_] | None:
        """Return which of these queries name a cell, or None if none does.

        Cells do not keep the ids of their other queries.
        """
        check_is_fitted(self)
        names_a_cell = np.isin(queries.qid.astype(np.str_), self.qid_.astype(np.str_))
        return names_a_cell if names_a_cell.any() else None

    # --- persistence ------------------------------------------------------------------------------------------------

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        self.model_ = _CellModel.restore(self, self._rankrls(), state, self.index)
        return self
