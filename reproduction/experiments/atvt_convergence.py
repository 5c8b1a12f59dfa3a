"""Zha et al., Theorem 2: with kernel ridge, the alternation approaches a stationary point of the objective.

The theorem: every limit point of (c, α, β) is a stationary point of L(c, α, β), for p = 2, because both steps have
unique minima. After step (a) the gradient in c is 0, so the gradient in α and β tells how far the point is from
stationary. Where α is at its bound, only a gradient that points inside counts. Measured on generated judges
(`reproduction.experiments.map_atvt`) and on a fold of MQ2008, with λ_α = 10 and λ_β = 1, next to boosted trees, for
which nothing is proved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.papers.atvt import ATVTRanker, BoostedTrees, KernelRidge, Regressor
from reproduction.data_folder import DataFolder, letor_files
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.experiments.atvt import OURS, TREE
from reproduction.experiments.map_atvt import N_TREES, generate
from reproduction.rows import two_digits

ROUNDS = (1, 3, 10, 30, 100)
LEARNERS: dict[str, Regressor] = {
    "kernel ridge": KernelRidge(n_landmarks=200),
    "boosted trees": BoostedTrees(N_TREES, **TREE),
}
COLLECTION = "MQ2008"


def judges(_: DataFolder) -> TaskResult:
    """Measure generated judges with levels of their own."""
    return measured(generate(1.0, 20, np.random.default_rng(0)))


def letor(data: DataFolder) -> TaskResult:
    """Measure the training queries of a fold."""
    return measured(data.letor_fold(COLLECTION, 1)[0])


def measured(train: QuerySet) -> TaskResult:
    """Return the gradient after some rounds relative to that of plain h, and how often the objective rose."""
    figures = {}
    for name, learner in LEARNERS.items():
        fitted = {rounds: _ranker(learner, rounds).fit(train) for rounds in (0, *ROUNDS)}
        first = gradient(fitted[0], train)
        objective = fitted[ROUNDS[-1]].objective_
        rises = np.diff(objective) > 1e-9 * objective[:-1]
        figures[name] = {
            "gradient": {str(rounds): gradient(fitted[rounds], train) / first for rounds in ROUNDS},
            "objective": {str(rounds): float(fitted[rounds].objective_[-1] / objective[0]) for rounds in ROUNDS},
            "steps": len(rises),
            "steps that raised the objective": int(rises.sum()),
        }
    return TaskResult(figures)


def gradient(ranker: ATVTRanker, train: QuerySet) -> float:
    """Return the norm of the gradient of the objective in α and β."""
    h, y, query = ranker.predict(train), train.grades.astype(np.float64), train.query_of_row
    residual = y - ranker.beta_[query] - ranker.alpha_[query] * h
    alpha = -2.0 * _by_query(h * residual, train) + 2.0 * ranker.alpha_penalty_ * (ranker.alpha_ - 1.0)
    beta = -2.0 * _by_query(residual, train) + 2.0 * ranker.beta_penalty_ * ranker.beta_
    alpha[(ranker.alpha_ <= ranker.min_alpha) & (alpha > 0.0)] = 0.0
    return float(np.sqrt(alpha @ alpha + beta @ beta))


def _by_query(values: Float64, train: QuerySet) -> Float64:
    return np.add.reduceat(values, train.offsets[:-1])


def _ranker(learner: Regressor, rounds: int) -> ATVTRanker:
    return ATVTRanker(learner, alpha_penalty=OURS.alpha, beta_penalty=OURS.beta, n_rounds=rounds, tol=0.0)


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the figures rounded."""
    return {
        data: {
            name: {
                **each,
                "gradient": {rounds: two_digits(value) for rounds, value in each["gradient"].items()},
                "objective": {rounds: round(value, 4) for rounds, value in each["objective"].items()},
            }
            for name, each in result.figures.items()
        }
        for data, result in results.items()
    }


EXPERIMENT = Experiment(
    "atvt-convergence",
    "atvt",
    {
        "generated judges": Task(judges, minutes=0.5),
        COLLECTION: Task(letor, letor_files(COLLECTION), 0.5),
    },
    summary,
)
