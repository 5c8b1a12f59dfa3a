"""RankSVM: a pairwise hinge loss, minimized by Newton's method without making pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve

from kinrank.arrays import Float32, Float64
from kinrank.data.query_rows import offsets_of
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.learn.base import Balance, LinearLearner, check_penalty, check_prior, pair_weights
from kinrank.learn.statistics import PairStatistics

# --- pairwise hinge losses without materialized pairs: loss, gradient and Hessian products over ragged groups ---------
#
# Rows of a query are sorted by grade, best first, so the documents that row i should beat are the rows from
# ``lower[i]`` to the end of its query. The loops over them are branch-free and contiguous. A query's rows stay in the
# first-level cache from scores to gradient, so each function reads the features once.
#
# Both hinges are one family. With violation t = 1 - (s_i - s_j), m = min(max(t, 0), μ) and scale c, the loss is
# c m (2t - m): quadratic up to μ, linear beyond. μ = ∞, c = 1 is the squared hinge; μ → 0, c = 1/(2μ) the plain one.


_FAST = {"reassoc", "contract", "nsz", "arcp"}  # sums may be reordered; NaN and infinity keep their meaning


@dataclass(frozen=True, eq=False)
class JudgedPairs:
    """Judged queries, sorted for the loops over pairs."""

    X: NDArray[np.float32]
    """Rows sorted by grade within each query, best first."""
    offsets: NDArray[np.int64]
    """Query i owns rows ``offsets[i]:offsets[i + 1]``."""
    lower: NDArray[np.int64]
    """For each row, the first row of its query with a lower grade, or the end of the query if there is none."""
    pairs: Float64
    """Number of pairs of each query, or their total weight."""
    weight: Float32
    """The weight of each row. A pair counts the product of the weights of its rows."""

    @classmethod
    def from_queries(cls, queries: QuerySet) -> JudgedPairs:
        """Sort the rows of each query by grade."""
        grades = queries.grades
        order = np.lexsort((-grades, queries.query_of_row))
        weight = queries.row_weights[order]
        lower, pairs = _lower_rows(grades[order], weight, queries.offsets)
        return cls(np.ascontiguousarray(queries.X[order]), queries.offsets, lower, pairs, weight)

    @classmethod
    def concat(cls, parts: Sequence[JudgedPairs]) -> JudgedPairs:
        """Concatenate the queries of several parts."""
        starts = np.cumsum([0, *(len(part.X) for part in parts)])
        return cls(
            np.concatenate([part.X for part in parts]),
            offsets_of(np.concatenate([np.diff(part.offsets) for part in parts])),
            np.concatenate([part.lower + start for part, start in zip(parts, starts[:-1], strict=True)]),
            np.concatenate([part.pairs for part in parts]),
            np.concatenate([part.weight for part in parts]),
        )

    def take(self, queries: NDArray[np.int64]) -> JudgedPairs:
        """Return a subset of the queries."""
        sizes = np.diff(self.offsets)[queries]
        offsets = offsets_of(sizes)
        shift = np.repeat(offsets[:-1] - self.offsets[queries], sizes)
        rows = np.arange(offsets[-1]) - shift
        return JudgedPairs(self.X[rows], offsets, self.lower[rows] + shift, self.pairs[queries], self.weight[rows])


@dataclass(frozen=True)
class _Hinge:
    """A hinge loss: quadratic up to `width`, linear beyond, times `scale`."""

    width: float
    scale: float


SQUARED = _Hinge(width=np.inf, scale=1.0)


def smoothed_hinge(width: float) -> _Hinge:
    """Return the plain hinge with a smoothed corner, within width / 2 of it everywhere."""
    return _Hinge(width=width, scale=0.5 / width)


@dataclass(frozen=True, eq=False)
class _PairObjective:
    """The objective λ/2 |w - w0|² + Σ_q ω_q Σ_pairs loss, for a subset of the queries of a `JudgedPairs`."""

    pairs: JudgedPairs
    """The judged queries."""
    queries: NDArray[np.int64]
    """Positions of the queries used."""
    weights: Float64
    """ω_q, the weight of one pair of each query; they sum to one over all pairs."""
    penalty: float
    prior: Float64
    """λ and w0."""
    hinge: _Hinge
    """The loss."""

    def empty_scores(self) -> Float64:
        """Return an uninitialized array with one entry per row of the chosen queries."""
        return np.empty(int((self.pairs.offsets[self.queries + 1] - self.pairs.offsets[self.queries]).sum()))

    def value_and_gradient(self, w: Float64, scores: Float64) -> tuple[float, Float64]:
        """Return both at w; fill `scores` (from `empty_scores`), which `hessian_product` needs."""
        difference = w - self.prior
        gradient = self.penalty * difference
        loss = _loss_gradient(*self._data(), w, self.hinge.width, self.hinge.scale, scores, gradient)
        return loss + 0.5 * self.penalty * float(difference @ difference), gradient

    def hessian_product(self, scores: Float64, direction: Float64) -> Float64:
        """Return the (generalized) Hessian at the point of `scores`, times a direction."""
        product = self.penalty * direction
        _hessian_product(*self._data(), scores, direction, self.hinge.width, self.hinge.scale, product)
        return product

    def _data(self) -> tuple[NDArray[Any], ...]:
        return self.pairs.X, self.pairs.offsets, self.pairs.lower, self.pairs.weight, self.queries, self.weights


@numba.njit(cache=True, nogil=True)
def _lower_rows(y, weight, offsets):  # type: ignore[no-untyped-def]
    """Return where the lower grades start for each row, and the total weight of the pairs of each query."""
    lower = np.empty(len(y), dtype=np.int64)
    pairs = np.zeros(len(offsets) - 1, dtype=np.float64)
    for q in range(len(offsets) - 1):
        end = offsets[q + 1]
        same, below = 0.0, 0.0
        for i in range(offsets[q + 1] - 1, offsets[q] - 1, -1):
            if i + 1 < offsets[q + 1] and y[i] != y[i + 1]:
                end = i + 1
                below += same
                same = 0.0
            same += weight[i]
            lower[i] = end
            pairs[q] += weight[i] * below
    return lower, pairs


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _products(X, start, stop, w, products):  # type: ignore[no-untyped-def]
    """Compute X[start:stop] @ w."""
    for i in range(start, stop):
        product = 0.0
        for a in range(len(w)):
            product += X[i, a] * w[a]
        products[i - start] = product


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _add_rows(X, start, stop, factors, total):  # type: ignore[no-untyped-def]
    """Add X[start:stop].T @ factors to total."""
    for i in range(start, stop):
        factor = factors[i - start]
        if factor != 0.0:
            for a in range(len(total)):
                total[a] += factor * X[i, a]


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _loss_gradient(X, offsets, lower, weight, queries, weights, w, width, scale, scores, gradient):  # type: ignore[no-untyped-def]
    """Add the gradient of the pair loss to `gradient`, fill `scores`, return the loss."""
    total = 0.0
    done = 0
    for k in range(len(queries)):
        start, stop = offsets[queries[k]], offsets[queries[k] + 1]
        n = stop - start
        own = scores[done : done + n]
        done += n
        _products(X, start, stop, w, own)
        if weights[k] == 0.0 or lower[start] == stop:
            continue
        slope = np.zeros(n)
        loss = 0.0
        for i in range(n):
            base = 1.0 - own[i]
            own_slope = 0.0
            own_loss = 0.0
            own_weight = weight[start + i]
            for j in range(lower[start + i] - start, n):
                violation = base + own[j]
                m = min(max(violation, 0.0), width)
                weighted = weight[start + j] * m
                own_loss += weighted * (2.0 * violation - m)
                own_slope += weighted
                slope[j] += own_weight * weighted
            slope[i] -= own_weight * own_slope
            loss += own_weight * own_loss
        slope *= 2.0 * scale * weights[k]
        _add_rows(X, start, stop, slope, gradient)
        total += scale * weights[k] * loss
    return total


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _hessian_product(X, offsets, lower, weight, queries, weights, scores, direction, width, scale, product):  # type: ignore[no-untyped-def]
    """Add the Hessian of the pair loss times `direction`: the Laplacian of the pairs in the quadratic part."""
    done = 0
    for k in range(len(queries)):
        start, stop = offsets[queries[k]], offsets[queries[k] + 1]
        n = stop - start
        own = scores[done : done + n]
        done += n
        if weights[k] == 0.0 or lower[start] == stop:
            continue
        along = np.empty(n)
        _products(X, start, stop, direction, along)
        curvature = np.zeros(n)
        for i in range(n):
            base = 1.0 - own[i]
            along_i = along[i]
            own_curvature = 0.0
            own_weight = weight[start + i]
            for j in range(lower[start + i] - start, n):
                violation = base + own[j]
                active = 1.0 if 0.0 < violation < width else 0.0
                change = weight[start + j] * active * (along_i - along[j])
                own_curvature += change
                curvature[j] -= own_weight * change
            curvature[i] += own_weight * own_curvature
        curvature *= 2.0 * scale * weights[k]
        _add_rows(X, start, stop, curvature, product)


# --- RankSVM: a pairwise hinge loss, minimized by Newton's method -----------------------------------------------------


# The plain hinge is approached through smoothed ones; the last is within 5e-4 of it.
_WIDTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)


class RankSVM(LinearLearner):
    """Linear learner: hinge loss on pairs (Joachims 2002), as in the KNN paper (Geng et al. 2008).

    Minimizes λ/2 |w - w0|² + (1/P) Σ loss(1 - w·(x_i - x_j)) over the pairs of one query with y_i > y_j. Starts from
    the RankRLS solution, which is close, and uses its matrix as a preconditioner, so a few Newton steps suffice.

    Parameters
    ----------
    penalty : float
        λ; 0.01 in the paper.
    loss : {"squared_hinge", "hinge"}
        ``"hinge"`` is minimized with a smoothed corner, to within 5e-4.
    balance : {"pairs", "queries"}
        Whether every pair or every query has the same weight.
    tol : float
        Stop when the norm of the gradient is this fraction of its norm at the prior.
    max_iter : int
        Maximum number of Newton steps.

    Attributes
    ----------
    coef_ : float64 array of shape (features,)
    n_iter_ : int
        Newton steps taken.
    objective_ : float
        Value of the objective at `coef_`.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0], [1.0], [2.0]], y=[0, 1, 2], group=[3])
    >>> RankSVM().fit(queries).coef_.round(3)
    array([0.993])
    """

    def __init__(
        self,
        penalty: float = 0.01,
        loss: Literal["squared_hinge", "hinge"] = "squared_hinge",
        balance: Balance = "pairs",
        tol: float = 1e-6,
        max_iter: int = 100,
    ) -> None:
        self.penalty = penalty
        self.loss = loss
        self.balance = balance
        self.tol = tol
        self.max_iter = max_iter

    def fit(
        self,
        queries: QuerySet,
        *,
        query_weight: ArrayLike | None = None,
        prior: ArrayLike | None = None,
        start: ArrayLike | None = None,
    ) -> Self:
        """Fit; `start` replaces the RankRLS solution as the starting point."""
        pairs = JudgedPairs.from_queries(queries)
        weights = pair_weights(pairs.pairs, self.balance, query_weight)
        statistics = PairStatistics.from_queries(queries).sum(weights=weights)
        return self.fit_pairs(pairs, np.arange(len(queries)), weights, statistics, prior=prior, start=start)

    def fit_pairs(
        self,
        pairs: JudgedPairs,
        index: ArrayLike,
        weights: Float64,
        statistics: PairStatistics,
        *,
        prior: ArrayLike | None = None,
        start: ArrayLike | None = None,
    ) -> Self:
        """Fit to a subset of prepared queries, as is done for each query's local model.

        Parameters
        ----------
        pairs
            All judged queries.
        index
            Positions of the queries to learn from.
        weights
            Weight of one pair of each of these queries.
        statistics
            Their summed statistics, with the same weights.
        prior, start
            As in `fit`.
        """
        if self.loss not in ("squared_hinge", "hinge"):
            raise ParameterError(f"loss must be 'squared_hinge' or 'hinge', got {self.loss!r}")
        penalty, center = check_penalty(self.penalty), check_prior(prior, pairs.X.shape[1])
        self.n_iter_, self.objective_ = 0, 0.0
        total = float(statistics.pairs[0])
        if total <= 0:
            self.coef_ = center
            return self
        w = statistics.solve(penalty, center)[0] if start is None else check_prior(start, len(center)).copy()
        # The RankRLS matrix is an upper bound of the Hessian of the squared hinge, reached if all pairs are active.
        factor = cho_factor(2.0 * statistics.matrix() / total + penalty * np.eye(len(center)), lower=True)

        def precondition(residual: Float64) -> Float64:
            solved: Float64 = cho_solve(factor, residual, check_finite=False)
            return solved

        hinges = [SQUARED] if self.loss == "squared_hinge" else [smoothed_hinge(width) for width in _WIDTHS]
        queries = np.asarray(index, dtype=np.int64)
        for hinge in hinges:
            objective = _PairObjective(pairs, queries, weights / total, penalty, center, hinge)
            scores = objective.empty_scores()
            scale = float(np.linalg.norm(objective.value_and_gradient(center, scores)[1]))
            w = self._newton(objective, w, self.tol * scale, precondition, scores)
        self.coef_ = w
        return self

    def _newton(
        self,
        objective: _PairObjective,
        w: Float64,
        tolerance: float,
        precondition: Callable[[Float64], Float64],
        scores: Float64,
    ) -> Float64:
        """Minimize by inexact Newton steps, solving each system by conjugate gradients."""
        value, gradient = objective.value_and_gradient(w, scores)
        for _ in range(self.max_iter):
            norm = float(np.linalg.norm(gradient))
            if norm <= tolerance:
                break
            step = _conjugate_gradients(objective, scores, gradient, max(0.01 * norm, 0.5 * tolerance), precondition)
            slope = float(gradient @ step)
            length = 1.0
            while length > 1e-10:
                trial = w + length * step
                trial_value, trial_gradient = objective.value_and_gradient(trial, scores)
                if trial_value <= value + 1e-4 * length * slope:
                    break
                length *= 0.5
            else:
                # No further descent at this precision: restore the scores of the last accepted point.
                objective.value_and_gradient(w, scores)
                break
            w, value, gradient = trial, trial_value, trial_gradient
            self.n_iter_ += 1
        self.objective_ = value
        return w


def _conjugate_gradients(
    objective: _PairObjective,
    scores: Float64,
    gradient: Float64,
    tolerance: float,
    precondition: Callable[[Float64], Float64],
) -> Float64:
    """Solve Hessian · step = -gradient until the norm of the residual is at most `tolerance`."""
    step = np.zeros_like(gradient)
    residual = -gradient
    z = precondition(residual)
    direction = z
    rz = float(residual @ z)
    for _ in range(2 * len(gradient)):
        product = objective.hessian_product(scores, direction)
        alpha = rz / float(direction @ product)
        step += alpha * direction
        residual = residual - alpha * product
        if np.linalg.norm(residual) <= tolerance:
            break
        z = precondition(residual)
        rz, previous = float(residual @ z), rz
        direction = z + (rz / previous) * direction
    return step
