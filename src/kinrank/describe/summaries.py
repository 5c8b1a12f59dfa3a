"""Summary statistics of the candidates of each query."""

from __future__ import annotations

import numba
import numpy as np

STATISTICS = ("mean", "std", "max", "min")
PREDICTORS = ("nqc", "wig", "gap")
_WIG_DEPTH = 5  # number of documents averaged by Zhou and Croft (2007)


@numba.njit(cache=True, nogil=True)
def top_rows(X, start, stop, reference, depth):  # type: ignore[no-untyped-def]
    """Return the rows of the top `depth` candidates by column `reference`, or the first rows if it is -1.

    Ties keep the given order, and candidates without a score come last.
    """
    n = stop - start
    if reference < 0 or n <= depth:
        return np.arange(start, min(stop, start + depth))
    keys = np.empty(n, dtype=np.float32)
    for i in range(n):
        score = X[start + i, reference]
        keys[i] = -score if np.isfinite(score) else np.inf
    return start + np.argsort(keys, kind="mergesort")[:depth]  # stable, so ties keep their order


@numba.njit(cache=True, nogil=True)
def statistics(X, offsets, reference, depth):  # type: ignore[no-untyped-def]
    """Return mean, std, max and min of every feature over each query's top documents; NaN if unknown.

    Only finite values count. The result has shape (queries, 4, features), in the order of `STATISTICS`.
    """
    n_features = X.shape[1]
    result = np.empty((len(offsets) - 1, 4, n_features))
    counts = np.empty(n_features)
    for q in range(len(offsets) - 1):
        rows = top_rows(X, offsets[q], offsets[q + 1], reference, depth)
        mean, std, high, low = result[q, 0], result[q, 1], result[q, 2], result[q, 3]
        mean[:], std[:], high[:], low[:], counts[:] = 0.0, 0.0, -np.inf, np.inf, 0.0
        for row in rows:
            for j in range(n_features):
                value = np.float64(X[row, j])
                if np.isfinite(value):
                    counts[j] += 1.0
                    mean[j] += value
                    high[j] = max(high[j], value)
                    low[j] = min(low[j], value)
        for j in range(n_features):
            if counts[j] == 0.0:
                mean[j], high[j], low[j] = np.nan, np.nan, np.nan
            else:
                mean[j] /= counts[j]
        for row in rows:  # second pass: the difference of two large sums would lose a small deviation
            for j in range(n_features):
                value = np.float64(X[row, j])
                if np.isfinite(value):
                    std[j] += (value - mean[j]) ** 2
        for j in range(n_features):
            std[j] = np.sqrt(std[j] / counts[j]) if counts[j] else np.nan
    return result


@numba.njit(cache=True, nogil=True)
def quantiles(X, offsets, reference, depth, share):  # type: ignore[no-untyped-def]
    """Return the quantile `share` of every feature over each query's top documents, interpolated linearly."""
    n_features = X.shape[1]
    result = np.full((len(offsets) - 1, n_features), np.nan)
    values = np.empty(depth)
    for q in range(len(offsets) - 1):
        rows = top_rows(X, offsets[q], offsets[q + 1], reference, depth)
        for j in range(n_features):
            n = 0
            for row in rows:
                if np.isfinite(X[row, j]):
                    values[n] = X[row, j]
                    n += 1
            if n:
                known = np.sort(values[:n])
                place = share * (n - 1)
                below = int(place)
                above = min(below + 1, n - 1)
                result[q, j] = known[below] + (place - below) * (known[above] - known[below])
    return result


@numba.njit(cache=True, nogil=True)
def predictors(X, offsets, reference, depth):  # type: ignore[no-untyped-def]
    """Return query performance predictors from the reference scores, in the order of `PREDICTORS`; NaN if undefined.

    nqc: standard deviation of the top scores over |mean score| (after Shtok et al. 2012).
    wig: mean of the top five minus the mean of the list, in standard deviations (after Zhou and Croft 2007).
    gap: the first score minus the second, in standard deviations.
    The papers normalize by the score of the whole collection; here the list replaces it, so no text is needed.
    """
    result = np.full((len(offsets) - 1, 3), np.nan)
    for q in range(len(offsets) - 1):
        scores = np.empty(offsets[q + 1] - offsets[q])
        n = 0
        for row in range(offsets[q], offsets[q + 1]):
            if np.isfinite(X[row, reference]):
                scores[n] = X[row, reference]
                n += 1
        if n < 2:
            continue
        ranked = np.sort(scores[:n])[::-1]
        mean, deviation = ranked.mean(), ranked.std()
        if mean != 0.0:
            result[q, 0] = ranked[:depth].std() / abs(mean)
        if deviation > 0.0:
            result[q, 1] = (ranked[:_WIG_DEPTH].mean() - mean) / deviation
            result[q, 2] = (ranked[0] - ranked[1]) / deviation
    return result
