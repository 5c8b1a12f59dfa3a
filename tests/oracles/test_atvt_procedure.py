"""The experimental procedure of Zha et al. (section 4.3), written down a second time from the paper's text."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn import kernel_ridge

from kinrank import QuerySet
from kinrank.arrays import Float64
from kinrank.papers.atvt import ATVTRanker, KernelRidge

GAMMA, PENALTY = 0.5, 1.0


def judged() -> tuple[QuerySet, list[Float64], list[Float64]]:
    rng = np.random.default_rng(3)
    features = [rng.standard_normal((int(n), 3)) for n in rng.integers(5, 12, 15)]
    grades = [rng.uniform(0.5, 2.0) * (X @ [1.0, -0.5, 0.2]) + rng.normal() for X in features]
    sizes = [len(X) for X in features]
    return QuerySet.from_arrays(np.vstack(features), np.concatenate(grades), group=sizes), features, grades


def line(h: Float64, y: Float64, p: int, alpha_penalty: float, beta_penalty: float) -> tuple[float, float]:
    """Minimize Σ (y - β - α h)² + λ_β |β|^p + λ_α |α - 1|^p over α and β, in positive and negative parts."""

    def cost(parts: Float64) -> float:
        above, below, up, down = parts
        residual = y - (up - down) - (1.0 + above - below) * h
        if p == 1:
            return float(residual @ residual + beta_penalty * (up + down) + alpha_penalty * (above + below))
        return float(residual @ residual + beta_penalty * (up - down) ** 2 + alpha_penalty * (above - below) ** 2)

    bounds = [(0, None), (0, 0.99), (0, None), (0, None)]
    found = minimize(cost, np.zeros(4), bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000}).x
    return 1.0 + found[0] - found[1], found[2] - found[3]


@pytest.mark.parametrize(
    ("p", "alpha_penalty", "beta_penalty", "rounds"), [(2, 10.0, 1.0, 10), (2, 1.0, 10.0, 3), (1, 2.0, 0.2, 1)]
)
def test_composed_rounds_are_the_procedure_in_the_paper(
    p: Literal[1, 2], alpha_penalty: float, beta_penalty: float, rounds: int
) -> None:
    queries, features, grades = judged()
    X = np.vstack(features)

    def fit(targets: list[Float64]) -> kernel_ridge.KernelRidge:
        return kernel_ridge.KernelRidge(alpha=PENALTY, kernel="rbf", gamma=GAMMA).fit(X, np.concatenate(targets))

    # 1) y⁰ are the grades. 2) a) fit h to yᵏ, b) fit a line from h to yᵏ for each query, c) yᵏ⁺¹ = (yᵏ - β) / α.
    targets, total_alpha, total_beta = list(grades), np.ones(len(grades)), np.zeros(len(grades))
    h = fit(targets)
    for _ in range(rounds):
        for q, (x, y) in enumerate(zip(features, targets, strict=True)):
            alpha, beta = line(h.predict(x), y, p, alpha_penalty, beta_penalty)
            targets[q] = (y - beta) / alpha
            total_beta[q] += total_alpha[q] * beta
            total_alpha[q] *= alpha
        h = fit(targets)
    ranker = ATVTRanker(
        KernelRidge(PENALTY, GAMMA),
        p=p,
        alpha_penalty=alpha_penalty,
        beta_penalty=beta_penalty,
        n_rounds=rounds,
        tol=0.0,
        weighted=False,
        composed=True,
        scale="none",
    ).fit(queries)
    np.testing.assert_allclose(ranker.alpha_, total_alpha, atol=2e-4)
    np.testing.assert_allclose(ranker.beta_, total_beta, atol=2e-4)
    np.testing.assert_allclose(ranker.predict(queries), h.predict(X), atol=2e-4)
    for q, y in enumerate(grades):
        np.testing.assert_allclose(total_alpha[q] * targets[q] + total_beta[q], y, atol=1e-9)
