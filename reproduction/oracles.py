"""Oracle bounds: what the best choice among several models for each query would score."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kinrank.arrays import Float64
from kinrank.errors import DataError
from kinrank.measure.base import mean_of

# The functions take an array of shape (models, queries) with the value of a measure for every model on every query, as
# `Measure.per_query` returns it. A query that the measure excludes is NaN for every model and in the result.


def upper_bound(values: ArrayLike) -> Float64:
    """Return the value of each query with its best model.

    Examples
    --------
    >>> upper_bound([[0.2, 0.9], [0.6, 0.1]]).tolist()
    [0.6, 0.9]
    """
    best: Float64 = by_rank(values)[0]
    return best


def by_rank(values: ArrayLike) -> Float64:
    """Return the values of each query in descending order: row r - 1 has the r-th best model.

    Returns
    -------
    float64 array of shape (models, queries)

    Examples
    --------
    >>> by_rank([[0.2, 0.9], [0.6, 0.1], [0.4, 0.5]]).tolist()
    [[0.6, 0.9], [0.4, 0.5], [0.2, 0.1]]
    """
    return -np.sort(-_checked(values), axis=0)


def rank_curve(values: ArrayLike) -> Float64:
    """Return the mean over queries with the r-th best model of each, for r from 1.

    Examples
    --------
    >>> rank_curve([[0.2, 0.9], [0.6, 0.1], [0.4, 0.5]]).round(2).tolist()
    [0.75, 0.45, 0.15]
    """
    return np.array([mean_of(row) for row in by_rank(values)])


def rank_of(baseline: float, curve: ArrayLike) -> int:
    """Return the largest r for which the r-th best models match a baseline, or 0 if none do.

    Examples
    --------
    >>> rank_of(0.44, [0.75, 0.45, 0.15])
    2
    """
    return int(np.count_nonzero(np.asarray(curve, dtype=np.float64) >= baseline))


def _checked(values: ArrayLike) -> Float64:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not len(table):
        raise DataError(f"values must have one row per model and one column per query, got shape {table.shape}")
    missing = np.isnan(table)
    if np.any(missing.any(axis=0) != missing.all(axis=0)):
        query = int(np.argmax(missing.any(axis=0) != missing.all(axis=0)))
        raise DataError(f"query {query} is NaN for some models only: measure all models on the same queries")
    return table
