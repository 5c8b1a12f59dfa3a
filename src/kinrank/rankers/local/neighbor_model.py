"""A local model with an index of its judged queries: finds those near a query, and learns from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.normalization import normalization_of, normalize
from kinrank.data.queryset import QuerySet
from kinrank.learn.base import Learner
from kinrank.neighbors import NeighborIndex, make_index
from kinrank.rankers.local.explanation import Explanation, candidate_moments
from kinrank.rankers.local.judged_queries import JudgedQueries
from kinrank.rankers.local.model import LocalModel, LocalSettings
from kinrank.rankers.local.neighborhoods import Neighborhoods
from kinrank.store import nest

_SAMPLE = 1000

Sources = Iterable[tuple[Int64, Float64]]
"""What each model was learned from: positions and their distances, nearest first."""


class NeighborSettings(LocalSettings, Protocol):
    """The settings of a ranker that learns from neighbors."""

    radius: float | None
    neighbor_weights: str

    @property
    def k(self) -> int:
        """How many judged queries a local model learns from."""
        ...


@dataclass(frozen=True, eq=False)
class LocalPrediction:
    """Scores of queries by their local models and by the global one, and where they come from."""

    scores: Float64
    global_scores: Float64
    """The scores by the local models and by the global one; shape (rows,)."""
    novelty: Float64
    """The distance of each query to the nearest judged query; see `Prediction`; shape (queries,)."""
    near: Neighborhoods
    """What the model of each query was learned from."""
    models: list[Learner]
    """The model of each query."""


@dataclass(eq=False)
class NeighborModel(LocalModel):
    """A local model whose judged queries, or cells of them, are the points of an index."""

    index: NeighborIndex
    """The points of the positions of the training set."""
    judged: JudgedQueries
    """The judged query at each position; for a cell, the one nearest to its center."""
    usual_distances: Float64
    """Sampled distances of the judged queries of the fit to their nearest other one, ascending."""

    def near(self, points: Float32, k: int, radius: float | None = None) -> Neighborhoods:
        """Return the positions near each point: those of the nearest `k` queries, or all in the radius."""
        if radius is not None:
            return Neighborhoods.within(self.index, points, radius)
        return self.training_set.nearest(self.index, points, k)

    def learn_near(self, points: Float32, settings: NeighborSettings) -> tuple[Neighborhoods, list[Learner]]:
        """Return the neighbors of each point and the model learned from them."""
        near = self.near(points, settings.k, settings.radius)
        return near, self.learn_each(near, settings, near.weights(settings.neighbor_weights, settings.radius))

    def learn(self, points: Float32, settings: NeighborSettings) -> tuple[Neighborhoods, list[Learner]]:
        """Return the neighbors of any number of points and the models learned from them."""
        return join_learned(self.learn_near(block, settings) for block in in_blocks(points))

    def models(self, points: Float32, settings: NeighborSettings) -> list[Learner]:
        """Return only the models of any number of points, so that few neighbors are in memory at once."""
        return [model for block in in_blocks(points) for model in self.learn_near(block, settings)[1]]

    def predict(self, queries: QuerySet, settings: NeighborSettings) -> LocalPrediction:
        """Score queries by models learned for them and by the global one; prepare them once."""
        near, models = self.learn(self.points(queries), settings)
        prepared = self.prepared(queries)
        by_global = self.global_model.predict(prepared)
        return LocalPrediction(self.scores(models, queries, prepared), by_global, self.novelty(near), near, models)

    def novelty(self, near: Neighborhoods) -> Float64:
        """Return the distance to the nearest neighbor in units of `_unit_distance`; infinite without neighbors."""
        nearest = np.array([distances[0] if len(distances) else np.inf for _, distances in near])
        novelty: Float64 = nearest / self._unit_distance
        return novelty

    @property
    def highest_novelty(self) -> float:
        """The novelty of the judged query that is farthest from all others. Beyond it nothing was ever judged."""
        return float(self.usual_distances[-1] / self._unit_distance)

    @property
    def _unit_distance(self) -> float:
        """The distance within which 99% of the judged queries have their nearest other one."""
        usual = self.usual_distances[(len(self.usual_distances) - 1) * 99 // 100]
        # If all judged queries lie on one point, everything else is far.
        return float(max(usual, np.finfo(np.float32).tiny))

    def explain(
        self, queries: QuerySet, sources: Sources, models: Sequence[Learner], settings: NeighborSettings
    ) -> list[Explanation]:
        """Explain queries by their models and the positions that these were learned from, nearest first."""
        weights: Sequence[Float64 | None] = [None] * len(models)
        global_weights = None
        if self.learner.linear:
            weights, (global_weights,) = list(self.raw_weights(models)), self.raw_weights([self.global_model])
        limit = np.inf if settings.radius is not None else settings.k
        normalization, X = normalization_of(settings.scale), queries.X
        if normalization is not None:
            X = normalize(X, queries.offsets, normalization)
        explained = []
        for query, ((positions, distances), own_weights) in enumerate(zip(sources, weights, strict=True)):
            nearest = distances[0] if len(distances) else np.inf
            held = np.minimum(np.cumsum(self.training_set.counts[positions]), limit)
            explained.append(
                Explanation(
                    qid=queries.qid[query].item(),
                    neighbors=self.judged.at(positions),
                    distances=distances,
                    counts=np.diff(held, prepend=0.0),
                    unusual=float(np.searchsorted(self.usual_distances, nearest) / len(self.usual_distances)),
                    feature_names=queries.feature_names,
                    weights=own_weights,
                    global_weights=global_weights,
                    spread=candidate_moments(X[queries.offsets[query] : queries.offsets[query + 1]])[1],
                )
            )
        return explained

    def get_state(self) -> State:
        """Return everything learned."""
        arrays: dict[str, NDArray[Any]] = {"qid": self.judged.qid, "usual_distances": self.usual_distances}
        return super().get_state() | nest(index=self.index.get_state()) | arrays


def fit_index(index: str | NeighborIndex, points: Float32) -> NeighborIndex:
    """Return a new index of points; ``"auto"`` chooses by their number."""
    return make_index(index, *points.shape).fit(points)


def measure_distances(index: NeighborIndex) -> Float64:
    """Sample how far judged queries are from their nearest other one.

    The scale of distances stays that of the fit, as the description does. Measured again on other queries it would
    move, and with it the novelty of every query.
    """
    m = len(index.points_)
    sample = np.linspace(0, m - 1, min(m, _SAMPLE)).astype(np.int64)
    distances, _ = index.query(index.points_[sample], min(2, m))
    return np.sort(distances[:, -1])


def join_learned(parts: Iterable[tuple[Neighborhoods, list[Learner]]]) -> tuple[Neighborhoods, list[Learner]]:
    """Join the neighbors and models of several blocks of points."""
    learned = list(parts)
    return Neighborhoods.concat(near for near, _ in learned), [model for _, models in learned for model in models]


def in_blocks(points: Float32, size: int = 1024) -> Sequence[Float32]:
    """Split points into blocks, so that the neighbors of many queries are never in memory at once."""
    return [points[start : start + size] for start in range(0, len(points), size)]
