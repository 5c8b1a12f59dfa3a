"""aTVT: learn one function by regression, with a scale of grades for each query (Zha et al. 2006)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Literal, Self

import numpy as np

from kinrank.arrays import Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.data.split import fold_queries
from kinrank.errors import ParameterError
from kinrank.learn.prepare import Missing, Preparer, Scale
from kinrank.learn.regressors import Regressor, make_regressor
from kinrank.learn.target_transform import TargetTransform
from kinrank.measure import DCG
from kinrank.rankers.base import Ranker
from kinrank.rankers.capabilities import Capabilities
from kinrank.store import nest, unnest

Penalty = float | Literal["cv"]

# Larger penalties first: of equally good settings, the one that changes the targets least is chosen.
_GRID = (np.inf, 100.0, 10.0, 1.0)
_QUALITY = DCG(ties="average") @ 5


class ATVTRanker(Ranker):
    """One regression function for all queries, learned with a line from score to grade for each query.

    Adaptive target value transformation (Zha et al. 2006, Eq. 3) minimizes

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
        λ_α and λ_β. Infinite penalties fix α = 1 and β = 0, which gives the plain learner. ``"cv"`` chooses among 1,
        10, 100 and infinity by DCG@5 on held-out queries.
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
        beta_penalty: Penalty = 10.0,
        n_rounds: int = 3,
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
