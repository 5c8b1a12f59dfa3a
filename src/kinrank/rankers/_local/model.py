"""A local model: judged queries as points, from any set of which a model can be learned at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.kin import Describer, make_describer
from kinrank.kin.blocks import Spec
from kinrank.kin.describer import check_reference
from kinrank.kin.indexes.base import Neighborhoods
from kinrank.learn import make_learner
from kinrank.learn._prepare import Missing, Preparer, Scale
from kinrank.learn.base import Learner, LinearLearner
from kinrank.rankers._local.training_sets import Shrinkage, TrainingSet, training_set_class
from kinrank.store import nest, unnest

Prior = Literal["none", "global"]


class LocalSettings(Protocol):
    """The settings of a ranker with local models."""

    learner: str | Learner
    describe: Spec | Describer
    reference: str | int | None
    prior: Prior
    prior_strength: float
    scale: Scale
    missing: Missing


@dataclass(eq=False)
class LocalModel:
    """Describes queries, and learns models of sets of judged queries."""

    learner: Learner
    """The learner, not fitted."""
    preparer: Preparer | None
    """Scales features and fills missing values; None if the learner reads them as they are."""
    describer: Describer
    """Turns queries into points."""
    training_set: TrainingSet
    """The judged queries."""
    global_model: Learner
    """The model of all of them."""

    @classmethod
    def fit(cls, queries: QuerySet, settings: LocalSettings) -> LocalModel:
        """Fit preparation, statistics, the global model and the description."""
        learner = make_learner(settings.learner)
        if settings.prior == "global" and not learner.linear:
            raise ParameterError("prior='global' shrinks weights, and this learner has none: set prior='none'")
        describer = make_describer(settings.describe, reference=settings.reference)
        describer.fit(queries)  # before learning, which takes longer: an unknown reference is an error
        preparer = None if learner.allow_nan else Preparer(settings.scale, settings.missing).fit(queries)
        prepared = queries if preparer is None else preparer.apply(queries)
        training_set: TrainingSet = training_set_class(learner).of(learner, prepared)
        global_model = training_set.learn(np.arange(len(queries)), np.ones(len(queries)))
        return cls(learner, preparer, describer, training_set, global_model)

    def points(self, queries: QuerySet) -> Float32:
        """Return each query as a point: its description."""
        return self.describer.points(queries)

    def prepared(self, queries: QuerySet) -> NDArray[Any]:
        """Return the features as the learner sees them: scaled, missing values filled."""
        return queries.X if self.preparer is None else self.preparer.transform(queries.X, queries)

    def learn_each(self, near: Neighborhoods, settings: LocalSettings, weights: Float64 | None = None) -> list[Learner]:
        """Learn a model of each set of judged queries; the global model if a set has no pair to learn from."""
        factors = np.ones(len(near.members)) if weights is None else weights
        shrinkage = None
        if settings.prior != "none" and isinstance(self.global_model, LinearLearner):
            shrinkage = Shrinkage(settings.prior_strength, self.global_model.coef_)
        models = self.training_set.learn_each(near.members, near.starts, factors, shrinkage)
        has_pairs = near.totals(self.training_set.pairs[near.members] * factors) > 0
        return [model if learned else self.global_model for model, learned in zip(models, has_pairs, strict=True)]

    def scores(self, models: Sequence[Learner], queries: QuerySet, prepared: NDArray[Any] | None = None) -> Float64:
        """Score each query's candidates by its own model."""
        X = self.prepared(queries) if prepared is None else prepared
        scores = np.empty(queries.n_rows)
        for model, (first, last) in zip(models, pairwise(queries.offsets.tolist()), strict=True):
            scores[first:last] = model.predict(X[first:last])
        return scores

    def raw_weights(self, models: Sequence[Learner]) -> Float64:
        """Return the weights of each model for features as they were given, one row per model."""
        if self.preparer is None or not self.learner.linear:
            raise ParameterError(
                f"there are no weights: {type(self.learner).__name__} is not linear; set learner='rankrls'"
            )
        return self.preparer.raw_weights(coefficient_rows(models, len(self.preparer.factor_)))

    def get_state(self) -> State:
        """Return everything learned."""
        parts: dict[str, Mapping[str, NDArray[Any]]] = {
            "describer": self.describer.get_state(),
            "memory": self.training_set.get_state(),
            "global": self.global_model.get_state(),
        }
        if self.preparer is not None:
            parts["preparer"] = self.preparer.get_state()
        return nest(**parts)

    @classmethod
    def from_state(cls, settings: LocalSettings, state: State, training_set: TrainingSet | None = None) -> LocalModel:
        """Restore from the arrays of `get_state`; the training set, too, unless it is given."""
        learner = make_learner(settings.learner)
        preparer = None
        if not learner.allow_nan:
            preparer = Preparer(settings.scale, settings.missing).set_state(unnest(state, "preparer"))
        describer = make_describer(settings.describe, reference=settings.reference)
        return cls(
            learner,
            preparer,
            describer.set_state(unnest(state, "describer")),
            training_set or training_set_class(learner).from_state(learner, unnest(state, "memory")),
            make_learner(settings.learner).set_state(unnest(state, "global")),
        )


def check_local_settings(settings: LocalSettings) -> None:
    """Raise on settings that make no sense, before anything learned earlier is touched."""
    check_prior(settings.prior, settings.prior_strength)
    check_reference(settings.describe, settings.reference)


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


def coefficient_rows(models: Sequence[Learner], n_features: int) -> Float64:
    """Return the weights of linear models, one row per model."""
    return np.array([coefficients(model) for model in models]).reshape(len(models), n_features)
