"""What `KnnRanker` and `CellRanker` share: they rank a query by a model of the judged queries nearest to it."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32, Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.kin import Describer
from kinrank.kin.blocks import Spec
from kinrank.kin.indexes import NeighborIndex
from kinrank.kin.indexes.base import KERNELS, Neighborhoods
from kinrank.learn import make_learner
from kinrank.learn._prepare import Missing, Preparer, Scale
from kinrank.learn.base import Learner
from kinrank.rankers._local.explanation import Explanation, named
from kinrank.rankers._local.model import Prior, check_local_settings
from kinrank.rankers._local.neighbor_model import LocalPrediction, NeighborModel, Sources
from kinrank.rankers.base import LinearWeights, Prediction, Ranker, WeightedRanker, exact_weights
from kinrank.rankers.capabilities import Capabilities, capabilities_of
from kinrank.rankers.intake import QueryArrays, takes_arrays
from kinrank.registry import check_choice


class NeighborRanker(WeightedRanker, Ranker):
    """Base of rankers that find the judged queries nearest to a query and learn from them.

    A subclass fits `model_`, which holds everything learned.

    Attributes
    ----------
    model_ : NeighborModel
        The judged queries, or cells of them: description, index, training set and global model.
    n_neighbors_ : int
        The number of neighbors chosen in `fit`; used if `n_neighbors` is ``"auto"``.
    """

    _capabilities: ClassVar[Capabilities] = Capabilities(
        explains=True, weights=True, novelty=True, vectors=True, missing=True
    )

    n_neighbors: int | Literal["auto"]
    radius: float | None
    learner: str | Learner
    describe: Spec | Describer
    reference: str | int | None
    index: str | NeighborIndex
    neighbor_weights: str
    prior: Prior
    prior_strength: float
    scale: Scale
    missing: Missing

    model_: NeighborModel
    n_neighbors_: int

    @property
    def capabilities(self) -> Capabilities:
        """What this ranker can do with its current settings."""
        return replace(self._capabilities, weights=make_learner(self.learner).linear)

    @property
    def k(self) -> int:
        """How many judged queries a local model learns from: as set, or as chosen in `fit`."""
        return self.n_neighbors_ if self.n_neighbors == "auto" else int(self.n_neighbors)

    @property
    def learns_online(self) -> bool:
        """Whether the model of a query is learned when the query arrives."""
        return True

    @property
    def learner_(self) -> Learner:
        """The learner of the models, not fitted."""
        return self.model_.learner

    @property
    def preparer_(self) -> Preparer:
        """How features are prepared for a linear learner."""
        if self.model_.preparer is None:
            raise AttributeError(f"{self.learner!r} reads features as they are, and nothing prepares them")
        return self.model_.preparer

    @property
    def global_(self) -> Learner:
        """The model of all judged queries."""
        return self.model_.global_model

    @property
    def qid_(self) -> NDArray[Any]:
        """The judged queries in the order of positions; for a cell, the one nearest to its center."""
        return self.model_.judged.qid

    @property
    def n_judged_(self) -> int:
        """The number of ids in `qid_`."""
        return len(self.model_.judged)

    def has_judged(self, qid: ArrayLike) -> NDArray[np.bool_]:
        """Return which of these ids are in `qid_`."""
        return self.model_.judged.find(qid) >= 0

    def _check_settings(self) -> None:
        """Raise on settings that make no sense, before anything learned earlier is touched."""
        check_local_settings(self)
        if self.n_neighbors != "auto":
            whole = isinstance(self.n_neighbors, Integral) and not isinstance(self.n_neighbors, bool)
            if not whole or int(self.n_neighbors) < 1:
                raise ParameterError(f"n_neighbors must be a whole number from 1, got {self.n_neighbors!r}")
        if self.radius is not None and not (isinstance(self.radius, Real) and self.radius > 0):
            raise ParameterError(f"radius must be a positive number, got {self.radius!r}")
        check_choice("neighbor_weights", self.neighbor_weights, KERNELS)

    def encoded(self, queries: QuerySet) -> QuerySet:
        """Return the queries with the vectors that describe them, if the ranker encodes texts."""
        return queries

    def points(self, queries: QuerySet) -> Float32:
        """Return each query as a point: its description."""
        return self.model_.points(self.encoded(queries))

    def near(self, points: Float32, n_neighbors: int | None = None) -> Neighborhoods:
        """Return the positions near each point: those of the nearest `n_neighbors` queries, or all in the radius."""
        return self.model_.near(points, n_neighbors or self.k, self.radius)

    def _models(self, points: Float32) -> list[Learner]:
        """Return the model of each point."""
        return self.model_.models(points, self)

    def _learned_from(self, points: Float32) -> tuple[Sources, list[Learner]]:
        """Return what each point's model was learned from, and the models."""
        return self.model_.learn(points, self)

    def _predict(self, queries: QuerySet) -> Float64:
        return self.model_.scores(self._models(self.points(queries)), queries)

    def predict_local(self, queries: QuerySet) -> LocalPrediction:
        """Score grouped queries, checked already, by models learned online and by the global one."""
        return self.model_.predict(self.encoded(queries), self)

    def _predict_with_novelty(self, queries: QuerySet) -> Prediction:
        near, models = self.model_.learn(self.points(queries), self)
        return Prediction(self.model_.scores(models, queries), self.model_.novelty(near))

    def _query_weights(self, queries: QuerySet) -> LinearWeights:
        return exact_weights(queries, self.model_.raw_weights(self._models(self.points(queries))), self.missing)

    @takes_arrays
    def explain(self, X: ArrayLike | QuerySet, **arrays: Unpack[QueryArrays]) -> list[Explanation]:
        """Explain each query: its neighbors, its weights next to the global ones, how new it is."""
        queries = self._queries(X, **arrays)
        explained = self.model_.explain(queries, *self._learned_from(self.points(queries)), self)
        return named(explained, self.names_, queries)

    def _kin_ids(self) -> NDArray[Any]:
        return self.qid_

    def _remember(self, queries: QuerySet) -> None:
        """Keep nothing: `qid_` follows the judged queries as they change."""

    def get_state(self) -> State:
        """Return everything learned."""
        return self.model_.get_state()


def neighbor_part(ranker: object) -> NeighborRanker | None:
    """Return the part of a ranker that learns from neighbors: the ranker itself, its local model, or None."""
    part = ranker if isinstance(ranker, NeighborRanker) else getattr(ranker, "local_", None)
    return part if isinstance(part, NeighborRanker) and capabilities_of(ranker).novelty else None
