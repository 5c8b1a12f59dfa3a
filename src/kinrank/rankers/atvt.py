"""aTVT: grades are read on a scale of each query's own while one function is learned (Zha et al. 2006)."""

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

# Larger penalties first: where two do equally well, the one that moves queries less is taken.
_GRID = (np.inf, 100.0, 10.0, 1.0)
_QUALITY = DCG(ties="average") @ 5


class ATVTRanker(Ranker):
    """One regression function for all queries, learned with a line of its own from score to grade for each of them.

    Adaptive target value transformation (METHODS: section 4; Zha et al. 2006, Eq. 3) minimizes

        Σ_q Σ_j (y_qj - β_q - α_q h(x_qj))² + λ_β |β|_p^p + λ_α |α - 1|_p^p + λ_h Ω(h),   α_q ≥ min_alpha,

    by turns: (a) h by weighted least squares on the targets (y - β_q) / α_q, (b) α and β query by query. α and β
    are there while learning only. They forgive h that one query's grades run higher or wider than another's, which no
    ranking notices; candidates are ranked by h alone.

    Parameters
    ----------
    learner : {"lightgbm", "kernel-ridge"} or Regressor
        What learns h. Kernel ridge makes both steps exact, so the objective never rises (with `weighted`). Boosted
        trees are refitted greedily: there only step (b) is sure not to raise it.
    p : {1, 2}
        The norm of the penalties.
    alpha_penalty, beta_penalty : float or "cv"
        λ_α and λ_β. Infinite penalties forbid any move and give exactly the plain learner. ``"cv"`` chooses among 1,
        10, 100 and infinity by DCG@5 on held-out queries.
    n_rounds : int
        The most times that (b) and (a) follow the first fit of h; 0 is the plain learner.
    tol : float
        Stop where α and β change less: the sum of the root mean squares over queries of both changes.
    weighted : bool
        Whether step (a) weighs each row by α_q², which is what the objective asks for, or not at all, as in the
        paper's experiments.
    min_alpha : float
        The smallest α.
    n_folds, seed : int
        Folds by query, for ``"cv"``.
    scale, missing
        As in `SingleRanker`, for kernel ridge. Trees need neither.

    Attributes
    ----------
    learner_ : Regressor
        The fitted h.
    alpha_, beta_ : float64 arrays of shape (queries,)
        The line of each judged query, queries in order of first appearance.
    objective_ : float64 array
        The objective after the first fit of h and then after every step, (b) and (a) by turns. Ω of trees counts 0.
    n_rounds_ : int
        The rounds that were run.
    alpha_penalty_, beta_penalty_ : float
        The penalties used.
    cv_scores_ : float64 array of shape (settings, 3)
        λ_α, λ_β and the mean DCG@5 of each setting tried; no rows where none was.

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
        min_alpha: float = 0.01,
        n_folds: int = 3,
        seed: int = 0,
        scale: Scale = "standard",
        missing: Missing = "error",
    ) -> None:
        self.learner = learner
        self.p = p
        self.alpha_penalty = alpha_penalty
        self.beta_penalty = beta_penalty
        self.n_rounds = n_rounds
        self.tol = tol
        self.weighted = weighted
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
        end = self._alternate(queries, settings[0], self._first(queries))
        self.learner_, self.alpha_, self.beta_ = end.learner, end.alpha, end.beta
        self.objective_ = np.array(end.objective)

    def _settings(self) -> list[TargetTransform]:
        """All penalties to choose from, the strongest first."""
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
        """Mean DCG@5 of every setting over queries held out in turn."""
        total = np.zeros(len(settings))
        # Folds by position: what queries are called must not matter.
        for train, held_out in fold_queries(queries, self.n_folds, group=np.arange(len(queries)), seed=self.seed):
            first = self._first(train)
            for position, transform in enumerate(settings):
                scores = self._alternate(train, transform, first).learner.predict(held_out.X)
                total[position] += _QUALITY.per_query(scores, held_out.grades, held_out.offsets).sum()
        return total / len(queries)

    def _first(self, queries: QuerySet) -> Regressor:
        """The plain learner: h fitted to the grades as they are."""
        return make_regressor(self.learner).fit(queries.X, queries.grades.astype(np.float64))

    def _alternate(self, queries: QuerySet, transform: TargetTransform, first: Regressor) -> _Alternation:
        """Steps (b) and (a) by turns, from the plain learner on."""
        y, query = queries.grades.astype(np.float64), queries.query_of_row
        now = _Alternation(first, np.ones(len(queries)), np.zeros(len(queries)), [])

        def note(h: Float64) -> None:
            gap = y - now.beta[query] - now.alpha[query] * h
            now.objective.append(float(gap @ gap) + transform.penalty(now.alpha, now.beta) + now.learner.complexity)

        h = first.predict(queries.X)
        note(h)
        for _ in range(self.n_rounds):
            alpha, beta = transform.solve(h, y, queries.offsets)
            change = np.sqrt(np.mean((alpha - now.alpha) ** 2)) + np.sqrt(np.mean((beta - now.beta) ** 2))
            now.alpha, now.beta = alpha, beta
            note(h)
            if change <= self.tol:
                break
            slope = alpha[query]
            target = (y - beta[query]) / slope
            now.learner = make_regressor(self.learner).fit(queries.X, target, slope**2 if self.weighted else None)
            h = now.learner.predict(queries.X)
            note(h)
        return now

    @property
    def n_rounds_(self) -> int:
        """The rounds that were run: h was refitted in each, but for the one that found nothing to change."""
        return len(self.objective_) // 2

    def _predict(self, queries: QuerySet) -> Float64:
        X = queries.X if self.learner_.allow_nan else self.preparer_.transform(queries.X, queries)
        return self.learner_.predict(X)

    def get_state(self) -> State:
        """The learner's state, the preparer's where there is one, and what was found about the judged queries."""
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
        """Take over a fitted ranker."""
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
    """Where the turns stand: h, α, β, and the objective after every step so far."""

    learner: Regressor
    alpha: Float64
    beta: Float64
    objective: list[float]
