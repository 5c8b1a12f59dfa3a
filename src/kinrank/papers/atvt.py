"""aTVT: learn one function by regression, with a scale of grades for each query (Zha et al. 2006)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, solve
from sklearn.base import BaseEstimator, clone
from sklearn.metrics.pairwise import rbf_kernel

from kinrank.arrays import Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.data.split import fold_queries
from kinrank.errors import ParameterError
from kinrank.learn._prepare import Missing, Preparer, Scale
from kinrank.learn.base import check_penalty
from kinrank.learn.lambdamart import BoosterMixin
from kinrank.measure import DCG
from kinrank.rankers.base import Ranker
from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.registry import REGRESSORS
from kinrank.store import nest, unnest

_ROWS_AT_ONCE = 1 << 13
_RANK_TOLERANCE = 1e-10  # relative to the kernel's largest eigenvalue; below it landmarks are duplicates


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

    Needs ``pip install '.[lightgbm]'``. NaN features are allowed. The number and size of the trees limit h;
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


# --- linear map from scores to grades for each query: step (b) of aTVT (Zha et al. 2006, section 3.2) -----------------
#
# With h fixed, each query q has a small convex problem,
#
#     min over α, β of  Σ_j (y_j - β - α h_j)² + λ_β |β|^p + λ_α |α - 1|^p,   α ≥ α_min > 0.
#
# Written in a = α - 1 and the residuals r = y - h, the squares are
#
#     a² C_hh - 2a C_hr + n (r̄ - β - a h̄)²   and a constant,
#
# where C are sums of centered products. The solution needs five numbers per query and no iteration, and all queries are
# solved at once.


@dataclass(frozen=True, kw_only=True)
class TargetTransform:
    """Penalties for the linear map of a query to differ from α = 1, β = 0.

    Examples
    --------
    >>> free = TargetTransform(p=2, alpha_penalty=0.0, beta_penalty=0.0)
    >>> alpha, beta = free.solve(scores=np.array([0.0, 1.0]), grades=np.array([1.0, 3.0]), offsets=np.array([0, 2]))
    >>> alpha.round(6).tolist(), beta.round(6).tolist()
    ([2.0], [1.0])
    """

    p: int = 2
    """Exponent of both penalties, 1 or 2. With 1, many queries keep α = 1, β = 0 exactly."""
    alpha_penalty: float = 10.0
    beta_penalty: float = 1.0
    """λ_α and λ_β, from 0 (no penalty) to infinity (α = 1, or β = 0, for all queries)."""
    min_alpha: float = 0.01
    """The smallest α, above 0: the map must keep the order, and targets are divided by α."""

    def __post_init__(self) -> None:
        if self.p not in (1, 2):
            raise ParameterError(f"p must be 1 or 2, got {self.p!r}")
        for name in ("alpha_penalty", "beta_penalty"):
            if not getattr(self, name) >= 0:
                raise ParameterError(f"{name} must be 0 or more (np.inf to keep it fixed), got {getattr(self, name)!r}")
        if not 0 < self.min_alpha <= 1:
            raise ParameterError(f"min_alpha must be above 0 and at most 1, got {self.min_alpha!r}")

    def solve(
        self, scores: NDArray[Any], grades: NDArray[Any], offsets: NDArray[Any], weights: NDArray[Any] | None = None
    ) -> tuple[Float64, Float64]:
        """Return the best α and β of each query.

        Parameters
        ----------
        scores, grades
            h and y of each row, with the rows of each query adjacent.
        offsets
            Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``.
        weights
            How often each row counts, once by default.

        Returns
        -------
        alpha, beta : float64 arrays of shape (queries,)
            The minimum. If it is not unique, as for a constant h without penalties, the one with α = 1.
        """
        moments = _Moments.from_rows(scores, grades, offsets, weights)
        slope, beta = self._ridge(moments) if self.p == 2 else self._lasso(moments)
        return np.maximum(1.0 + slope, self.min_alpha), beta  # 1 + (α_min - 1) may round below α_min

    def penalty(self, alpha: Float64, beta: Float64) -> float:
        """Return λ_β |β|_p^p + λ_α |α - 1|_p^p over all queries."""
        per_query = _cost(self.beta_penalty, beta, self.p) + _cost(self.alpha_penalty, alpha - 1.0, self.p)
        return float(per_query.sum())

    def _ridge(self, moments: _Moments) -> tuple[Float64, Float64]:
        """Solve for p = 2: the normal equations with β eliminated, which leaves κ h̄² of n h̄²."""
        kept = 1.0 if np.isinf(self.beta_penalty) else self.beta_penalty / (moments.n + self.beta_penalty)
        kappa = moments.n * kept
        curvature = moments.hh + kappa * moments.h**2 + self.alpha_penalty
        slope = _ratio(moments.hr + kappa * moments.h * moments.r, curvature)
        # The profile over a is convex: if its minimum is out of bounds, the bound is best, with β solved for it.
        slope = np.maximum(slope, self.min_alpha - 1.0)
        return slope, (1.0 - kept) * (moments.r - slope * moments.h)

    def _lasso(self, moments: _Moments) -> tuple[Float64, Float64]:
        """Solve for p = 1: the minimum lies on one of a few faces, given by the signs of a and β; take the best.

        The best β for a given a is a soft threshold, so a alone determines the face.
        """
        faces = [np.zeros_like(moments.h), np.full_like(moments.h, self.min_alpha - 1.0)]
        if np.isfinite(self.alpha_penalty):
            for sign in (-0.5, 0.5):
                moment = moments.hr - sign * self.alpha_penalty
                curvature = moments.hh + moments.n * moments.h**2
                faces.append(_ratio(moment + moments.n * moments.h * moments.r, curvature))  # β = 0
                if np.isfinite(self.beta_penalty):
                    shift = 0.5 * self.beta_penalty * moments.h
                    faces += [_ratio(moment + shift, moments.hh), _ratio(moment - shift, moments.hh)]  # β > 0, β < 0
        slope = np.maximum(np.stack(faces), self.min_alpha - 1.0)
        residual = moments.r - slope * moments.h
        beta = np.sign(residual) * np.maximum(np.abs(residual) - 0.5 * self.beta_penalty / moments.n, 0.0)
        value = slope**2 * moments.hh - 2.0 * slope * moments.hr + moments.n * (residual - beta) ** 2
        value += _cost(self.beta_penalty, beta, 1) + _cost(self.alpha_penalty, slope, 1)
        best = np.argmin(value, axis=0)[None]
        return np.take_along_axis(slope, best, axis=0)[0], np.take_along_axis(beta, best, axis=0)[0]


@dataclass(frozen=True)
class _Moments:
    """Sufficient statistics of each query: rows, means of h and r, centered sums of h² and h r."""

    n: Float64
    h: Float64
    r: Float64
    hh: Float64
    hr: Float64

    @classmethod
    def from_rows(
        cls, scores: NDArray[Any], grades: NDArray[Any], offsets: NDArray[Any], weights: NDArray[Any] | None
    ) -> _Moments:
        sizes = np.diff(offsets)
        query = np.repeat(np.arange(len(sizes)), sizes)
        counted = np.ones(len(query)) if weights is None else np.asarray(weights, dtype=np.float64)

        def total(values: Float64) -> Float64:
            return np.bincount(query, weights=counted * values, minlength=len(sizes)).astype(np.float64)

        # A query without weight keeps α = 1 and β = 0: its sums are 0.
        n = np.maximum(total(np.ones(len(query))), np.finfo(np.float64).tiny)
        h = np.asarray(scores, dtype=np.float64)
        r = np.asarray(grades, dtype=np.float64) - h
        mean_h, mean_r = total(h) / n, total(r) / n
        centered = h - mean_h[query]
        hh, hr = total(centered**2), total(centered * (r - mean_r[query]))
        # Rounding gives a constant h a tiny variance; dividing by it would amplify noise.
        constant = hh <= n * (1e-12 * mean_h) ** 2
        return cls(n, mean_h, mean_r, np.where(constant, 0.0, hh), np.where(constant, 0.0, hr))


def _ratio(numerator: Float64, denominator: Float64) -> Float64:
    """Divide, returning 0 if the denominator is not positive."""
    quotient: Float64 = np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
    return quotient


def _cost(penalty: float, values: Float64, p: int) -> Float64:
    """Return λ |v|^p; an infinite λ costs nothing at v = 0."""
    size = np.abs(values) ** p
    cost: Float64 = np.multiply(penalty, size, out=np.zeros_like(size), where=size > 0)
    return cost


# --- aTVT: learn one function by regression, with a scale of grades for each query (Zha et al. 2006) ------------------


Penalty = float | Literal["cv"]

# Larger penalties first: of equally good settings, the one that changes the targets least is chosen.
_GRID = (np.inf, 100.0, 10.0, 1.0)
_QUALITY = DCG(ties="average") @ 5


class ATVTRanker(Ranker):
    """One regression function for all queries, learned with a line from score to grade for each query.

    Adaptive target value transformation (Zha et al. 2006, section 3 and Eq. 3) minimizes

        Σ_q Σ_j (y_qj - β_q - α_q h(x_qj))² + λ_β |β|_p^p + λ_α |α - 1|_p^p + λ_h Ω(h),   α_q ≥ min_alpha,

    alternating between (a) h by weighted least squares on the targets (y - β_q) / α_q, and (b) α and β of each query.
    α and β absorb differences in level and spread of grades between queries, which do not affect any ranking. They are
    used in training only: candidates are ranked by h.

    Parameters
    ----------
    learner : {"lightgbm", "kernel-ridge"} or Regressor
        Learner of h. With kernel ridge both steps are exact, so the objective never increases (if `weighted`). Boosted
        trees are refitted greedily, so only step (b) is guaranteed not to increase it.
    p : {1, 2}
        The norm of the penalties.
    alpha_penalty, beta_penalty : float or "cv"
        λ_α and λ_β; the defaults are the paper's best (Tables 5 to 7). Infinite penalties fix α = 1 and β = 0, which
        gives the plain learner. ``"cv"`` chooses among 1, 10, 100 and infinity by DCG@5 on held-out queries.
    n_rounds : int
        Maximum number of repetitions of (b) and (a) after the first fit of h; 0 is the plain learner.
    tol : float
        Stop when the root mean squares over queries of the changes of α and β sum to at most this.
    weighted : bool
        Whether step (a) weights each row by α_q², as the objective requires, or all rows equally, as in the paper's
        experiments.
    composed : bool
        Whether step (b) fits lines to the targets of the previous round, and composes them, as in the paper's
        experiments. The penalties then hold each step small, not the whole line. With False, step (b) fits the line
        from h to the grades, as the objective requires.
    min_alpha : float
        Lower bound of α, in each round if `composed`.
    n_folds, seed : int
        Number of folds of queries for ``"cv"``, and seed for the fold split.
    scale, missing
        As in `SingleRanker`, for kernel ridge. Trees ignore them.

    Attributes
    ----------
    learner_ : Regressor
        The fitted h.
    alpha_, beta_ : float64 arrays of shape (queries,)
        The line of each judged query, queries in order of first appearance.
    objective_ : float64 array
        The objective after the first fit of h and after each step, (b) and (a) alternating. Ω of trees counts as 0.
    n_rounds_ : int
        Number of rounds run.
    alpha_penalty_, beta_penalty_ : float
        The penalties used.
    cv_scores_ : float64 array of shape (settings, 3)
        λ_α, λ_β and the mean DCG@5 of each setting tried; no rows without ``"cv"``.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [0.0], [1.0], [2.0]])
    >>> ranker = ATVTRanker("kernel-ridge", n_rounds=10).fit(X, y=[0, 1, 2, 2, 3, 4], group=[3, 3])
    >>> bool(ranker.beta_[0] < ranker.beta_[1])
    True
    >>> ranker.predict([[0.0], [2.0]]).argmax().item()
    1
    """

    _capabilities: ClassVar[Capabilities] = Capabilities(missing=True)

    def __init__(
        self,
        learner: str | Regressor = "lightgbm",
        *,
        p: Literal[1, 2] = 2,
        alpha_penalty: Penalty = 10.0,
        beta_penalty: Penalty = 1.0,
        n_rounds: int = 2,
        tol: float = 1e-3,
        weighted: bool = True,
        composed: bool = False,
        min_alpha: float = 0.01,
        n_folds: int = 3,
        seed: int = 0,
        scale: Scale = "standard",
        missing: Missing = "mean",
    ) -> None:
        self.learner = learner
        self.p = p
        self.alpha_penalty = alpha_penalty
        self.beta_penalty = beta_penalty
        self.n_rounds = n_rounds
        self.tol = tol
        self.weighted = weighted
        self.composed = composed
        self.min_alpha = min_alpha
        self.n_folds = n_folds
        self.seed = seed
        self.scale = scale
        self.missing = missing

    @classmethod
    def as_published(cls, p: Literal[1, 2] = 2, **settings: Any) -> Self:
        """Return the procedure of the paper's experiments (section 4.3), with its penalties (section 4.4).

        All rows count alike, and each round fits its lines to the targets of the round before. For p = 2 the penalties
        are those of Tables 5 to 7. The number of rounds is not legible: ten is what Table 7 suggests. For p = 1 there
        is one round, with λ_α = 100 and λ_β = 0.2.

        Examples
        --------
        >>> ATVTRanker.as_published()
        ATVTRanker(composed=True, n_rounds=10, weighted=False)
        >>> ATVTRanker.as_published(p=1)
        ATVTRanker(alpha_penalty=100.0, beta_penalty=0.2, composed=True, n_rounds=1,
                   p=1, weighted=False)
        """
        published: dict[str, Any] = {"alpha_penalty": 10.0, "beta_penalty": 1.0, "n_rounds": 10}
        if p == 1:
            published = {"alpha_penalty": 100.0, "beta_penalty": 0.2, "n_rounds": 1}
        return cls(**published | {"p": p, "composed": True, "weighted": False} | settings)

    def _fit(self, queries: QuerySet) -> None:
        if self.n_rounds < 0:
            raise ParameterError(f"n_rounds must be 0 or more, got {self.n_rounds!r}")
        settings = self._settings()
        if not make_regressor(self.learner).allow_nan:
            self.preparer_ = Preparer(self.scale, self.missing).fit(queries)
            queries = self.preparer_.apply(queries)
        self.cv_scores_ = np.empty((0, 3))
        if len(settings) > 1:
            quality = self._cross_validate(queries, settings)
            self.cv_scores_ = np.array(
                [(each.alpha_penalty, each.beta_penalty, value) for each, value in zip(settings, quality, strict=True)]
            )
            settings = [settings[int(np.argmax(quality))]]
        self.alpha_penalty_, self.beta_penalty_ = settings[0].alpha_penalty, settings[0].beta_penalty
        result = self._alternate(queries, settings[0], self._fit_plain(queries))
        self.learner_, self.alpha_, self.beta_ = result.learner, result.alpha, result.beta
        self.objective_ = np.array(result.objective)

    def _settings(self) -> list[TargetTransform]:
        """Return all settings to choose from, the largest penalties first."""
        choices = []
        for name, value in (("alpha_penalty", self.alpha_penalty), ("beta_penalty", self.beta_penalty)):
            if isinstance(value, str) and value != "cv":
                raise ParameterError(f"{name} must be a number or 'cv', got {value!r}")
            choices.append(_GRID if value == "cv" else (value,))
        return [
            TargetTransform(p=self.p, alpha_penalty=alpha, beta_penalty=beta, min_alpha=self.min_alpha)
            for alpha, beta in product(*choices)
        ]

    def _cross_validate(self, queries: QuerySet, settings: list[TargetTransform]) -> Float64:
        """Return the mean DCG@5 of every setting on held-out queries."""
        total = np.zeros(len(settings))
        # Folds by position, so that query ids do not matter.
        for train, held_out in fold_queries(queries, self.n_folds, group=np.arange(len(queries)), seed=self.seed):
            first = self._fit_plain(train)
            for position, transform in enumerate(settings):
                scores = self._alternate(train, transform, first).learner.predict(held_out.X)
                total[position] += _QUALITY.per_query(scores, held_out.grades, held_out.offsets).sum()
        return total / len(queries)

    def _fit_plain(self, queries: QuerySet) -> Regressor:
        """Fit h to the grades as they are."""
        weights = None if queries.sample_weight is None else queries.sample_weight.astype(np.float64)
        return make_regressor(self.learner).fit(queries.X, queries.grades.astype(np.float64), weights)

    def _alternate(self, queries: QuerySet, transform: TargetTransform, first: Regressor) -> _Alternation:
        """Alternate between steps (b) and (a), starting from the plain learner."""
        y, query = queries.grades.astype(np.float64), queries.query_of_row
        counted = queries.row_weights.astype(np.float64)
        plain = None if queries.sample_weight is None else counted
        current = _Alternation(first, np.ones(len(queries)), np.zeros(len(queries)), [])

        def record_objective(h: Float64) -> None:
            residual = y - current.beta[query] - current.alpha[query] * h
            penalties = transform.penalty(current.alpha, current.beta) + current.learner.complexity
            current.objective.append(float(residual @ (counted * residual)) + penalties)

        h, target = first.predict(queries.X), y
        record_objective(h)
        for _ in range(self.n_rounds):
            if self.composed:
                step, shift = transform.solve(h, target, queries.offsets, counted)
                alpha, beta = current.alpha * step, current.beta + current.alpha * shift
            else:
                alpha, beta = transform.solve(h, y, queries.offsets, counted)
            change = _rms(alpha - current.alpha) + _rms(beta - current.beta)
            current.alpha, current.beta = alpha, beta
            record_objective(h)
            if change <= self.tol:
                break
            slope = alpha[query]
            target = (y - beta[query]) / slope
            weights = slope**2 * counted if self.weighted else plain
            current.learner = make_regressor(self.learner).fit(queries.X, target, weights)
            h = current.learner.predict(queries.X)
            record_objective(h)
        return current

    @property
    def n_rounds_(self) -> int:
        """The number of rounds run. In the last one h is not refitted if α and β did not change."""
        return len(self.objective_) // 2

    def _predict(self, queries: QuerySet) -> Float64:
        X = queries.X if self.learner_.allow_nan else self.preparer_.transform(queries.X, queries)
        return self.learner_.predict(X)

    def get_state(self) -> State:
        """Return everything learned."""
        found = {
            "alpha": self.alpha_,
            "beta": self.beta_,
            "objective": self.objective_,
            "penalties": np.array([self.alpha_penalty_, self.beta_penalty_], dtype=np.float64),
            "cv_scores": self.cv_scores_,
        }
        preparer = {} if self.learner_.allow_nan else self.preparer_.get_state()
        return nest(learner=self.learner_.get_state(), preparer=preparer, found=found)

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        self.learner_ = make_regressor(self.learner).set_state(unnest(state, "learner"))
        if not self.learner_.allow_nan:
            self.preparer_ = Preparer(self.scale, self.missing).set_state(unnest(state, "preparer"))
        found = unnest(state, "found")
        self.alpha_, self.beta_, self.objective_ = found["alpha"], found["beta"], found["objective"]
        self.alpha_penalty_, self.beta_penalty_ = found["penalties"].tolist()
        self.cv_scores_ = found["cv_scores"]
        return self


@dataclass
class _Alternation:
    """The current h, α and β, and the objective after each step so far."""

    learner: Regressor
    alpha: Float64
    beta: Float64
    objective: list[float]


def _rms(values: Float64) -> float:
    return float(np.sqrt(np.mean(values**2)))
