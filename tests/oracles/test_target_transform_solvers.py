"""Step (b) of aTVT against SciPy's bounded least squares for p = 2 and Clarabel for p = 1."""

from __future__ import annotations

from itertools import pairwise

import clarabel
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import lsq_linear

from kinrank.papers.atvt import TargetTransform


def generated(seed: int, n_queries: int = 60) -> tuple[NDArray, NDArray, NDArray]:
    """Return queries whose scores agree with the grades, are unrelated to them, or contradict them."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(2, 30, n_queries))])
    query = np.repeat(np.arange(n_queries), np.diff(offsets))
    y = rng.integers(0, 4, len(query)).astype(float)
    slope, level = rng.uniform(-0.5, 2.0, n_queries), rng.uniform(-1.0, 1.0, n_queries)
    return slope[query] * y + level[query] + 0.5 * rng.standard_normal(len(query)), y, offsets


@pytest.mark.parametrize("penalties", [(0.0, 0.0), (0.1, 2.0), (10.0, 1.0), (1.0, 100.0)])
def test_squared_penalty_equals_bounded_least_squares(penalties: tuple[float, float]) -> None:
    scores, grades, offsets = generated(0)
    transform = TargetTransform(p=2, alpha_penalty=penalties[0], beta_penalty=penalties[1])
    alpha, beta = transform.solve(scores, grades, offsets)
    for query, (start, stop) in enumerate(pairwise(offsets)):
        h, y = scores[start:stop], grades[start:stop]
        rows = np.vstack([np.column_stack([h, np.ones_like(h)]), np.diag(np.sqrt(penalties))])
        wanted = np.concatenate([y, [np.sqrt(penalties[0]), 0.0]])
        bounds = ([transform.min_alpha, -np.inf], [np.inf, np.inf])
        expected = lsq_linear(rows, wanted, bounds=bounds, method="bvls", tol=1e-14).x
        np.testing.assert_allclose([alpha[query], beta[query]], expected, atol=1e-8)


@pytest.mark.parametrize("penalties", [(0.1, 0.1), (0.5, 3.0), (5.0, 0.5), (20.0, 20.0), (1.0, 200.0)])
def test_absolute_penalty_equals_the_quadratic_program(penalties: tuple[float, float]) -> None:
    # Split into positive and negative parts, as in the paper (section 3.2.2).
    scores, grades, offsets = generated(1)
    transform = TargetTransform(p=1, alpha_penalty=penalties[0], beta_penalty=penalties[1])
    alpha, beta = transform.solve(scores, grades, offsets)
    price = np.repeat(penalties, 2)
    for query, (start, stop) in enumerate(pairwise(offsets)):
        h, y = scores[start:stop], grades[start:stop]
        rows = np.column_stack([h, -h, np.ones_like(h), -np.ones_like(h)])

        def program(x: NDArray, rows: NDArray = rows, residual: NDArray = y - h) -> float:
            gap = residual - rows @ x
            return float(gap @ gap + price @ x)

        x = solve_with_clarabel(2.0 * rows.T @ rows, price - 2.0 * rows.T @ (y - h), upper=1.0 - transform.min_alpha)
        slope = alpha[query] - 1.0
        ours = program(np.array([max(slope, 0.0), max(-slope, 0.0), max(beta[query], 0.0), max(-beta[query], 0.0)]))
        assert ours == pytest.approx(program(x), rel=1e-7)
        np.testing.assert_allclose([slope, beta[query]], [x[0] - x[1], x[2] - x[3]], atol=1e-3)


def solve_with_clarabel(P: NDArray, q: NDArray, upper: float) -> NDArray:
    """Minimize ½ x'Px + q'x over x ≥ 0 with x_1 ≤ upper."""
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.tol_gap_abs = options.tol_gap_rel = options.tol_feas = 1e-12
    A = np.vstack([-np.eye(4), [0.0, 1.0, 0.0, 0.0]])
    b = np.array([0.0, 0.0, 0.0, 0.0, upper])
    cones = [clarabel.NonnegativeConeT(5)]
    solver = clarabel.DefaultSolver(sparse.csc_matrix(np.triu(P)), q, sparse.csc_matrix(A), b, cones, options)
    return np.array(solver.solve().x)
