"""Blend several rankings by their quality on held-out queries."""

from __future__ import annotations

from itertools import product

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.describe.within_query import standardize
from kinrank.measure import NDCG, Measure

STEPS = 10
# Trees give equal scores, and judgments are often sorted by grade: ties get the mean of their ranks.
MEASURE = NDCG(ties="average") @ 10


def standardized_columns(scores: Float64, queries: QuerySet) -> Float64:
    """Standardize each column of scores to mean 0 and standard deviation 1 within each query."""
    return np.column_stack([standardize(column, queries.offsets) for column in scores.T])


def best_shares(scores: Float64, queries: QuerySet, measure: Measure = MEASURE) -> tuple[Float64, float]:
    """Return the shares of the best blend, and its quality. Shares are multiples of 0.1 that sum to 1.

    Of equally good blends, the one with the largest share of the last ranking wins.

    Parameters
    ----------
    scores
        Standardized scores, one column per ranking.
    queries
        Judged queries that none of the rankings was learned from.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0], [0.0]], [0, 1], group=[2])
    >>> best_shares(np.array([[-1.0, 1.0], [1.0, -1.0]]), queries)
    (array([0.6, 0.4]), 1.0)
    """
    best, quality = np.zeros(scores.shape[1]), -np.inf
    for shares in _simplex(scores.shape[1]):
        value = measure.mean(scores @ shares, queries.grades, queries.offsets)
        if value > quality:
            best, quality = shares, value
    return best, float(quality)


def _simplex(count: int) -> list[Float64]:
    """Return all shares of `count` rankings, sorted by decreasing share of the last."""
    first = [steps for steps in product(range(STEPS + 1), repeat=count - 1) if sum(steps) <= STEPS]
    first.sort(key=sum)
    return [np.array([*steps, STEPS - sum(steps)]) / STEPS for steps in first]
