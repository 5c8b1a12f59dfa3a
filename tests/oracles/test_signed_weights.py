"""Sign-constrained weights against SciPy's bounded least squares, Clarabel and the optimality conditions."""

from __future__ import annotations

from typing import NamedTuple

import clarabel
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import lsq_linear

from kinrank.arrays import Float64
from kinrank.learn.statistics import PairStatistics


class Problem(NamedTuple):
    """Minimize ½ w'(A/P + λI)w - (b/P + λ w0)'w with the given signs."""

    statistics: PairStatistics
    penalty: float
    prior: Float64
    signs: NDArray[np.int8]

    @property
    def system(self) -> tuple[Float64, Float64]:
        pairs = self.statistics.pairs[0]
        matrix = self.statistics.matrix() / pairs + self.penalty * np.eye(len(self.prior))
        return matrix, self.statistics.moment[0] / pairs + self.penalty * self.prior

    @property
    def solution(self) -> Float64:
        return self.statistics.solve(self.penalty, self.prior, self.signs)[0]


@st.composite
def problems(draw: st.DrawFn, free: bool = True) -> Problem:
    """Draw features of any scale, sometimes with copies, sometimes with fewer pairs than features."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    features, pairs = draw(st.integers(1, 46)), draw(st.integers(1, 60))
    differences = rng.standard_normal((pairs, features)) * 10.0 ** rng.integers(-2, 3, features)
    if draw(st.booleans()):
        differences = differences[:, rng.integers(0, features, features)]
    if draw(st.booleans()):
        differences = np.round(differences)
    gram = (differences.T @ differences)[np.triu_indices(features)]
    statistics = PairStatistics(gram[None], differences.sum(axis=0)[None], np.array([float(pairs)]))
    signs = rng.integers(-1, 2, features) if free else np.ones(features)
    prior = rng.standard_normal(features) * draw(st.sampled_from([0.0, 1.0]))
    return Problem(statistics, 10.0 ** draw(st.integers(-4, 1)), prior, signs.astype(np.int8))


@given(problems())
def test_optimality_conditions_hold(problem: Problem) -> None:
    matrix, right = problem.system
    w = problem.solution
    assert np.all(w * problem.signs >= 0)
    gradient = (matrix @ w - right) / (np.abs(matrix) @ np.abs(w) + np.abs(right) + 1e-300)
    fixed = (w == 0) & (problem.signs != 0)
    assert np.abs(gradient[~fixed]).max(initial=0.0) <= 1e-9
    assert (gradient * problem.signs)[fixed].min(initial=0.0) >= -1e-9


@given(problems(free=False))
def test_solution_is_as_good_as_bounded_least_squares(problem: Problem) -> None:
    matrix, right = problem.system
    unit = np.sqrt(np.diag(matrix))
    root = np.linalg.cholesky(matrix / unit / unit[:, None])
    target = np.linalg.solve(root, right / unit)
    # Not nnls: in SciPy 1.17 its solution sometimes violates the optimality conditions.
    theirs = lsq_linear(root.T, target, bounds=(0.0, np.inf), method="bvls", tol=1e-14, max_iter=1000).x
    residual = np.linalg.norm(root.T @ theirs - target)
    # Copies of features make the minimum flat, so residuals are compared, not weights.
    ours = np.linalg.norm(root.T @ (problem.solution * unit) - target)
    assert ours <= residual + 1e-9 * max(1.0, float(np.linalg.norm(target)))
    assert residual - ours <= 1e-6 * max(1.0, float(np.linalg.norm(target)), float(np.abs(theirs).max()))


@given(problems())
def test_solution_is_as_good_as_clarabel(problem: Problem) -> None:
    matrix, right = problem.system
    unit = np.sqrt(np.diag(matrix))
    scaled, target = matrix / unit / unit[:, None], right / unit
    signs = problem.signs.astype(np.float64)
    bounds = sparse.csc_matrix(np.diag(-signs)[signs != 0])
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.tol_gap_abs = options.tol_gap_rel = options.tol_feas = 1e-11
    cones = [clarabel.NonnegativeConeT(bounds.shape[0])]
    upper = sparse.csc_matrix(np.triu(scaled))
    solver = clarabel.DefaultSolver(upper, -target, bounds, np.zeros(bounds.shape[0]), cones, options)
    theirs = np.array(solver.solve().x)
    theirs[theirs * signs < 0] = 0.0
    ours = problem.solution * unit

    def objective(w: Float64) -> float:
        return float(0.5 * w @ scaled @ w - target @ w)

    assert objective(ours) <= objective(theirs) + 1e-9 * max(1.0, float(np.abs(target) @ np.abs(ours)))
