"""The hinge program against general QP solvers, and against its own optimality conditions."""

from __future__ import annotations

import clarabel
import numpy as np
import piqp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from kinrank.arrays import Float64
from kinrank.papers.ensemble import HingeSolution, solve_hinge_qp

Problem = tuple[Float64, Float64, float]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Draw problems of any scale, some with repeated hinges, whole numbers, or rankers that all fail."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, m = draw(st.integers(1, 120)), draw(st.integers(1, 25))
    B = rng.standard_normal((n, m)) + draw(st.sampled_from([-1.0, 0.0, 0.5, 2.0]))
    B *= 10.0 ** draw(st.integers(-1, 2))
    if draw(st.booleans()):
        B = np.round(B)
    if draw(st.booleans()):
        B = B[rng.integers(0, n // 3 + 1, n)]
    root = rng.standard_normal((m, m)) * 10.0 ** draw(st.integers(-2, 1))
    return np.eye(m) + root @ root.T, B, 10.0 ** draw(st.integers(-2, 2))


def objective(w: Float64, problem: Problem) -> float:
    Q, B, C = problem
    return float(0.5 * w @ Q @ w + C * np.maximum(0.0, 1.0 - B @ w).sum())


def dual_objective(solution: HingeSolution, problem: Problem) -> float:
    Q, B, _ = problem
    force = B.T @ solution.alpha + solution.eta
    return float(solution.alpha.sum() - 0.5 * force @ np.linalg.solve(Q, force))


def cone_form(problem: Problem) -> tuple[Float64, Float64, Float64, Float64]:
    """Write Eq. 10 over x = (w, ξ): minimize ½ x'Px + q'x with A x ≤ b."""
    Q, B, C = problem
    n, m = B.shape
    P = np.zeros((m + n, m + n))
    P[:m, :m] = Q
    q = np.concatenate([np.zeros(m), np.full(n, C)])
    A = np.vstack([np.hstack([-B, -np.eye(n)]), -np.eye(m + n)])
    return P, q, A, np.concatenate([-np.ones(n), np.zeros(m + n)])


def solve_with_clarabel(problem: Problem) -> Float64:
    P, q, A, b = cone_form(problem)
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.tol_gap_abs = options.tol_gap_rel = options.tol_feas = 1e-11
    cones = [clarabel.NonnegativeConeT(len(b))]
    upper = sparse.csc_matrix(np.triu(P))
    return np.array(clarabel.DefaultSolver(upper, q, sparse.csc_matrix(A), b, cones, options).solve().x)


def solve_with_piqp(problem: Problem) -> Float64:
    P, q, A, b = cone_form(problem)
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-10
    solver.setup(P, q, np.zeros((0, len(q))), np.zeros(0), A, None, b)
    solver.solve()
    return np.array(solver.result.x)


def assert_optimal(solution: HingeSolution, problem: Problem) -> None:
    """Check the Karush-Kuhn-Tucker conditions to 1e-6; forces are measured in units of the largest one."""
    Q, B, C = problem
    w, alpha, eta = solution.w, solution.alpha, solution.eta
    forces = Q @ w - B.T @ alpha - eta
    unit = max(1.0, float(np.abs(B).T.dot(alpha).max()))
    assert np.abs(forces).max() <= 1e-6 * unit
    assert w.min() >= 0
    assert eta.min() >= 0
    assert alpha.min() >= 0
    assert alpha.max() <= C
    loss = 1.0 - B @ w
    assert np.all(loss[alpha < C] <= 1e-6)
    assert np.all(loss[alpha > 0] >= -1e-6)
    assert np.all(w[eta > 0] * max(1.0, np.abs(B).max()) <= 1e-6)


@given(problems())
def test_optimality_conditions_hold(problem: Problem) -> None:
    solution = solve_hinge_qp(*problem)
    assert solution.residual <= 1e-9
    assert_optimal(solution, problem)


@given(problems())
def test_duality_gap_is_small_relative_to_the_objective(problem: Problem) -> None:
    solution = solve_hinge_qp(*problem)
    dual = dual_objective(solution, problem)
    assert dual == pytest.approx(objective(solution.w, problem), rel=1e-8, abs=1e-10)


def test_small_objective_is_as_exact_as_a_large_one() -> None:
    # The margins were within 1e-10 of 1 and the objective was still 7e-5 above its minimum, ½ / 38².
    problem = (np.eye(2), np.array([[38.0, -179.0], [38.0, -179.0]]), 100.0)
    assert objective(solve_hinge_qp(*problem).w, problem) == pytest.approx(0.5 / 38.0**2, rel=1e-9)


@given(problems())
def test_clarabel_finds_the_same_minimum(problem: Problem) -> None:
    ours, theirs = solve_hinge_qp(*problem).w, solve_with_clarabel(problem)[: len(problem[0])]
    assert objective(ours, problem) == pytest.approx(objective(np.maximum(theirs, 0.0), problem), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("solve", [solve_with_clarabel, solve_with_piqp])
def test_every_solver_finds_the_same_weights(solve) -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        root = rng.standard_normal((25, 25))
        problem = (np.eye(25) + root @ root.T, 5.0 * rng.standard_normal((63, 25)) + 3.0, 1.0)
        np.testing.assert_allclose(solve_hinge_qp(*problem).w, solve(problem)[:25], atol=1e-6)


@given(problems())
def test_starting_point_does_not_matter(problem: Problem) -> None:
    Q, B, C = problem
    start = solve_hinge_qp(np.eye(len(Q)), B, C)
    warm = solve_hinge_qp(Q, B, C, start=start)
    assert_optimal(warm, problem)
    cold = solve_hinge_qp(Q, B, C)
    np.testing.assert_allclose(warm.w, cold.w, atol=1e-8 * max(1.0, float(np.abs(cold.w).max())))


@pytest.mark.parametrize("noise", [0.0, 5.0, 100.0])
def test_ten_thousand_hinges(noise: float) -> None:
    rng = np.random.default_rng(0)
    B = rng.standard_normal((10_000, 25)) * 4.0 + 3.5 + noise * rng.standard_normal((10_000, 25))
    root = rng.standard_normal((25, 25))
    problem = (np.eye(25) + root @ root.T, B, 1.0)
    start = solve_hinge_qp(np.eye(25), B, 1.0)
    assert_optimal(start, (np.eye(25), B, 1.0))
    assert_optimal(solve_hinge_qp(*problem, start=start), problem)
