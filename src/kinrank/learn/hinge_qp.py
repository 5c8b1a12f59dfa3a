"""A small quadratic program with many hinges: the one that the ensemble rankers solve for every query.

Minimise ½ w'Qw + C Σ max(0, 1 - w·b_i) over w ≥ 0, with few variables (rankers) and many hinges (judged queries).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

TOLERANCE = 1e-10
"""By how much the conditions of optimality may be missed, in units of a margin."""

_ROUGH = 1e-3  # while it is still unclear which hinges matter
_BAND = 0.5  # hinges this near their corner are solved for from the start, in units of a margin
_MAX_ROUNDS = 12
_MAX_STEPS = 100
_COLD_STRETCH = 0.5  # C / stretch is the width of a hinge's rounded corner: at 2 it holds all margins of w = 0
_WARM_STRETCH = 10.0
_GROWTH = 10.0


class HingeSolution(NamedTuple):
    """The minimum, and the multipliers that prove it (Eqs. 11 and 12).

    Attributes
    ----------
    w : float64 array of shape (variables,)
        The minimum; no entry is negative.
    alpha : float64 array of shape (hinges,)
        One multiplier per hinge, from 0 (no loss) to C (loss).
    eta : float64 array of shape (variables,)
        One multiplier per variable, above 0 only where w is 0.
    residual : float
        By how much the conditions of optimality are missed, in units of a margin.
    n_steps : int
        Newton steps taken.
    """

    w: Float64
    alpha: Float64
    eta: Float64
    residual: float
    n_steps: int


def solve_hinge_qp(Q: Float64, B: Float64, C: float = 1.0, *, start: HingeSolution | None = None) -> HingeSolution:
    """Minimise ½ w'Qw + C Σ max(0, 1 - w·b_i) over w ≥ 0.

    The method of multipliers, its inner problems solved by Newton steps that move any number of hinges over their
    corner at once, so the number of steps hardly depends on the number of hinges.

    Parameters
    ----------
    Q
        Positive definite, of shape (variables, variables).
    B
        One row per hinge, of shape (hinges, variables).
    C
        What a loss of 1 costs.
    start
        The solution of a problem with the same hinges and another Q.

    Examples
    --------
    >>> solution = solve_hinge_qp(np.eye(2), np.array([[2.0, 0.0], [1.0, -1.0]]), C=0.1)
    >>> solution.w.round(6).tolist(), solution.alpha.round(6).tolist()
    ([0.3, 0.0], [0.1, 0.1])
    """
    n_hinges, n_variables = B.shape
    if start is None:
        w, alpha, eta = np.zeros(n_variables), np.zeros(n_hinges), np.zeros(n_variables)
    else:
        w, alpha, eta = start.w.copy(), start.alpha.copy(), start.eta.copy()
    matrix, rows = np.ascontiguousarray(Q, dtype=np.float64), np.ascontiguousarray(B, dtype=np.float64)
    residual, n_steps = solve_in_place(matrix, rows, float(C), w, alpha, eta)
    return HingeSolution(w, alpha, eta, float(residual), int(n_steps))


@numba.njit(cache=True, nogil=True)
def solve_in_place(Q: Any, B: Any, C: float, w: Any, alpha: Any, eta: Any) -> tuple[float, int]:
    """Improve w, alpha and eta in place until they are the solution; answers the residual and the steps taken.

    Hinges far from their corner stay on their side of it: they are put aside, as nothing or as a linear term, and
    the others are solved for. Those that turn out to have changed sides join them, until there is none.
    """
    n, m = B.shape
    warm = np.any(w > 0.0)
    margins = np.empty(n)
    _multiply(B, w, margins)
    chosen = np.zeros(n, dtype=np.bool_)
    _choose(margins, alpha, C, _BAND, chosen)
    tolerance = _ROUGH
    n_steps = 0
    while True:
        linear = np.zeros(m)
        for i in range(n):
            if not chosen[i] and alpha[i] > 0.0:
                for j in range(m):
                    linear[j] += C * B[i, j]
        own = alpha[chosen]
        residual, steps = _method_of_multipliers(Q, linear, B[chosen], C, tolerance, warm, w, own, eta)
        alpha[chosen] = own
        n_steps += steps
        _multiply(B, w, margins)
        if not _choose(margins, alpha, C, 0.0, chosen):
            if tolerance == TOLERANCE:
                break
            tolerance = TOLERANCE
        warm = True
    np.maximum(w, 0.0, w)
    return residual, n_steps


@numba.njit(cache=True, nogil=True)
def _choose(margins: Any, alpha: Any, C: float, band: float, chosen: Any) -> bool:
    """Choose the hinges within the band around the corner or on the side their multiplier denies; whether any is new."""
    found = False
    for i in range(len(margins)):
        loss = 1.0 - margins[i]
        if not chosen[i] and not (
            (alpha[i] == 0.0 and loss <= TOLERANCE - band) or (alpha[i] == C and loss >= band - TOLERANCE)
        ):
            chosen[i] = True
            found = True
    return found


@numba.njit(cache=True, nogil=True)
def _method_of_multipliers(
    Q: Any, linear: Any, B: Any, C: float, tolerance: float, warm: bool, w: Any, alpha: Any, eta: Any
) -> tuple[float, int]:
    """Minimise ½ w'Qw - linear·w + the hinges of B over w ≥ 0, in place; answers the residual and the steps taken.

    With multipliers (α, η) and a stretch ρ fixed, each hinge becomes its Moreau envelope: 0, then a parabola of
    curvature ρ, then a line of slope C. Minimising that gives the next multipliers, clip(α + ρ (1 - Bw), 0, C) and
    max(0, η - σ w), and ρ grows.
    """
    # σ is to w what ρ is to a margin: a margin is |b| times as large.
    size = np.sqrt(np.sum(B * B) / max(len(B), 1)) if np.any(B) else 1.0
    rho = C * (_WARM_STRETCH if warm else _COLD_STRETCH)
    residual, n_steps = np.inf, 0
    next_alpha, next_eta = np.empty_like(alpha), np.empty_like(eta)
    margins = np.empty(len(B))
    # What rounding leaves of the sum of all b_i.
    slack = 1e-13 * (C * size * (len(B) + 1) + np.abs(linear).max())
    for _ in range(_MAX_ROUNDS):
        sigma = rho * size * size
        _multiply(B, w, margins)
        for _ in range(_MAX_STEPS):
            gradient = _gradient(Q, linear, B, C, rho, sigma, w, margins, alpha, eta, next_alpha, next_eta)
            if np.abs(gradient).max() <= slack:
                break
            n_steps += 1
            if not _newton_step(Q, linear, B, C, rho, sigma, w, margins, alpha, eta, next_alpha, next_eta, gradient):
                break
        residual = max(_largest_gap(alpha, next_alpha) / rho, size * _largest_gap(eta, next_eta) / sigma)
        alpha[:] = next_alpha
        eta[:] = next_eta
        if residual <= tolerance:
            break
        rho *= _GROWTH
    return residual, n_steps


@numba.njit(cache=True, nogil=True)
def _gradient(
    Q: Any,
    linear: Any,
    B: Any,
    C: float,
    rho: float,
    sigma: float,
    w: Any,
    margins: Any,
    alpha: Any,
    eta: Any,
    a: Any,
    e: Any,
) -> Any:
    """Qw - linear - B'a - e, where a and e, filled here, are the multipliers that w implies."""
    n, m = B.shape
    gradient = -linear
    for i in range(n):
        a[i] = min(max(alpha[i] + rho * (1.0 - margins[i]), 0.0), C)
        if a[i] > 0.0:
            for j in range(m):
                gradient[j] -= a[i] * B[i, j]
    for j in range(m):
        e[j] = max(eta[j] - sigma * w[j], 0.0)
        gradient[j] -= e[j]
        for k in range(m):
            gradient[j] += Q[j, k] * w[k]
    return gradient


@numba.njit(cache=True, nogil=True)
def _newton_step(
    Q: Any,
    linear: Any,
    B: Any,
    C: float,
    rho: float,
    sigma: float,
    w: Any,
    margins: Any,
    alpha: Any,
    eta: Any,
    a: Any,
    e: Any,
    gradient: Any,
) -> bool:
    """Move w and its margins by one Newton step; whether they moved."""
    n, m = B.shape
    hessian = Q.copy()
    for i in range(n):
        if 0.0 < a[i] < C:
            for j in range(m):
                stretched = rho * B[i, j]
                for k in range(j + 1):
                    hessian[j, k] += stretched * B[i, k]
    for j in range(m):
        if e[j] > 0.0:
            hessian[j, j] += sigma
    direction = -_solve_lower(hessian, gradient)
    along = np.empty(n)
    _multiply(B, direction, along)
    t = _step_length(Q, linear, C, rho, sigma, w, direction, margins, along, alpha, eta, np.dot(gradient, direction))
    moved = np.abs(t * direction).max() > 1e-15 * np.abs(w).max()
    for j in range(m):
        w[j] += t * direction[j]
    for i in range(n):
        margins[i] += t * along[i]
    return moved


@numba.njit(cache=True, nogil=True)
def _step_length(
    Q: Any,
    linear: Any,
    C: float,
    rho: float,
    sigma: float,
    w: Any,
    direction: Any,
    margins: Any,
    along: Any,
    alpha: Any,
    eta: Any,
    slope_at_0: float,
) -> float:
    """How far to go, at most 1: to where the slope, which only rises, is nearly 0 from below.

    Its zero is bracketed and found by the Illinois method: secants, with the slope of an end that stays halved.
    """
    constant = np.dot(direction, np.dot(Q, w) - linear)
    curvature = np.dot(direction, np.dot(Q, direction))
    low, high = 0.0, 1.0
    slope_low = slope_at_0
    slope_high = _slope(high, constant, curvature, C, rho, sigma, w, direction, margins, along, alpha, eta)
    if slope_high <= -1e-9 * slope_at_0:
        return high
    stayed = 0
    for _ in range(60):
        middle = low + (high - low) * slope_low / (slope_low - slope_high)
        slope = _slope(middle, constant, curvature, C, rho, sigma, w, direction, margins, along, alpha, eta)
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
def _slope(
    t: float,
    constant: float,
    curvature: float,
    C: float,
    rho: float,
    sigma: float,
    w: Any,
    direction: Any,
    margins: Any,
    along: Any,
    alpha: Any,
    eta: Any,
) -> float:
    """Derivative at w + t direction, along the direction."""
    total = constant + t * curvature
    for i in range(len(margins)):
        a = min(max(alpha[i] + rho * (1.0 - margins[i] - t * along[i]), 0.0), C)
        total -= a * along[i]
    for j in range(len(w)):
        total -= max(eta[j] - sigma * (w[j] + t * direction[j]), 0.0) * direction[j]
    return total


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _multiply(B: Any, x: Any, out: Any) -> None:
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
