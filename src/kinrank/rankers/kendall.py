"""Kendall's τ, which measures how well weights reproduce the ranking of a query."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def kendall_tau(first, second):  # type: ignore[no-untyped-def]
    """Return Kendall's τ-b between two lists of scores: 1 if the second has only ties, because any order is right."""
    agreement, in_first, in_second = 0.0, 0.0, 0.0
    for i in range(len(first)):
        for j in range(i):
            a, b = np.sign(first[i] - first[j]), np.sign(second[i] - second[j])
            agreement += a * b
            in_first += a * a
            in_second += b * b
    if in_second == 0.0:
        return 1.0
    return agreement / np.sqrt(in_first * in_second) if in_first > 0.0 else 0.0
