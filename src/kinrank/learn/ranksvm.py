"""RankSVM: a pairwise hinge loss, minimized by Newton's method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.learn.base import Balance, LinearLearner, check_penalty, check_prior, pair_weights
from kinrank.learn.pairs import SQUARED, JudgedPairs, PairObjective, smoothed_hinge
from kinrank.learn.statistics import PairStatistics

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
            objective = PairObjective(pairs, queries, weights / total, penalty, center, hinge)
            scores = objective.empty_scores()
            scale = float(np.linalg.norm(objective.value_and_gradient(center, scores)[1]))
            w = self._newton(objective, w, self.tol * scale, precondition, scores)
        self.coef_ = w
        return self

    def _newton(
        self,
        objective: PairObjective,
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
    objective: PairObjective,
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
