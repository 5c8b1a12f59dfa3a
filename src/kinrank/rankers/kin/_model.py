"""What a `KinRanker` has learned: the local part, the trees, and their shares in the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.kin.blocks import standardize
from kinrank.learn._forest import Forest
from kinrank.learn.base import Learner
from kinrank.learn.lambdamart import LambdaMART
from kinrank.rankers._local.neighbor_model import LocalPrediction
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.kin._parts import PartRecord
from kinrank.rankers.kin._settings import KinParameters, local_part, tree_settings
from kinrank.rankers.kin._trees import TreeView, linear_scores
from kinrank.rankers.knn import KnnRanker
from kinrank.store import nest, unnest

INGREDIENTS = ("trees", "local", "global", "base")
RECORDED = ("trees", "local", "global", "blend", "base")


class IngredientScores(NamedTuple):
    """The standardized score of each ingredient, a column each, what the trees saw, and the local part."""

    scores: Float64
    table: Float32 | None
    local: LocalPrediction


@dataclass(frozen=True, eq=False)
class KinModel:
    """The parts of a fitted `KinRanker`."""

    local: KnnRanker | CellRanker
    """The local part. It alone changes when judgments come and go."""
    members: list[LambdaMART]
    """The bag of tree models; empty if there were too few queries to hold any out."""
    shares: dict[str, float]
    """The shares of trees, local and global model, and of the base, whose score is then the last feature."""
    record: dict[str, float]
    """Out-of-fold quality of each ingredient and of the blend."""
    forest: Forest | None
    """The trees of all members."""
    view: TreeView
    """What the trees see."""
    parts: Sequence[PartRecord]
    """Whether weights per query were kept, and why; empty if that was not tried, or after loading."""
    held_out: Float64 | None = None
    """The scores of the training queries by models that had not seen them; None if there are none, or after loading."""

    @classmethod
    def of(
        cls,
        local: KnnRanker | CellRanker,
        members: list[LambdaMART],
        shares: dict[str, float],
        record: dict[str, float],
        view: TreeView,
        parts: Sequence[PartRecord] = (),
        held_out: Float64 | None = None,
    ) -> KinModel:
        """Join the trees of all members."""
        forest = Forest.from_text(*(model.text for model in members)) if members else None
        return cls(local, members, shares, record, forest, view, parts, held_out)

    @property
    def share_of_each(self) -> Float64:
        """The shares in the order of `INGREDIENTS`."""
        return np.array([self.shares.get(name, 0.0) for name in INGREDIENTS])

    def scores(self, queries: QuerySet, memory: Float32 | None) -> Float64:
        """Return the scores of queries, already encoded; `memory` has the columns of it that the trees see."""
        if self.shares.get("base") == 1.0:
            return standardize(_base_scores(queries)[:, None], queries.offsets)[:, 0]
        if self.forest is not None and self.shares["trees"] == 1.0 and not self.view.local:
            return standardize(self._by_trees(self.forest, queries, None, memory)[0][:, None], queries.offsets)[:, 0]
        return self.ingredients(queries, memory).scores @ self.share_of_each

    def ingredients(self, queries: QuerySet, memory: Float32 | None) -> IngredientScores:
        """Return the scores of queries, already encoded, by each ingredient."""
        local, table = self.local.predict_local(queries), None
        scores = np.zeros((queries.n_rows, len(INGREDIENTS)))
        scores[:, 1:3] = linear_scores(local, queries, self.local.model_.highest_novelty)
        if self.shares.get("base"):
            scores[:, 3] = _base_scores(queries)
        if self.forest is not None:
            scores[:, 0], table = self._by_trees(self.forest, queries, scores[:, 1], memory)
        return IngredientScores(standardize(scores, queries.offsets), table, local)

    def _by_trees(
        self, forest: Forest, queries: QuerySet, local: Float64 | None, memory: Float32 | None
    ) -> tuple[Float64, Float32]:
        """Return the mean score of the trees, and what they see."""
        table = self.view.table(queries, local, memory)
        return forest.predict(table) / len(self.members), table

    def has_kin(self, local: LocalPrediction) -> NDArray[np.bool_]:
        """Return which queries have a judged query near enough."""
        near: NDArray[np.bool_] = local.novelty <= self.local.model_.highest_novelty
        return near

    def linear_models(self, local: LocalPrediction) -> Sequence[Learner]:
        """Return the linear model of each query: its own, or the global one without kin."""
        pairs = zip(local.models, self.has_kin(local), strict=True)
        return [model if near else self.local.global_ for model, near in pairs]

    def get_state(self) -> State:
        """Return everything learned."""
        members = {f"member{i}": model.get_state() for i, model in enumerate(self.members)}
        return nest(local=self.local.get_state(), **members) | {
            "shares": self.share_of_each,
            "record": np.array([self.record[name] for name in RECORDED if name in self.record]),
            "view": np.array(self.view, dtype=np.int64),
        }

    @classmethod
    def from_state(cls, ranker: KinParameters, n_neighbors: int, state: State) -> KinModel:
        """Restore from the arrays of `get_state`."""
        members: list[LambdaMART] = []
        while arrays := unnest(state, f"member{len(members)}"):
            members.append(tree_settings(ranker).set_state(arrays))
        local = local_part(ranker, n_neighbors).set_state(unnest(state, "local"))
        if "view" in state:
            standing, sees_local, n_memory = state["view"].tolist()
            view = TreeView(bool(standing), bool(sees_local), n_memory)
        else:
            n_columns = Forest.from_text(members[0].text).n_features if members else 1
            view = TreeView.of_columns(len(local.preparer_.factor_), n_columns)
        shares = dict(zip(INGREDIENTS, [*state["shares"].tolist(), 0.0], strict=False))  # earlier ones had no base
        return cls.of(local, members, shares, dict(zip(RECORDED, state["record"].tolist(), strict=False)), view)


def _base_scores(queries: QuerySet) -> Float64:
    return queries.X[:, -1].astype(np.float64)
