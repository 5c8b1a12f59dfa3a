"""What rankers with local models share: feature preparation, query description, statistics, the global model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.describe import Describer, make_describer
from kinrank.describe.spec import Spec
from kinrank.errors import ParameterError
from kinrank.learn import make_learner
from kinrank.learn.base import Learner, LinearLearner
from kinrank.learn.prepare import Missing, Preparer, Scale
from kinrank.learn.statistics import PairStatistics
from kinrank.rankers.base import LinearRanker
from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.local.neighborhoods import Neighborhoods
from kinrank.rankers.local.training_sets import Shrinkage, TrainingSet, make_training_set, restore_training_set
from kinrank.store import nest, unnest

Prior = Literal["none", "global"]


class LocalRanker(LinearRanker):
    """Base of rankers that rank a query by a model of some of the judged queries.

    A subclass decides which model ranks a query: it implements `_fit`, beginning with `_fit_global`, and `_models`.
    """

    _capabilities: ClassVar[Capabilities] = Capabilities(weights=True, vectors=True, missing=True)

    learner: str | Learner
    describe: Spec | Describer
    reference: str | int | None
    prior: Prior
    prior_strength: float
    scale: Scale
    missing: Missing

    @property
    def capabilities(self) -> Capabilities:
        """What this ranker can do with its current settings."""
        return replace(self._capabilities, weights=make_learner(self.learner).linear)

    def _check_settings(self) -> None:
        """Raise on settings that make no sense, before anything learned earlier is touched."""
        check_prior(self.prior, self.prior_strength)

    @abstractmethod
    def _models(self, queries: QuerySet, points: Float32) -> list[Learner]:
        """Return the model of each query."""

    def _fit_global(self, queries: QuerySet) -> Float32:
        """Fit preparation, statistics, the global model and the description; return the queries as points."""
        self._check_settings()
        self.learner_ = make_learner(self.learner)
        if self.prior == "global" and not self.learner_.linear:
            raise ParameterError("prior='global' shrinks weights, and this learner has none: set prior='none'")
        prepared = queries
        if not self.learner_.allow_nan:
            self.preparer_ = Preparer(self.scale, self.missing).fit(queries)
            prepared = self.preparer_.apply(queries)
        self.training_set_: TrainingSet = make_training_set(self.learner_, prepared)
        self.global_ = self.training_set_.learn(np.arange(len(queries)), np.ones(len(queries)))
        self.describer_ = make_describer(self.describe, reference=self.reference)
        targets = unit_moments(prepared) if self.describer_.needs_targets else None
        self.describer_.fit(queries, targets=targets)
        return self.points(queries)

    def points(self, queries: QuerySet) -> Float32:
        """Return each query as a point: its description."""
        return self.describer_.points(queries)

    def prepared(self, queries: QuerySet) -> NDArray[Any]:
        """Return the features as the learner sees them: scaled, missing values filled."""
        return queries.X if self.learner_.allow_nan else self.preparer_.transform(queries.X, queries)

    def global_scores(self, queries: QuerySet) -> Float64:
        """Score candidates by the global model."""
        return self.global_.predict(self.prepared(queries))

    def _learn_each(self, near: Neighborhoods, weights: Float64 | None = None) -> list[Learner]:
        """Learn a model of each set of judged queries; the global model if a set has no pair to learn from."""
        each = np.ones(len(near.members)) if weights is None else weights
        models = self.training_set_.learn_each(near.members, near.starts, each, self._shrinkage())
        has_pairs = near.totals(self.training_set_.pairs[near.members] * each) > 0
        return [model if learned else self.global_ for model, learned in zip(models, has_pairs, strict=True)]

    def _shrinkage(self) -> Shrinkage | None:
        if self.prior == "none" or not isinstance(self.global_, LinearLearner):
            return None
        return Shrinkage(self.prior_strength, self.global_.coef_)

    def _predict(self, queries: QuerySet) -> Float64:
        return self._score_by(self._models(queries, self.points(queries)), queries)

    def _score_by(self, models: list[Learner], queries: QuerySet, prepared: NDArray[Any] | None = None) -> Float64:
        """Score each query's candidates by its own model."""
        X = self.prepared(queries) if prepared is None else prepared
        scores = np.empty(queries.n_rows)
        for query, model in enumerate(models):
            rows = slice(queries.offsets[query], queries.offsets[query + 1])
            scores[rows] = model.predict(X[rows])
        return scores

    def _weights(self, queries: QuerySet) -> Float64:
        if not self.learner_.linear:
            raise ParameterError(
                f"there are no weights: {type(self.learner_).__name__} is not linear; set learner='rankrls'"
            )
        return self.preparer_.raw_weights(self.coefficients(queries))

    def coefficients(self, queries: QuerySet) -> Float64:
        """Return the weights of each query's model for prepared features, one row per query."""
        models = self._models(queries, self.points(queries))
        return np.array([coefficients(model) for model in models]).reshape(len(queries), queries.n_features)

    def get_state(self) -> State:
        """Return everything learned."""
        parts: dict[str, Mapping[str, NDArray[Any]]] = {
            "describer": self.describer_.get_state(),
            "memory": self.training_set_.get_state(),
            "global": self.global_.get_state(),
        }
        if not self.learner_.allow_nan:
            parts["preparer"] = self.preparer_.get_state()
        return nest(**parts)

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        self.learner_ = make_learner(self.learner)
        if not self.learner_.allow_nan:
            self.preparer_ = Preparer(self.scale, self.missing).set_state(unnest(state, "preparer"))
        self.describer_ = make_describer(self.describe, reference=self.reference).set_state(unnest(state, "describer"))
        self.training_set_ = self._restore(unnest(state, "memory"))
        self.global_ = make_learner(self.learner).set_state(unnest(state, "global"))
        return self

    def _restore(self, state: State) -> TrainingSet:
        return restore_training_set(self.learner_, state)


def check_prior(prior: str, strength: float) -> None:
    """Raise on settings of the prior that make no sense."""
    if prior not in ("none", "global"):
        raise ParameterError(f"prior must be 'none' or 'global', got {prior!r}")
    if not (isinstance(strength, Real) and strength > 0):
        raise ParameterError(f"prior_strength must be positive, got {strength!r}; or set prior='none'")


def coefficients(model: Learner) -> Float64:
    """Return the weights of a linear model."""
    if not isinstance(model, LinearLearner):
        raise ParameterError(f"{type(model).__name__} has no weights: its model is not linear")
    return model.coef_


def unit_moments(prepared: QuerySet) -> Float64:
    """Return the direction of each query's summed pair differences: what it wants from a linear model."""
    moments = PairStatistics.from_queries(prepared).moment.astype(np.float64)
    norms = np.linalg.norm(moments, axis=1, keepdims=True)
    units: Float64 = np.divide(moments, norms, out=np.zeros_like(moments), where=norms > 0)
    return units
