"""The contract of a learner."""

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
    """Learns to score candidates from judged queries.

    A learner sees features as they are: scaling and missing values are the ranker's business
    (`kinrank.learn.prepare`).
    """

    linear: ClassVar[bool] = False
    """Whether the model is one weight per feature, kept in ``coef_``."""

    allow_nan: ClassVar[bool] = False
    """Whether NaN may stand in the features."""

    @abstractmethod
    def fit(self, queries: QuerySet, *, query_weight: ArrayLike | None = None) -> Self:
        """Learn from judged queries, each counted `query_weight` times (once where not given)."""

    @abstractmethod
    def predict(self, X: NDArray[Any]) -> Float64:
        """Score rows; higher is better. Scores of different queries need not compare."""

    @abstractmethod
    def get_state(self) -> State:
        """The fitted model as plain arrays."""

    @abstractmethod
    def set_state(self, state: State) -> Self:
        """Take over a fitted model from `get_state`."""


class LinearLearner(Learner):
    """A learner whose model is one weight per feature."""

    linear: ClassVar[bool] = True
    coef_: Float64

    @abstractmethod
    def fit(self, queries: QuerySet, *, query_weight: ArrayLike | None = None, prior: ArrayLike | None = None) -> Self:
        """Learn weights that are pulled to `prior` (zeros where not given) by the penalty."""

    def with_weights(self, weights: Float64) -> Self:
        """A learner of the same settings, fitted to given weights; made for every query, so quicker than a copy."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__, coef_=weights)
        return twin

    def predict(self, X: NDArray[Any]) -> Float64:
        """``X @ coef_``."""
        scores: Float64 = X @ self.coef_
        return scores

    def get_state(self) -> State:
        """The weights."""
        return {"coef": self.coef_}

    def set_state(self, state: State) -> Self:
        """Take the weights over."""
        self.coef_ = np.asarray(state["coef"], dtype=np.float64)
        return self


def check_penalty(penalty: float) -> float:
    """The penalty λ, which must be positive: it is what makes the solution unique."""
    if not penalty > 0 or not np.isfinite(penalty):
        raise ParameterError(f"penalty must be a positive number, got {penalty!r}; 0.01 is the papers' value")
    return float(penalty)


def pair_weights(pairs: NDArray[Any], balance: Balance, query_weight: ArrayLike | None) -> Float64:
    """What one pair of each query weighs.

    Parameters
    ----------
    pairs
        Number of pairs of each query.
    balance
        ``"pairs"``: every pair weighs the same, so long lists count more. ``"queries"``: every query weighs the
        same, each of its p pairs 1/p.
    query_weight
        A further factor for each query.
    """
    if balance not in ("pairs", "queries"):
        raise ParameterError(f"balance must be 'pairs' or 'queries', got {balance!r}")
    weights = np.ones(len(pairs)) if balance == "pairs" else 1.0 / np.maximum(pairs, 1)
    return weights if query_weight is None else weights * check_query_weight(query_weight, len(pairs))


def check_query_weight(query_weight: ArrayLike, n_queries: int) -> Float64:
    """One finite weight per query, none negative."""
    factor = np.asarray(query_weight, dtype=np.float64)
    if factor.shape != (n_queries,):
        raise DataError(f"query_weight must have one value per query ({n_queries}), got shape {factor.shape}")
    if not np.all(np.isfinite(factor)) or np.any(factor < 0):
        raise DataError("query_weight must be finite and not negative")
    return factor


def check_prior(prior: ArrayLike | None, n_features: int) -> Float64:
    """The weights w0 that a penalty pulls to."""
    if prior is None:
        return np.zeros(n_features)
    center = np.array(prior, dtype=np.float64)
    if center.shape != (n_features,):
        raise DataError(f"prior must have one weight per feature ({n_features}), got shape {center.shape}")
    return center
