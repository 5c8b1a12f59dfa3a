"""What a `KinRanker` has learned: the local part, the trees, and their shares in the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.learn.base import Learner
from kinrank.learn.forest import Forest
from kinrank.learn.lambdamart import LambdaMART
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.kin.blend import standardized_columns
from kinrank.rankers.kin.settings import KinSettings, local_part, tree_settings
from kinrank.rankers.kin.trees import end_of_standing, linear_scores, what_trees_see
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.local.neighbor_model import LocalPrediction
from kinrank.store import nest, unnest

INGREDIENTS = ("trees", "local", "global")
RECORDED = (*INGREDIENTS, "blend")


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
    """The shares of trees, local and global model."""
    record: dict[str, float]
    """Out-of-fold quality of each ingredient and of the blend."""
    forest: Forest | None
    """The trees of all members."""

    @classmethod
    def of(
        cls,
        local: KnnRanker | CellRanker,
        members: list[LambdaMART],
        shares: dict[str, float],
        record: dict[str, float],
    ) -> KinModel:
        """Join the trees of all members."""
        forest = Forest.from_text(*(model.text for model in members)) if members else None
        return cls(local, members, shares, record, forest)

    @property
    def share_of_each(self) -> Float64:
        """The shares in the order of `INGREDIENTS`."""
        return np.array([self.shares[name] for name in INGREDIENTS])

    def ingredients(self, queries: QuerySet) -> IngredientScores:
        """Return the scores of queries, already encoded, by each ingredient."""
        local = self.local.predict_local(queries)
        scores = np.zeros((queries.n_rows, 3))
        scores[:, 1:] = linear_scores(local, queries, self.local.model_.highest_novelty)
        table = None
        if self.forest is not None:
            # Trees from a file were trained on features alone, and trees from clicks without standing.
            n_columns, end = self.forest.n_features, end_of_standing(queries.n_features, self.forest.n_features)
            seen_local = scores[:, 1] if n_columns > end else None
            table = what_trees_see(queries, seen_local, standing=end > queries.n_features)
            scores[:, 0] = self.forest.predict(table) / len(self.members)
        return IngredientScores(standardized_columns(scores, queries), table, local)

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
            "record": np.array([self.record[name] for name in RECORDED] if self.record else []),
        }

    @classmethod
    def from_state(cls, settings: KinSettings, n_neighbors: int, state: State) -> KinModel:
        """Restore from the arrays of `get_state`."""
        members: list[LambdaMART] = []
        while arrays := unnest(state, f"member{len(members)}"):
            members.append(tree_settings(settings).set_state(arrays))
        return cls.of(
            local_part(settings, n_neighbors).set_state(unnest(state, "local")),
            members,
            dict(zip(INGREDIENTS, state["shares"].tolist(), strict=True)),
            dict(zip(RECORDED, state["record"].tolist(), strict=False)),
        )
