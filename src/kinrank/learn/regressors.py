"""Weighted least-squares regressors, which fit h in aTVT."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, solve
from sklearn.base import BaseEstimator, clone
from sklearn.metrics.pairwise import rbf_kernel

from kinrank.arrays import Float64, State
from kinrank.errors import ParameterError
from kinrank.learn.base import check_penalty
from kinrank.learn.lambdamart import BoosterMixin
from kinrank.registry import Registry

_ROWS_AT_ONCE = 1 << 13
_RANK_TOLERANCE = 1e-10  # relative to the kernel's largest eigenvalue; below it landmarks are duplicates

REGRESSORS = Registry(
    "regressor",
    {
        "lightgbm": "kinrank.learn.regressors:BoostedTrees",
        "kernel-ridge": "kinrank.learn.regressors:KernelRidge",
    },
)


def make_regressor(regressor: str | Regressor) -> Regressor:
    """Return a new unfitted regressor, from its name or by cloning the one given.

    Examples
    --------
    >>> make_regressor("kernel-ridge")
    KernelRidge()
    """
    if isinstance(regressor, str):
        made: Regressor = REGRESSORS.make(regressor)
        return made
    unfitted: Regressor = clone(regressor)
    return unfitted


class Regressor(BaseEstimator, ABC):
    """Base class of regressors, which minimize Σ w (t - h(x))² + λ_h Ω(h)."""

    allow_nan: ClassVar[bool] = False
    """Whether features may be NaN."""

    @abstractmethod
    def fit(self, X: NDArray[Any], target: Float64, weight: Float64 | None = None) -> Self:
        """Fit to targets t of rows with weights w (default: 1)."""

    @abstractmethod
    def predict(self, X: NDArray[Any]) -> Float64:
        """Return h(x) for each row."""

    @property
    @abstractmethod
    def complexity(self) -> float:
        """λ_h Ω(h) of the fitted h; 0 if the regressor limits h in another way."""

    @abstractmethod
    def get_state(self) -> State:
        """Return the fitted model as plain arrays."""

    @abstractmethod
    def set_state(self, state: State) -> Self:
        """Restore the fitted model from what `get_state` returned."""


class BoostedTrees(BoosterMixin, Regressor):
    """Gradient boosting of regression trees (Friedman 2001) on squared error, trained by LightGBM.

    Needs ``pip install 'kinrank[lightgbm]'``. NaN features are allowed. The number and size of the trees limit h;
    there is no term Ω.

    Parameters
    ----------
    n_trees, n_leaves, learning_rate, min_rows_in_leaf
        LightGBM's ``num_iterations``, ``num_leaves``, ``learning_rate`` and ``min_data_in_leaf``.
    params : dict, optional
        Further LightGBM parameters.
    n_threads : int
        Number of threads; 0 chooses by the size of the data, at most `kinrank.parallel.usable_threads`.
    seed : int
        Random seed; training is deterministic for a given seed.

    Examples
    --------
    >>> X = np.arange(100.0)[:, None]
    >>> h = BoostedTrees(n_trees=50).fit(X, target=np.where(X[:, 0] < 50, 0.0, 1.0))
    >>> h.predict(np.array([[10.0], [90.0]])).round(1).tolist()
    [0.0, 1.0]
    """

    def __init__(
        self,
        n_trees: int = 200,
        n_leaves: int = 15,
        learning_rate: float = 0.05,
        min_rows_in_leaf: int = 20,
        params: dict[str, Any] | None = None,
        n_threads: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(n_trees, n_leaves, learning_rate, min_rows_in_leaf, params, n_threads, seed)

    def fit(self, X: NDArray[Any], target: Float64, weight: Float64 | None = None) -> Self:
        """Train from scratch."""
        return self._boost("regression", X, target, weight=weight)

    @property
    def complexity(self) -> float:
        """Return 0: trees are limited by their number and size."""
        return 0.0


class KernelRidge(Regressor):
    """Kernel ridge regression with the kernel exp(-γ |x - z|²) and h spanned by landmarks.

    With at most `n_landmarks` rows, every row is a landmark, and by the representer theorem (Zha et al. 2006,
    Theorem 1) this is exact kernel ridge regression. With more rows, h is the best function spanned by a random sample
    of them (the subset of regressors, or Nyström, method): time grows with rows · n_landmarks², memory with
    n_landmarks². The sample depends only on the rows and the seed, so fits to other targets use the same landmarks.

    Parameters
    ----------
    penalty : float
        λ_h, the factor of |h|² in the kernel's norm.
    gamma : float, optional
        γ; defaults to one over the number of features.
    n_landmarks : int
        Maximum number of landmarks.
    seed : int
        Random seed of the landmark sample.

    Attributes
    ----------
    landmarks_ : float64 array of shape (landmarks, features)
    coef_ : float64 array of shape (landmarks,)
        h(x) = Σ coef_i exp(-γ |x - landmark_i|²).

    Examples
    --------
    >>> X = np.linspace(0.0, 3.0, 30)[:, None]
    >>> h = KernelRidge(penalty=1e-3).fit(X, target=np.sin(X[:, 0]))
    >>> h.predict(np.array([[1.5]])).round(2).tolist()
    [1.0]
    """

    def __init__(self, penalty: float = 1.0, gamma: float | None = None, n_landmarks: int = 500, seed: int = 0) -> None:
        self.penalty = penalty
        self.gamma = gamma
        self.n_landmarks = n_landmarks
        self.seed = seed

    def fit(self, X: NDArray[Any], target: Float64, weight: Float64 | None = None) -> Self:
        """Solve the weighted normal equations, reading rows in blocks."""
        penalty = check_penalty(self.penalty)
        if self.n_landmarks < 1:
            raise ParameterError(f"n_landmarks must be at least 1, got {self.n_landmarks!r}")
        if self.gamma is not None and not self.gamma > 0:
            raise ParameterError(f"gamma must be positive, got {self.gamma!r}")
        rows = np.arange(len(X))
        if len(X) > self.n_landmarks:
            rows = np.sort(np.random.default_rng(self.seed).choice(len(X), self.n_landmarks, replace=False))
        self.landmarks_ = X[rows].astype(np.float64)
        # K = U S U': features K_nm U S^-½ are orthonormal in the kernel's norm, so Ω is |coefficients|².
        size, vectors = eigh(self._kernel(self.landmarks_))
        kept = size > _RANK_TOLERANCE * size[-1]
        basis = vectors[:, kept] / np.sqrt(size[kept])
        gram, moment = penalty * np.eye(basis.shape[1]), np.zeros(basis.shape[1])
        for block in _blocks(len(X)):
            features = self._kernel(X[block]) @ basis
            weighted = features if weight is None else features * weight[block, None]
            gram += weighted.T @ features
            moment += weighted.T @ target[block]
        solution = solve(gram, moment, assume_a="pos")
        self.coef_: Float64 = basis @ solution
        self._complexity = float(penalty * solution @ solution)
        return self

    def predict(self, X: NDArray[Any]) -> Float64:
        """Return kernel values times coefficients."""
        scores = np.empty(len(X))
        for block in _blocks(len(X)):
            scores[block] = self._kernel(X[block]) @ self.coef_
        return scores

    @property
    def complexity(self) -> float:
        """λ_h |h|²."""
        return self._complexity

    def get_state(self) -> State:
        """Return landmarks, coefficients and λ_h |h|²."""
        return {"landmarks": self.landmarks_, "coef": self.coef_, "complexity": np.array(self._complexity)}

    def set_state(self, state: State) -> Self:
        """Restore landmarks, coefficients and λ_h |h|²."""
        self.landmarks_, self.coef_ = state["landmarks"], state["coef"]
        self._complexity = float(state["complexity"])
        return self

    def _kernel(self, X: NDArray[Any]) -> Float64:
        values: Float64 = rbf_kernel(X.astype(np.float64), self.landmarks_, gamma=self.gamma)
        return values


def _blocks(n_rows: int) -> Iterator[slice]:
    return (slice(start, start + _ROWS_AT_ONCE) for start in range(0, n_rows, _ROWS_AT_ONCE))
