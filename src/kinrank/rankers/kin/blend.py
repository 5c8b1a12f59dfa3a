"""How much each of several rankings counts, by what they did on judged queries they had not seen."""

from __future__ import annotations

from itertools import product

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.describe.within_query import standardize
from kinrank.measure import NDCG, Measure

STEPS = 10
# Trees tie, and judgments often lie sorted by grade: documents that tie share the mean of their places.
MEASURE = NDCG(ties="average") @ 10


def standardized_columns(scores: Float64, queries: QuerySet) -> Float64:
    """Each ranking's scores with mean 0 and deviation 1 in every query, so that shares mean something."""
    return np.column_stack([standardize(column, queries.offsets) for column in scores.T])


def best_shares(scores: Float64, queries: QuerySet, measure: Measure = MEASURE) -> tuple[Float64, float]:
    """The shares, adding up to 1 in steps of a tenth, under which the summed rankings measure best, and how well.

    Among equals the one with most of the last ranking wins: it stands for what is given up last.

    Parameters
    ----------
    scores
        Standardized scores, a column per ranking.
    queries
        Judged queries that none of the rankings had seen.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0], [0.0]], [0, 1], group=[2])
    >>> best_shares(np.array([[-1.0, 1.0], [1.0, -1.0]]), queries)
    (array([0.6, 0.4]), 1.0)
    """
    best, quality = np.zeros(scores.shape[1]), -np.inf
    for shares in _simplex(scores.shape[1]):
        reached = measure.mean(scores @ shares, queries.grades, queries.offsets)
        if reached > quality:
            best, quality = shares, reached
    return best, float(quality)


def _simplex(count: int) -> list[Float64]:
    """All shares of `count` rankings in steps, most of the last first."""
    first = [steps for steps in product(range(STEPS + 1), repeat=count - 1) if sum(steps) <= STEPS]
    first.sort(key=sum)
    return [np.array([*steps, STEPS - sum(steps)]) / STEPS for steps in first]
