"""What could be reached by choosing, for each query, among several models: bounds that no ranker can know in advance.

Everything here reads one array: a measure of every model on every query, shape (models, queries), as
`Measure.per_query` gives it row by row. A query that the measure leaves out is NaN for every model and stays NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kinrank.errors import DataError
from kinrank.measure.base import mean_of
from kinrank.measure.lists import Float


def upper_bound(values: ArrayLike) -> Float:
    """The measure of each query when its best model is always chosen.

    Examples
    --------
    >>> upper_bound([[0.2, 0.9], [0.6, 0.1]]).tolist()
    [0.6, 0.9]
    """
    best: Float = by_rank(values)[0]
    return best


def by_rank(values: ArrayLike) -> Float:
    """The measures of each query sorted, best first: row r - 1 is always choosing the r-th best model.

    Returns
    -------
    float64 array of shape (models, queries)

    Examples
    --------
    >>> by_rank([[0.2, 0.9], [0.6, 0.1], [0.4, 0.5]]).tolist()
    [[0.6, 0.9], [0.4, 0.5], [0.2, 0.1]]
    """
    return -np.sort(-_checked(values), axis=0)


def rank_curve(values: ArrayLike) -> Float:
    """The mean over queries of always choosing the r-th best model, for r from 1; it never rises.

    Examples
    --------
    >>> rank_curve([[0.2, 0.9], [0.6, 0.1], [0.4, 0.5]]).round(2).tolist()
    [0.75, 0.45, 0.15]
    """
    return np.array([mean_of(row) for row in by_rank(values)])


def rank_of(baseline: float, curve: ArrayLike) -> int:
    """How good a choice must be to match a baseline: the largest r whose mean is no lower; 0 where none is.

    Examples
    --------
    >>> rank_of(0.44, [0.75, 0.45, 0.15])
    2
    """
    return int(np.count_nonzero(np.asarray(curve, dtype=np.float64) >= baseline))


def _checked(values: ArrayLike) -> Float:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not len(table):
        raise DataError(f"values must have one row per model and one column per query, got shape {table.shape}")
    missing = np.isnan(table)
    if np.any(missing.any(axis=0) != missing.all(axis=0)):
        query = int(np.argmax(missing.any(axis=0) != missing.all(axis=0)))
        raise DataError(
            f"query {query} is NaN for some models and not for others: measure all models on the same queries"
        )
    return table
