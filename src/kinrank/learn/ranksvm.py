"""RankSVM: the papers' learner, by Newton's method on pairs that are never made."""

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
from kinrank.learn.pairs import SQUARED, JudgedPairs, PairObjective, smooth
from kinrank.learn.statistics import PairStatistics

# The plain hinge is reached through rounder ones; the last is within 5e-4 of it.
_WIDTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)


class RankSVM(LinearLearner):
    """Linear weights by a hinge on pairs (Joachims 2002; the learner of the KNN paper).

    Minimizes λ/2 |w - w0|² + (1/P) Σ loss(1 - w·(x_i - x_j)) over the pairs with y_i > y_j of one query. It starts
    from the RankRLS solution, which is close, and uses its matrix as preconditioner; a few Newton steps remain.

    Parameters
    ----------
    penalty : float
        λ; 0.01 in the paper.
    loss : {"squared_hinge", "hinge"}
        The hinge is minimized with its corner rounded to within 5e-4.
    balance : {"pairs", "queries"}
        Whether every pair or every query weighs the same.
    tol : float
        Stop when the gradient has this fraction of its norm at the prior.
    max_iter : int
        Newton steps at the most.

    Attributes
    ----------
    coef_ : float64 array of shape (features,)
    n_iter_ : int
        Newton steps taken.
    objective_ : float
        The minimum reached.

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
        """Learn; `start` replaces the RankRLS solution as the place to start from."""
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
        """Learn from some queries of a prepared set: what a model per query calls.

        Parameters
        ----------
        pairs
            All judged queries.
        index
            Which of them to learn from.
        weights
            What one pair of each of those weighs.
        statistics
            Their summed statistics, weighted alike.
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
        # The RankRLS matrix bounds the Hessian of the squared hinge (all pairs active) and has its shape.
        factor = cho_factor(2.0 * statistics.matrix() / total + penalty * np.eye(len(center)), lower=True)

        def precondition(residual: Float64) -> Float64:
            solved: Float64 = cho_solve(factor, residual, check_finite=False)
            return solved

        hinges = [SQUARED] if self.loss == "squared_hinge" else [smooth(width) for width in _WIDTHS]
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
        enough: float,
        precondition: Callable[[Float64], Float64],
        scores: Float64,
    ) -> Float64:
        """Newton's method, each system solved by conjugate gradients as exactly as the step deserves."""
        value, gradient = objective.value_and_gradient(w, scores)
        for _ in range(self.max_iter):
            norm = float(np.linalg.norm(gradient))
            if norm <= enough:
                break
            step = _conjugate_gradients(objective, scores, gradient, max(0.01 * norm, 0.5 * enough), precondition)
            slope = float(gradient @ step)
            length = 1.0
            while length > 1e-10:
                trial = w + length * step
                trial_value, trial_gradient = objective.value_and_gradient(trial, scores)
                if trial_value <= value + 1e-4 * length * slope:
                    break
                length *= 0.5
            else:
                # No descent is left at this precision: the scores of the last accepted point stand.
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
    enough: float,
    precondition: Callable[[Float64], Float64],
) -> Float64:
    """The Newton step: Hessian · step = -gradient, until the residual's norm is `enough`."""
    step = np.zeros_like(gradient)
    residual = -gradient
    z = precondition(residual)
    direction = z
    rz = float(residual @ z)
    for _ in range(2 * len(gradient)):
        bent = objective.hessian_product(scores, direction)
        alpha = rz / float(direction @ bent)
        step += alpha * direction
        residual = residual - alpha * bent
        if np.linalg.norm(residual) <= enough:
            break
        z = precondition(residual)
        rz, previous = float(residual @ z), rz
        direction = z + (rz / previous) * direction
    return step
