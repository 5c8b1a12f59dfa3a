"""Few variables, many hinges: the method of multipliers with Newton steps, for `kinrank.learn.hinge_qp`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

_STRETCH = 0.9  # 1 / stretch is the width of the first rounded corners: a bit above 1, the loss of w = 0
_GROWTH = 10.0
_MAX_ROUNDS = 12
_MAX_STEPS = 100


class Rounded(NamedTuple):
    """A problem with rounded corners: ½ w'Qw - linear·w + Σ hinges + Σ walls at w = 0.

    With a multiplier α, a hinge becomes its Moreau envelope: 0, then a parabola of curvature ρ, then a line of slope
    C. With a multiplier η, the wall w ≥ 0 becomes a parabola of curvature σ. Their slopes at the minimum are the next
    multipliers: clip(α + ρ (1 - b·w), 0, C) and max(0, η - σ w).
    """

    Q: Any
    linear: Any
    B: Any
    C: float
    alpha: Any
    eta: Any
    rho: float
    sigma: float


@numba.njit(cache=True, nogil=True)
def method_of_multipliers(
    Q: Any, linear: Any, B: Any, C: float, tolerance: float, w: Any, alpha: Any, eta: Any
) -> tuple[float, int]:
    """Minimize ½ w'Qw - linear·w + C Σ max(0, 1 - b·w) over w ≥ 0, in place; answers the residual and the steps.

    Each round minimizes a problem with rounded corners, takes its slopes as multipliers, and rounds less.
    """
    size = np.sqrt(np.sum(B * B) / max(len(B), 1)) if np.any(B) else 1.0
    rho = _STRETCH * C
    residual, n_steps = np.inf, 0
    margins = np.empty(len(B))
    # What rounding leaves of the sum of all b.
    slack = 1e-13 * (C * size * (len(B) + 1) + np.abs(linear).max())
    for _ in range(_MAX_ROUNDS):
        # σ is to w what ρ is to a margin, which is |b| times as large.
        problem = Rounded(Q, linear, B, C, alpha.copy(), eta.copy(), rho, rho * size * size)
        multiply(B, w, margins)
        for _ in range(_MAX_STEPS):
            gradient = _gradient(problem, w, margins, alpha, eta)
            if np.abs(gradient).max() <= slack:
                break
            n_steps += 1
            if not _newton_step(problem, w, margins, alpha, eta, gradient):
                break
        residual = _largest_gap(alpha, problem.alpha) / rho
        residual = max(residual, size * _largest_gap(eta, problem.eta) / problem.sigma)
        if residual <= tolerance:
            break
        rho *= _GROWTH
    return residual, n_steps


@numba.njit(cache=True, nogil=True)
def _gradient(problem: Rounded, w: Any, margins: Any, slopes: Any, wall_slopes: Any) -> Any:
    """Gradient at w; fills the slopes of the hinges and of the walls."""
    n, m = problem.B.shape
    gradient = np.dot(problem.Q, w) - problem.linear
    for i in range(n):
        slopes[i] = min(max(problem.alpha[i] + problem.rho * (1.0 - margins[i]), 0.0), problem.C)
        if slopes[i] > 0.0:
            for j in range(m):
                gradient[j] -= slopes[i] * problem.B[i, j]
    for j in range(m):
        wall_slopes[j] = max(problem.eta[j] - problem.sigma * w[j], 0.0)
        gradient[j] -= wall_slopes[j]
    return gradient


@numba.njit(cache=True, nogil=True)
def _newton_step(problem: Rounded, w: Any, margins: Any, slopes: Any, wall_slopes: Any, gradient: Any) -> bool:
    """Move w and its margins by one Newton step; whether they moved."""
    n, m = problem.B.shape
    hessian = problem.Q.copy()
    for i in range(n):
        if 0.0 < slopes[i] < problem.C:
            for j in range(m):
                stretched = problem.rho * problem.B[i, j]
                for k in range(j + 1):
                    hessian[j, k] += stretched * problem.B[i, k]
    for j in range(m):
        if wall_slopes[j] > 0.0:
            hessian[j, j] += problem.sigma
    direction = -_solve_lower(hessian, gradient)
    along = np.empty(n)
    multiply(problem.B, direction, along)
    t = _step_length(problem, w, margins, direction, along, np.dot(gradient, direction))
    moved = bool(np.abs(t * direction).max() > 1e-15 * np.abs(w).max())
    for j in range(m):
        w[j] += t * direction[j]
    for i in range(n):
        margins[i] += t * along[i]
    return moved


@numba.njit(cache=True, nogil=True)
def _step_length(problem: Rounded, w: Any, margins: Any, direction: Any, along: Any, slope_at_0: float) -> float:
    """How far to go, at most 1: to where the slope, which only rises, is nearly 0 from below.

    Its zero is bracketed and found by the Illinois method: secants, with the slope of an end that stays halved.
    """
    constant = np.dot(direction, np.dot(problem.Q, w) - problem.linear)
    curvature = np.dot(direction, np.dot(problem.Q, direction))
    low, high = 0.0, 1.0
    slope_low = slope_at_0
    slope_high = constant + curvature + _slope(problem, w, margins, direction, along, high)
    if slope_high <= -1e-9 * slope_at_0:
        return high
    stayed = 0
    for _ in range(60):
        middle = low + (high - low) * slope_low / (slope_low - slope_high)
        slope = constant + middle * curvature + _slope(problem, w, margins, direction, along, middle)
        if slope > 0.0:
            high, slope_high = middle, slope
            slope_low *= 0.5 if stayed < 0 else 1.0
            stayed = -1
        else:
            low, slope_low = middle, slope
            if slope >= 0.05 * slope_at_0:
                break
            slope_high *= 0.5 if stayed > 0 else 1.0
            stayed = 1
    return low


@numba.njit(cache=True, nogil=True)
def _slope(problem: Rounded, w: Any, margins: Any, direction: Any, along: Any, t: float) -> float:
    """What hinges and walls add to the slope along the direction, at w + t direction."""
    total = 0.0
    for i in range(len(margins)):
        loss = 1.0 - margins[i] - t * along[i]
        total -= min(max(problem.alpha[i] + problem.rho * loss, 0.0), problem.C) * along[i]
    for j in range(len(w)):
        total -= max(problem.eta[j] - problem.sigma * (w[j] + t * direction[j]), 0.0) * direction[j]
    return total


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def multiply(B: Any, x: Any, out: Any) -> None:
    """B x, free to reorder each sum so that it runs in vector registers."""
    for i in range(B.shape[0]):
        total = 0.0
        for j in range(B.shape[1]):
            total += B[i, j] * x[j]
        out[i] = total


@numba.njit(cache=True, nogil=True)
def _solve_lower(A: Any, rhs: Any) -> Any:
    """Solve A x = rhs by Cholesky, A positive definite and given by its lower triangle, which is overwritten."""
    m = len(rhs)
    x = rhs.copy()
    for j in range(m):
        for k in range(j):
            A[j, j] -= A[j, k] * A[j, k]
        A[j, j] = np.sqrt(A[j, j])
        for i in range(j + 1, m):
            for k in range(j):
                A[i, j] -= A[i, k] * A[j, k]
            A[i, j] /= A[j, j]
        for k in range(j):
            x[j] -= A[j, k] * x[k]
        x[j] /= A[j, j]
    for j in range(m - 1, -1, -1):
        for k in range(j + 1, m):
            x[j] -= A[k, j] * x[k]
        x[j] /= A[j, j]
    return x


@numba.njit(cache=True, nogil=True)
def _largest_gap(a: Any, b: Any) -> float:
    """The largest absolute difference, 0 of nothing."""
    gap = 0.0
    for i in range(len(a)):
        gap = max(gap, abs(a[i] - b[i]))
    return gap
