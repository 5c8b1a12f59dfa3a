"""What `KnnRanker` and `CellRanker` share: a local model of the judged queries nearest to a query."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Protocol, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import QueryTexts
from kinrank.data.vectors import QueryVectors
from kinrank.errors import ParameterError
from kinrank.learn.base import Learner
from kinrank.neighbors import NeighborIndex, restore_index
from kinrank.rankers.base import Prediction
from kinrank.rankers.capabilities import Capabilities, capabilities_of
from kinrank.rankers.local.base import LocalRanker, coefficients
from kinrank.rankers.local.explanation import Explanation
from kinrank.rankers.local.neighborhoods import Neighborhoods
from kinrank.store import nest, unnest


@dataclass(frozen=True, eq=False)
class LocalPrediction:
    """Scores of queries by their local models and by the global one, and where they come from.

    Attributes
    ----------
    scores, global_scores : float64 arrays of shape (rows,)
        The scores by the local models and by the global one.
    novelty : float64 array of shape (queries,)
        The distance of each query to the nearest judged query; see `Prediction`.
    near : Neighborhoods
        What the model of each query was learned from.
    models : list of Learner
        The model of each query.
    """

    scores: Float64
    global_scores: Float64
    novelty: Float64
    near: Neighborhoods
    models: list[Learner]


class NeighborRanker(LocalRanker):
    """Base of rankers that find the judged queries nearest to a query and learn from them.

    A subclass implements `near`, which finds the positions of its training set (judged queries, or cells of them)
    that a query learns from.

    Attributes
    ----------
    index_ : NeighborIndex
        The points of the positions of the training set.
    qid_ : array
        The judged query at each position; for a cell, the one nearest to its center.
    n_neighbors_ : int
        The number of neighbors chosen in `fit`; used if `n_neighbors` is ``"auto"``.
    usual_distances_ : float64 array
        Sampled distances of the judged queries of the fit to their nearest other one, ascending.
    """

    _capabilities: ClassVar[Capabilities] = Capabilities(
        explains=True, weights=True, novelty=True, vectors=True, missing=True
    )

    n_neighbors: int | Literal["auto"]
    radius: float | None
    index: str | NeighborIndex
    neighbor_weights: str

    index_: NeighborIndex
    n_neighbors_: int
    qid_: NDArray[Any]
    usual_distances_: Float64

    @abstractmethod
    def near(self, points: Float32, n_neighbors: int | None = None) -> Neighborhoods:
        """Return the positions near each point: those of the nearest `n_neighbors` queries, or all in the radius."""

    @property
    def k(self) -> int:
        """How many judged queries a local model learns from: as set, or as chosen in `fit`."""
        return self.n_neighbors_ if self.n_neighbors == "auto" else int(self.n_neighbors)

    @property
    def n_judged_(self) -> int:
        """The number of ids in `qid_`."""
        return len(self.qid_)

    def qid_at(self, positions: Int64) -> NDArray[Any]:
        """Return the judged query at each of these positions."""
        ids: NDArray[Any] = self.qid_[positions]
        return ids

    def has_judged(self, qid: ArrayLike) -> NDArray[np.bool_]:
        """Return which of these ids are in `qid_`."""
        return np.isin(qid, self.qid_)

    @property
    def learns_online(self) -> bool:
        """Whether the model of a query is learned when the query arrives."""
        return True

    @property
    def local_(self) -> Self:
        """The ranker itself; see `neighbor_part`."""
        return self

    def _check_settings(self) -> None:
        super()._check_settings()
        self._check_neighbors()
        if self.radius is not None and not (isinstance(self.radius, Real) and self.radius > 0):
            raise ParameterError(f"radius must be a positive number, got {self.radius!r}")

    def _check_neighbors(self) -> None:
        whole = isinstance(self.n_neighbors, Integral) and not isinstance(self.n_neighbors, bool)
        if not whole or int(self.n_neighbors) < 1:
            raise ParameterError(f"n_neighbors must be a whole number from 1, got {self.n_neighbors!r}")

    def _learn_near(self, points: Float32) -> tuple[Neighborhoods, list[Learner]]:
        """Return the neighbors of each point and the model learned from them."""
        near = self.near(points)
        return near, self._learn_each(near, near.weights(self.neighbor_weights, self.radius))

    def _models(self, queries: QuerySet, points: Float32) -> list[Learner]:  # noqa: ARG002
        return [model for some in in_blocks(points) for model in self._learn_near(some)[1]]

    def predict_unchecked(self, queries: QuerySet) -> Prediction:
        """Score grouped queries that were checked already, such as by a ranker that this one is a part of."""
        return self._predict_with_novelty(queries)

    def predict_local(self, queries: QuerySet) -> LocalPrediction:
        """Score grouped queries, checked already, by models learned online and by the global one; prepare them once."""
        near, models = self._learn_all(self.points(queries))
        prepared = self.prepared(queries)
        return LocalPrediction(
            self._score_by(models, queries, prepared), self.global_.predict(prepared), self._novelty(near), near, models
        )

    def _predict_with_novelty(self, queries: QuerySet) -> Prediction:
        near, models = self._learn_all(self.points(queries))
        return Prediction(self._score_by(models, queries), self._novelty(near))

    def _learn_all(self, points: Float32) -> tuple[Neighborhoods, list[Learner]]:
        """Return the neighbors of any number of points and the models learned from them."""
        learned = [self._learn_near(some) for some in in_blocks(points)]
        return Neighborhoods.concat(near for near, _ in learned), [model for _, some in learned for model in some]

    def _novelty(self, near: Neighborhoods) -> Float64:
        """Return the distance to the nearest neighbor in units of `_unit_distance`; infinite without neighbors."""
        nearest = np.array([distances[0] if len(distances) else np.inf for _, distances in near])
        novelty: Float64 = nearest / self._unit_distance
        return novelty

    @property
    def highest_novelty(self) -> float:
        """The novelty of the judged query that is farthest from all others. Beyond it nothing was ever judged."""
        return float(self.usual_distances_[-1] / self._unit_distance)

    @property
    def _unit_distance(self) -> float:
        """The distance within which 99% of the judged queries have their nearest other one."""
        usual = self.usual_distances_[(len(self.usual_distances_) - 1) * 99 // 100]
        # If all judged queries lie on one point, everything else is far.
        return float(max(usual, np.finfo(np.float32).tiny))

    def explain(
        self,
        X: ArrayLike | QuerySet,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
        query_text: QueryTexts | None = None,
    ) -> list[Explanation]:
        """Explain each query: its neighbors, its weights next to the global ones, how new it is."""
        queries = self._queries(X, None, qid, group, query_vectors, query_text)
        return self.explain_models(queries, *self._learned_from(self.points(queries)))

    def explain_models(
        self, queries: QuerySet, sources: Iterable[tuple[Int64, Float64]], models: list[Learner]
    ) -> list[Explanation]:
        """Explain queries by their models and the positions that these were learned from, nearest first."""
        linear = self.learner_.linear
        return [
            self._explanation(
                queries, query, *source, self.preparer_.raw_weights(coefficients(model)) if linear else None
            )
            for query, (source, model) in enumerate(zip(sources, models, strict=True))
        ]

    def _learned_from(self, points: Float32) -> tuple[Iterable[tuple[Int64, Float64]], list[Learner]]:
        """Return what each point's model was learned from, positions and distances, nearest first; and the models."""
        return self._learn_all(points)

    def _explanation(
        self, queries: QuerySet, query: int, near: Int64, distances: Float64, weights: Float64 | None
    ) -> Explanation:
        nearest = distances[0] if len(distances) else np.inf
        limit = np.inf if self.radius is not None else self.k
        held = np.minimum(np.cumsum(self.training_set_.counts[near]), limit)
        unusual = np.searchsorted(self.usual_distances_, nearest) / len(self.usual_distances_)
        return Explanation(
            qid=queries.qid[query].item(),
            neighbors=self.qid_at(near),
            distances=distances,
            counts=np.diff(held, prepend=0.0),
            unusual=float(unusual),
            feature_names=queries.feature_names,
            weights=weights,
            global_weights=None if weights is None else self.preparer_.raw_weights(coefficients(self.global_)),
        )

    def _remember(self, queries: QuerySet) -> None:
        """Keep nothing: `qid_` follows the judged queries as they change."""

    def get_state(self) -> State:
        """Return everything learned."""
        state = super().get_state() | nest(index=self.index_.get_state())
        return state | {"qid": self.qid_, "usual_distances": self.usual_distances_}

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        super().set_state(state)
        self.index_ = restore_index(self.index, unnest(state, "index"))
        self.qid_, self.usual_distances_ = state["qid"], state["usual_distances"]
        return self


class _HasNeighborPart(Protocol):
    local_: NeighborRanker


def neighbor_part(ranker: object) -> NeighborRanker | None:
    """Return the part of a ranker that learns from neighbors: the ranker itself, its local model, or None."""
    return cast(_HasNeighborPart, ranker).local_ if capabilities_of(ranker).novelty else None


def in_blocks(points: Float32, size: int = 1024) -> Sequence[Float32]:
    """Split points into blocks, so that the neighbors of many queries are never in memory at once."""
    return [points[start : start + size] for start in range(0, len(points), size)]
