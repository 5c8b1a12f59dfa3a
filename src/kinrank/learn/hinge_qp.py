"""A small quadratic program with many hinges: the one that the ensemble rankers solve for every query.

Minimize ½ w'Qw + C Σ max(0, 1 - w·b_i) over w ≥ 0, with few variables (rankers) and many hinges (judged queries).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from kinrank.arrays import Float64
from kinrank.learn.hinge_newton import method_of_multipliers, multiply

TOLERANCE = 1e-10
"""By how much the conditions of optimality may be missed, in units of a margin."""

_ROUGH = 0.1  # the same while it is still unclear which hinges matter
_BAND = 0.1  # hinges this near their corner are solved for from the start, in units of a margin


class HingeSolution(NamedTuple):
    """The minimum, and the multipliers that prove it (Hoi and Jin 2008, Eqs. 11 and 12).

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
    """Minimize ½ w'Qw + C Σ max(0, 1 - w·b_i) over w ≥ 0.

    The method of multipliers, its inner problems solved by Newton steps that move any number of hinges over their
    corner at once, on the hinges that matter only.

    Parameters
    ----------
    Q
        Positive definite, of shape (variables, variables).
    B
        One row per hinge, of shape (hinges, variables).
    C
        What a loss of 1 costs.
    start
        The solution of a problem with the same hinges, the same C and another Q.

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
    margins = np.empty(n)
    multiply(B, w, margins)
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
        residual, steps = method_of_multipliers(Q, linear, B[chosen], C, tolerance, w, own, eta)
        alpha[chosen] = own
        n_steps += steps
        multiply(B, w, margins)
        if not _choose(margins, alpha, C, 0.0, chosen):
            if tolerance == TOLERANCE:
                break
            # Which hinges matter is known now, so the last and longest run is on few of them.
            tolerance = TOLERANCE
            chosen[:] = False
            _choose(margins, alpha, C, _BAND, chosen)
    for j in range(m):
        w[j] = 0.0 if eta[j] > 0.0 else max(w[j], 0.0)
    return residual, n_steps


@numba.njit(cache=True, nogil=True)
def _choose(margins: Any, alpha: Any, C: float, band: float, chosen: Any) -> bool:
    """Choose the hinges near their corner, or on the side that their multiplier denies; whether any is new."""
    found = False
    for i in range(len(margins)):
        loss = 1.0 - margins[i]
        if not chosen[i] and not (
            (alpha[i] == 0.0 and loss <= TOLERANCE - band) or (alpha[i] == C and loss >= band - TOLERANCE)
        ):
            chosen[i] = True
            found = True
    return found
