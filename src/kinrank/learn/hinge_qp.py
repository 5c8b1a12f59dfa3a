"""Small quadratic programs with many hinges, as the ensemble rankers solve for every query.

Minimize ½ w'Qw + C Σ max(0, 1 - w·b_i) over w ≥ 0, with few variables (rankers) and many hinges (judged queries).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from kinrank.arrays import Float64
from kinrank.learn.hinge_newton import method_of_multipliers, multiply, project

TOLERANCE = 1e-10
"""Largest residual of the optimality conditions, in units of a margin."""

GAP_TOLERANCE = 1e-9
"""Largest duality gap, relative to the objective."""

_ROUGH = 0.1  # tolerance while it is not yet known which hinges matter
_BAND = 0.1  # hinges with a margin this close to 1 are solved for from the start


class HingeSolution(NamedTuple):
    """The minimum, and the multipliers that prove it (Hoi and Jin 2008, Eqs. 11 and 12)."""

    w: Float64
    """The minimum; no entry is negative; shape (variables,)."""
    alpha: Float64
    """One multiplier per hinge, from 0 (no loss) to C (loss); shape (hinges,)."""
    eta: Float64
    """One multiplier per variable, above 0 only if w is 0; shape (variables,)."""
    residual: float
    """Residual of the optimality conditions, in units of a margin."""
    n_steps: int
    """Newton steps taken."""


def solve_hinge_qp(Q: Float64, B: Float64, C: float = 1.0, *, start: HingeSolution | None = None) -> HingeSolution:
    """Minimize ½ w'Qw + C Σ max(0, 1 - w·b_i) over w ≥ 0.

    Uses the method of multipliers on the hinges that matter. Its inner problems are solved by Newton steps, which can
    move any number of hinges across their corner at once.

    Parameters
    ----------
    Q
        Positive definite, of shape (variables, variables).
    B
        One row per hinge, of shape (hinges, variables).
    C
        Cost of a loss of 1.
    start
        Solution of a problem with the same hinges, the same C and another Q.

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
    """Turn w, alpha and eta into the solution; return the residual and the number of Newton steps.

    Hinges far from their corner stay on their side of it, so they enter as nothing or as a linear term, and only the
    others are solved for. Hinges that turn out to have changed sides are added until there are none.
    """
    n, m = B.shape
    margins = np.empty(n)
    multiply(B, w, margins)
    chosen = np.zeros(n, dtype=np.bool_)
    _choose(margins, alpha, C, _BAND, chosen)
    tolerance, gap_tolerance = _ROUGH, np.inf
    n_steps = 0
    while True:
        linear = np.zeros(m)
        constant = 0.0
        for i in range(n):
            if not chosen[i] and alpha[i] > 0.0:
                constant += C
                for j in range(m):
                    linear[j] += C * B[i, j]
        own = alpha[chosen]
        residual, steps = method_of_multipliers(
            Q, linear, constant, B[chosen], C, tolerance, gap_tolerance, w, own, eta
        )
        alpha[chosen] = own
        n_steps += steps
        multiply(B, w, margins)
        if not _choose(margins, alpha, C, 0.0, chosen):
            if tolerance == TOLERANCE:
                break
            # It is now known which hinges matter, so the last and longest run needs only a few of them.
            tolerance, gap_tolerance = TOLERANCE, GAP_TOLERANCE
            chosen[:] = False
            _choose(margins, alpha, C, _BAND, chosen)
    project(w, eta, w)
    return residual, n_steps


@numba.njit(cache=True, nogil=True)
def _choose(margins: Any, alpha: Any, C: float, band: float, chosen: Any) -> bool:
    """Choose the hinges near their corner or inconsistent with their multiplier; return whether any is new."""
    found = False
    for i in range(len(margins)):
        loss = 1.0 - margins[i]
        if not chosen[i] and not (
            (alpha[i] == 0.0 and loss <= TOLERANCE - band) or (alpha[i] == C and loss >= band - TOLERANCE)
        ):
            chosen[i] = True
            found = True
    return found
