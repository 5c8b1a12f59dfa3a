"""What makes a local ranker keep cells of judged queries, in place of every one of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from kinrank.arrays import State
from kinrank.data.blocks import Blocks, QuerySetBlocks
from kinrank.data.queryset import QuerySet
from kinrank.describe import make_describer
from kinrank.errors import DataError, ParameterError
from kinrank.learn import make_learner
from kinrank.learn.prepare import Preparer
from kinrank.learn.rankrls import RankRLS
from kinrank.neighbors import NeighborIndex, make_index
from kinrank.neighbors.cells import CellTree
from kinrank.parallel import Executor, Serial, current_executor, map_ordered
from kinrank.rankers.cells.memory import CellMemory
from kinrank.rankers.cells.training import CellPlan, Summer, add_up, plan_cells, rows_per_block
from kinrank.rankers.local.base import LocalRanker
from kinrank.rankers.local.memory import Memory
from kinrank.store import nest, unnest


class CellRanker(LocalRanker):
    """Base of local rankers that may keep cells.

    A subclass says how its settings ``cells`` and ``index`` are used, and implements `_learn_again`.
    """

    cells: int | None
    index: str | NeighborIndex

    @abstractmethod
    def _learn_again(self) -> Self:
        """Bring what is derived from the judged queries up to date."""

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.cells is not None and self.cells < 1:
            raise ParameterError(f"cells must be a whole number from 1, got {self.cells!r}; None keeps every query")

    def _fit(self, queries: QuerySet) -> None:
        if self.cells is None:
            super()._fit(queries)
        else:
            blocks = QuerySetBlocks(queries, rows_per_block(self.cells, queries.n_features))
            executor = current_executor(Serial())
            plan = self.plan_cells(blocks, executor)
            self.take_cells(plan, add_up(map_ordered(executor, Summer(plan, blocks), range(len(blocks)))))

    def plan_cells(self, blocks: Blocks, executor: Executor) -> CellPlan:
        """Settle scaling, description and cells, as these settings say, on a sample of blocks of queries."""
        self._check_settings()
        describer = make_describer(self.describe, reference=self.reference)
        preparer = Preparer(self.scale, self.missing)
        return plan_cells(blocks, self.cells or 1, self._rankrls(), preparer, describer, executor)

    def restore_plan(self, state: State) -> CellPlan:
        """The plan that `CellPlan.get_state` was asked of, under these settings."""
        preparer = Preparer(self.scale, self.missing).set_state(unnest(state, "preparer"))
        describer = make_describer(self.describe, reference=self.reference).set_state(unnest(state, "describer"))
        tree = CellTree.from_state(unnest(state, "tree"))
        return CellPlan(self._rankrls(), preparer, describer, tree, state["usual_distances"])

    def take_cells(self, plan: CellPlan, memory: CellMemory) -> Self:
        """Become the ranker of cells that were summed by a plan."""
        if not memory.pairs.any():
            raise DataError("in each query all grades are equal: there is nothing to learn an order from")
        self.learner_, self.preparer_, self.describer_ = plan.learner, plan.preparer, plan.describer
        self.tree_, self.usual_distances_, self.memory_ = plan.tree, plan.usual_distances, memory
        self.index_ = make_index(self.index, *plan.tree.centers_.shape).fit(plan.tree.centers_)
        return self._learn_again()

    @property
    def plan_(self) -> CellPlan:
        """How queries are prepared, described and grouped into cells; what rankers that merge must share."""
        if self.cells is None:
            raise ParameterError("this needs cells: fit with cells=, or use add(X, y, qid=qid) and remove(qid)")
        return CellPlan(self._rankrls(), self.preparer_, self.describer_, self.tree_, self.usual_distances_)

    def _rankrls(self) -> RankRLS:
        learner = make_learner(self.learner)
        if not isinstance(learner, RankRLS):
            raise ParameterError("cells are sums that only RankRLS learns from: set learner='rankrls', or cells=None")
        if learner.nonnegative or learner.lower_is_better:
            raise ParameterError(
                "weights with a sign are not learned from cells: set cells=None, or leave the signs free"
            )
        return learner

    def get_state(self) -> State:
        """Everything learned."""
        state = super().get_state()
        return state if self.cells is None else state | nest(tree=self.tree_.get_state())

    def set_state(self, state: State) -> Self:
        """Take over everything learned."""
        super().set_state(state)
        if self.cells is not None:
            self.tree_ = CellTree.from_state(unnest(state, "tree"))
        return self

    def _restore(self, state: State) -> Memory:
        return super()._restore(state) if self.cells is None else CellMemory.from_state(self._rankrls(), state)
