"""Agreement of base rankers with the grades of each query: the b of Hoi and Jin 2008."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float64


def agreement(
    scores: Float64,
    labels: NDArray[np.int8],
    offsets: NDArray[np.int64],
    *,
    theta: float = 0.5,
    delta: float = 1.0,
    weights: ArrayLike | None = None,
) -> Float64:
    """Return b[i, j] = tr(A_i' R_ij) for each query i and base ranker j (Eqs. 5 and 6).

    A holds the order that the grades ask for: 1 for (+1 before -1), θ for (+1 before 0), and negative values for the
    reverse. R holds the order of the ranker: R~[k, l] = 1 if k is before l, plus δ on the diagonal, with columns
    divided by their sum. Documents with equal scores are not before each other.

    Parameters
    ----------
    scores
        One row per candidate, one column per base ranker.
    labels
        +1, 0 or -1 for each candidate.
    offsets
        Query i owns rows ``offsets[i]:offsets[i + 1]``.
    theta, delta
        θ and δ.
    weights
        How often each candidate counts, once by default.

    Examples
    --------
    >>> scores = np.array([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]])
    >>> agreement(scores, np.array([1, 0, -1], dtype=np.int8), np.array([0, 3])).round(3).tolist()
    [[0.583, -0.5]]
    """
    counted = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=np.float64)
    values = np.ascontiguousarray(scores, dtype=np.float64)
    return np.asarray(_agreement(values, labels, counted, offsets, theta, delta))


@numba.njit(cache=True, nogil=True)
def _agreement(scores: Any, labels: Any, weights: Any, offsets: Any, theta: float, delta: float) -> Any:
    """Go down each ranking and count the labels seen so far: column l of R is 1 / (documents before l + δ)."""
    n_queries, n_rankers = len(offsets) - 1, scores.shape[1]
    b = np.zeros((n_queries, n_rankers))
    seen = np.zeros(3)
    tied = np.zeros(3)
    for query in range(n_queries):
        start, stop = offsets[query], offsets[query + 1]
        for ranker in range(n_rankers):
            values = scores[start:stop, ranker].copy()
            order = np.argsort(-values)
            seen[:] = 0
            tied[:] = 0
            for place in range(stop - start):
                row = order[place]
                if place > 0 and values[row] < values[order[place - 1]]:
                    seen += tied
                    tied[:] = 0
                label, weight = labels[start + row], weights[start + row]
                if label == 1:
                    wrong = -(seen[0] + theta * seen[1])
                    b[query, ranker] += weight * wrong / (seen.sum() + delta)
                else:
                    right = seen[2] if label == -1 else theta * seen[2]
                    b[query, ranker] += weight * right / (seen.sum() + delta)
                tied[label + 1] += weight
    return b
