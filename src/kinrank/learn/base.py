"""Base classes of learners."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from kinrank.arrays import Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError

Balance = Literal["pairs", "queries"]


class Learner(BaseEstimator, ABC):
    """Base class of learners, which fit a scoring function to judged queries.

    A learner uses features as given; the ranker scales them and fills missing values (`kinrank.learn._prepare`).
    """

    linear: ClassVar[bool] = False
    """Whether the model is one weight per feature, kept in ``coef_``."""

    allow_nan: ClassVar[bool] = False
    """Whether features may be NaN."""

    def check(self, queries: QuerySet) -> None:
        """Raise `DataError` if `fit` cannot learn from these queries."""

    @abstractmethod
    def fit(self, queries: QuerySet, *, query_weight: ArrayLike | None = None) -> Self:
        """Fit to judged queries, each counted `query_weight` times (default: once).

        Weights of rows are ``queries.sample_weight``.
        """

    @abstractmethod
    def predict(self, X: NDArray[Any]) -> Float64:
        """Return a score for each row; higher is better. Scores of different queries may not be comparable."""

    @abstractmethod
    def get_state(self) -> State:
        """Return the fitted model as plain arrays."""

    @abstractmethod
    def set_state(self, state: State) -> Self:
        """Restore the fitted model from what `get_state` returned."""


class LinearLearner(Learner):
    """Base class of learners whose model is one weight per feature."""

    linear: ClassVar[bool] = True
    coef_: Float64

    @abstractmethod
    def fit(self, queries: QuerySet, *, query_weight: ArrayLike | None = None, prior: ArrayLike | None = None) -> Self:
        """Fit weights; the penalty pulls them towards `prior` (default: zeros)."""

    def with_weights(self, weights: Float64) -> Self:
        """Return a fitted learner with these settings and weights; it is made per query, so `clone` is skipped."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__, coef_=weights)
        return other

    def predict(self, X: NDArray[Any]) -> Float64:
        """Return ``X @ coef_``."""
        scores: Float64 = X @ self.coef_
        return scores

    def get_state(self) -> State:
        """Return the weights."""
        return {"coef": self.coef_}

    def set_state(self, state: State) -> Self:
        """Restore the weights."""
        self.coef_ = np.asarray(state["coef"], dtype=np.float64)
        return self


def check_penalty(penalty: float) -> float:
    """Return the penalty λ as a float; it must be positive, which makes the solution unique."""
    if not penalty > 0 or not np.isfinite(penalty):
        raise ParameterError(f"penalty must be a positive number, got {penalty!r}; 0.01 is the papers' value")
    return float(penalty)


def pair_weights(pairs: NDArray[Any], balance: Balance, query_weight: ArrayLike | None) -> Float64:
    """Return the weight of one pair of each query.

    With ``"queries"``, each query has the same weight, and each of its p pairs 1/p of it.
    """
    if balance not in ("pairs", "queries"):
        raise ParameterError(f"balance must be 'pairs' or 'queries', got {balance!r}")
    weights = np.ones(len(pairs)) if balance == "pairs" else 1.0 / np.maximum(pairs, 1)
    return weights if query_weight is None else weights * check_query_weight(query_weight, len(pairs))


def check_query_weight(query_weight: ArrayLike, n_queries: int) -> Float64:
    """Return the query weights as an array; raise unless there is one per query, finite and not negative."""
    factor = np.asarray(query_weight, dtype=np.float64)
    if factor.shape != (n_queries,):
        raise DataError(f"query_weight must have one value per query ({n_queries}), got shape {factor.shape}")
    if not (factor.min(initial=0.0) >= 0 and factor.max(initial=0.0) < np.inf):  # both are False for NaN
        raise DataError("query_weight must be finite and not negative")
    return factor


def check_prior(prior: ArrayLike | None, n_features: int) -> Float64:
    """Return the prior weights w0 as an array, zeros by default."""
    if prior is None:
        return np.zeros(n_features)
    center = np.array(prior, dtype=np.float64)
    if center.shape != (n_features,):
        raise DataError(f"prior must have one weight per feature ({n_features}), got shape {center.shape}")
    return center
