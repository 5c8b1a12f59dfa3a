"""Method of multipliers with Newton steps: few variables, many hinges. Used by `kinrank.learn.hinge_qp`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

_FIRST_CURVATURE = 0.9  # in units of C: the first smoothed corners are a bit wider than 1, the loss at w = 0
_GROWTH = 10.0
_MAX_ROUNDS = 12
_MAX_STEPS = 100
_ROUNDING = 1e-14  # gradients below this, relative to the forces they are summed from, are noise


class SmoothedProblem(NamedTuple):
    """½ w'Qw - linear·w plus smoothed hinges and smoothed bounds w ≥ 0.

    With a multiplier α, a hinge becomes its Moreau envelope: 0, then a parabola of curvature ρ, then a line of slope
    C. With a multiplier η, the bound w ≥ 0 becomes a parabola of curvature σ. Their slopes at the minimum are the next
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
    Q: Any,
    linear: Any,
    constant: float,
    B: Any,
    C: float,
    tolerance: float,
    gap_tolerance: float,
    w: Any,
    alpha: Any,
    eta: Any,
) -> tuple[float, int]:
    """Minimize ½ w'Qw - linear·w + constant + C Σ max(0, 1 - b·w) over w ≥ 0, in place.

    Each round minimizes a smoothed problem and takes its slopes as the new multipliers. The smoothing shrinks until
    the optimality conditions hold to `tolerance`, in units of a margin. Rounds then go on until the duality gap is
    at most `gap_tolerance` times the objective: a margin missed by 1e-10 in each of many hinges can still cost more
    than a small objective allows.

    Returns
    -------
    float
        The residual of the optimality conditions, in units of a margin.
    int
        Newton steps taken.
    """
    size = np.sqrt(np.sum(B * B) / max(len(B), 1)) if np.any(B) else 1.0
    rho = _FIRST_CURVATURE * C
    residual, n_steps = np.inf, 0
    margins = np.empty(len(B))
    feasible = np.empty(len(w))
    for _ in range(_MAX_ROUNDS):
        # σ multiplies w and ρ multiplies a margin, which is |b| times as large.
        problem = SmoothedProblem(Q, linear, B, C, alpha.copy(), eta.copy(), rho, rho * size * size)
        multiply(B, w, margins)
        for _ in range(_MAX_STEPS):
            gradient = _gradient(problem, w, margins, alpha, eta)
            forces = size * (rho + alpha.sum()) + np.abs(linear).max()
            if np.abs(gradient).max() <= _ROUNDING * forces:
                break
            n_steps += 1
            if not _newton_step(problem, w, margins, alpha, eta, gradient):
                break
        residual = _largest_difference(alpha, problem.alpha) / rho
        residual = max(residual, size * _largest_difference(eta, problem.eta) / problem.sigma)
        if residual > tolerance:
            rho *= _GROWTH
            continue
        project(w, eta, feasible)
        multiply(B, feasible, margins)
        value, gap = _value_and_gap(problem, constant, feasible, margins, alpha)
        # Margins are about 1, so each hinge contributes rounding of about C times the machine epsilon.
        if gap <= max(gap_tolerance * value, 4e-16 * C * len(B)):
            break
    return residual, n_steps


@numba.njit(cache=True, nogil=True)
def _value_and_gap(problem: SmoothedProblem, constant: float, w: Any, margins: Any, alpha: Any) -> tuple[float, float]:
    """Return the objective at w ≥ 0 and how far it can be above the minimum, by complementary slackness."""
    value = constant + 0.5 * np.dot(w, np.dot(problem.Q, w)) - np.dot(problem.linear, w)
    gap = 0.0
    for i in range(len(margins)):
        loss = 1.0 - margins[i]
        value += problem.C * max(loss, 0.0)
        gap += problem.C * max(loss, 0.0) - alpha[i] * loss
    return value, gap


@numba.njit(cache=True, nogil=True)
def project(w: Any, eta: Any, out: Any) -> None:
    """Set negative variables, and those whose bound is active (η > 0), to 0."""
    for j in range(len(w)):
        out[j] = 0.0 if eta[j] > 0.0 else max(w[j], 0.0)


@numba.njit(cache=True, nogil=True)
def _gradient(problem: SmoothedProblem, w: Any, margins: Any, slopes: Any, bound_slopes: Any) -> Any:
    """Return the gradient at w; fill the slopes of the hinges and of the bounds."""
    n, m = problem.B.shape
    gradient = np.dot(problem.Q, w) - problem.linear
    for i in range(n):
        slopes[i] = min(max(problem.alpha[i] + problem.rho * (1.0 - margins[i]), 0.0), problem.C)
        if slopes[i] > 0.0:
            for j in range(m):
                gradient[j] -= slopes[i] * problem.B[i, j]
    for j in range(m):
        bound_slopes[j] = max(problem.eta[j] - problem.sigma * w[j], 0.0)
        gradient[j] -= bound_slopes[j]
    return gradient


@numba.njit(cache=True, nogil=True)
def _newton_step(problem: SmoothedProblem, w: Any, margins: Any, slopes: Any, bound_slopes: Any, gradient: Any) -> bool:
    """Move w and its margins by one Newton step; return whether they moved."""
    n, m = problem.B.shape
    hessian = problem.Q.copy()
    for i in range(n):
        if 0.0 < slopes[i] < problem.C:
            for j in range(m):
                scaled = problem.rho * problem.B[i, j]
                for k in range(j + 1):
                    hessian[j, k] += scaled * problem.B[i, k]
    for j in range(m):
        if bound_slopes[j] > 0.0:
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
def _step_length(
    problem: SmoothedProblem, w: Any, margins: Any, direction: Any, along: Any, slope_at_0: float
) -> float:
    """Return a step of at most 1 at which the slope, which only rises, is nearly 0 from below.

    The zero is bracketed and found by the Illinois method: secants, halving the slope of an end that does not move.
    """
    constant = np.dot(direction, np.dot(problem.Q, w) - problem.linear)
    curvature = np.dot(direction, np.dot(problem.Q, direction))
    low, high = 0.0, 1.0
    slope_low = slope_at_0
    slope_high = constant + curvature + _slope(problem, w, margins, direction, along, high)
    if slope_high <= -1e-9 * slope_at_0:
        return high
    last_moved = 0
    for _ in range(60):
        middle = low + (high - low) * slope_low / (slope_low - slope_high)
        slope = constant + middle * curvature + _slope(problem, w, margins, direction, along, middle)
        if slope > 0.0:
            high, slope_high = middle, slope
            slope_low *= 0.5 if last_moved < 0 else 1.0
            last_moved = -1
        else:
            low, slope_low = middle, slope
            if slope >= 0.05 * slope_at_0:
                break
            slope_high *= 0.5 if last_moved > 0 else 1.0
            last_moved = 1
    return low


@numba.njit(cache=True, nogil=True)
def _slope(problem: SmoothedProblem, w: Any, margins: Any, direction: Any, along: Any, t: float) -> float:
    """Return what hinges and bounds add to the slope along the direction, at w + t direction."""
    total = 0.0
    for i in range(len(margins)):
        loss = 1.0 - margins[i] - t * along[i]
        total -= min(max(problem.alpha[i] + problem.rho * loss, 0.0), problem.C) * along[i]
    for j in range(len(w)):
        total -= max(problem.eta[j] - problem.sigma * (w[j] + t * direction[j]), 0.0) * direction[j]
    return total


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def multiply(B: Any, x: Any, out: Any) -> None:
    """Compute B x; the order of each sum is left to the compiler, so that it can vectorize."""
    for i in range(B.shape[0]):
        total = 0.0
        for j in range(B.shape[1]):
            total += B[i, j] * x[j]
        out[i] = total


@numba.njit(cache=True, nogil=True)
def _solve_lower(A: Any, rhs: Any) -> Any:
    """Solve A x = rhs by Cholesky; A is positive definite, given by its lower triangle, which is overwritten."""
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
def _largest_difference(a: Any, b: Any) -> float:
    """Return the largest absolute difference, 0 for empty arrays."""
    largest = 0.0
    for i in range(len(a)):
        largest = max(largest, abs(a[i] - b[i]))
    return largest
