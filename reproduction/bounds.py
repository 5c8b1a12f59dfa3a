"""How much two training sets differ, and the bound on the difference of their models (Geng et al. 2008, 3.3.4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64


def change_ratio(first: NDArray[np.int64], second: NDArray[np.int64], pairs: Float64) -> float:
    """Return γ = (p1 + p2 - 2Δ) / min(p1, p2), how much two training sets differ (Geng et al. 2008, 3.3.4).

    Examples
    --------
    >>> change_ratio(np.array([0, 1]), np.array([1, 2]), np.array([10.0, 10.0, 20.0]))
    1.5
    """
    one, other = float(pairs[first].sum()), float(pairs[second].sum())
    shared = float(pairs[np.intersect1d(first, second)].sum())
    smaller = min(one, other)
    return (one + other - 2 * shared) / smaller if smaller > 0 else 0.0


def loss_difference_bound(ratio: float, penalty: float, radius: float) -> float:
    """Return Theorem 1's bound for RankSVM: no pair's loss differs by more than κ²/λ · γ between two models.

    κ, the radius, is the largest norm of a difference of two candidates' feature vectors.

    Examples
    --------
    >>> loss_difference_bound(0.1, penalty=0.01, radius=1.0)
    10.0
    """
    return radius**2 / penalty * ratio
