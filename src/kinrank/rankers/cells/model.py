"""The local model of a `CellRanker`: its positions are cells of judged queries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from kinrank.arrays import State
from kinrank.learn.prepare import Preparer
from kinrank.learn.rankrls import RankRLS
from kinrank.neighbors import NeighborIndex, restore_index
from kinrank.neighbors.cells import CellTree
from kinrank.rankers.cells.statistics import CellStatistics
from kinrank.rankers.cells.training import CellPlan
from kinrank.rankers.local.judged_queries import JudgedQueries
from kinrank.rankers.local.model import LocalModel, LocalSettings
from kinrank.rankers.local.neighbor_model import NeighborModel, fit_index
from kinrank.store import nest, unnest


@dataclass(eq=False)
class CellModel(NeighborModel):
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
