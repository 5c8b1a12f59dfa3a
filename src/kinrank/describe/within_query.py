"""Features relative to the other candidates of the same query."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

_COUNTED = 256
"""Up to this many candidates, ranks are counted."""


def relative_features(X: NDArray[np.float32], offsets: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the z-score and the rank of each value within its query.

    Tied candidates share the mean of their ranks, so row order does not matter. Missing and infinite values get NaN
    for both and are ignored when the others are ranked.

    Parameters
    ----------
    X
        Features, one row per candidate.
    offsets
        Query i owns rows ``offsets[i]:offsets[i + 1]``.

    Returns
    -------
    float32 array of shape (rows, 2 features)
        All z-scores, then all ranks; the highest value has rank 0.

    Examples
    --------
    >>> X = np.array([[1.0], [3.0], [1.0], [7.0]], dtype=np.float32)
    >>> relative_features(X, np.array([0, 3, 4])).astype(float).round(2).tolist()
    [[-0.71, 1.5], [1.41, 0.0], [-0.71, 1.5], [0.0, 0.0]]
    """
    return _relative_features(np.ascontiguousarray(X, dtype=np.float32), offsets)  # type: ignore[no-any-return]


def standardize(scores: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standardize each column to mean 0 and standard deviation 1 within each query, so that models can be combined.

    Examples
    --------
    >>> standardize(np.array([[1.0], [3.0], [9.0]]), np.array([0, 2, 3])).tolist()
    [[-1.0], [1.0], [0.0]]
    """
    return _standardize(scores, offsets)  # type: ignore[no-any-return]


@numba.njit(cache=True, nogil=True)
def _standardize(scores, offsets):  # type: ignore[no-untyped-def]
    result = np.zeros(scores.shape)
    for q in range(len(offsets) - 1):
        start, stop = offsets[q], offsets[q + 1]
        for j in range(scores.shape[1]):
            mean = 0.0
            for row in range(start, stop):
                mean += scores[row, j] / (stop - start)
            variance = 0.0
            for row in range(start, stop):
                variance += (scores[row, j] - mean) ** 2 / (stop - start)
            deviation = np.sqrt(variance)
            for row in range(start, stop):
                # Scores that differ only by rounding count as equal; dividing would amplify noise.
                if deviation > 1e-12 * (1.0 + abs(scores[row, j])):
                    result[row, j] = (scores[row, j] - mean) / deviation
    return result


@numba.njit(cache=True, nogil=True)
def _relative_features(X, offsets):  # type: ignore[no-untyped-def]
    n_features = X.shape[1]
    result = np.full((X.shape[0], 2 * n_features), np.nan, dtype=np.float32)
    for q in range(len(offsets) - 1):
        start, stop = offsets[q], offsets[q + 1]
        rows = np.empty(stop - start, dtype=np.int64)
        values = np.empty(stop - start, dtype=np.float32)
        for j in range(n_features):
            n = 0
            for row in range(start, stop):
                if np.isfinite(X[row, j]):
                    rows[n], values[n] = row, X[row, j]
                    n += 1
            if n == 0:
                continue
            known = values[:n].astype(np.float64)
            mean = known.mean()
            deviation = np.sqrt(((known - mean) ** 2).mean())
            ranks = _counted_ranks(values[:n]) if n <= _COUNTED else _sorted_ranks(values[:n])
            for place in range(n):
                result[rows[place], j] = (known[place] - mean) / deviation if deviation > 0 else 0.0
                result[rows[place], n_features + j] = ranks[place]
    return result


@numba.njit(cache=True, nogil=True)
def _counted_ranks(values):  # type: ignore[no-untyped-def]
    """Compare each value with all others, several at a time: for few values that is faster than to sort them."""
    ranks = np.empty(len(values), dtype=np.float32)
    for place in range(len(values)):
        value = values[place]
        above, reached = np.int32(0), np.int32(0)
        for other in range(len(values)):
            above += np.int32(values[other] > value)
            reached += np.int32(values[other] >= value)
        ranks[place] = (above + reached - 1) / 2
    return ranks


@numba.njit(cache=True, nogil=True)
def _sorted_ranks(values):  # type: ignore[no-untyped-def]
    """Sort the values; ties are runs of equal ones."""
    ranks = np.empty(len(values), dtype=np.float32)
    order = np.argsort(-values)
    first = 0
    while first < len(values):
        last = first
        while last + 1 < len(values) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in range(first, last + 1):
            ranks[order[place]] = (first + last) / 2
        first = last + 1
    return ranks
