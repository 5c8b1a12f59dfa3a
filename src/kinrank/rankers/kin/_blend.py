"""Blend several rankings by their quality on held-out queries."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.measure import Measure
from kinrank.rankers._local.choose import MEASURE

STEPS = 10


def best_shares(scores: Float64, queries: QuerySet, measure: Measure = MEASURE) -> tuple[Float64, float]:
    """Return the shares of the best blend, and its quality. Shares are multiples of 0.1 that sum to 1.

    Of equally good blends, the one with the largest share of the last ranking wins. The first ranking is kept alone
    unless the best blend gains more than one standard error over it: among many blends of few queries, chance alone
    makes one look better.

    Scores are standardized, a column per ranking; none of the rankings was learned from these queries.
    """
    judged = queries.grades, queries.offsets, None, queries.sample_weight
    blends = simplex(scores.shape[1], STEPS)
    blends = blends[np.lexsort((blends[:, 0], -blends[:, -1]))]  # the first ranking alone comes last
    best = max(blends, key=lambda shares: measure.mean(scores @ shares, *judged))
    alone = blends[-1]
    by_blend, by_first = (measure.per_query(scores @ shares, *judged) for shares in (best, alone))
    gain = by_blend - by_first
    gain = gain[np.isfinite(gain)]
    clear = len(gain) > 1 and gain.mean() > gain.std(ddof=1) / len(gain) ** 0.5
    chosen = best if clear else alone
    return chosen, measure.mean(scores @ chosen, *judged)


def simplex(n: int, steps: int) -> Float64:
    """Return all weights of n scores that sum to 1, in equal steps from 0 to 1.

    Examples
    --------
    >>> simplex(2, 20)[:3].tolist()
    [[0.0, 1.0], [0.05, 0.95], [0.1, 0.9]]
    >>> len(simplex(3, 10))
    66
    """
    bars = np.array(list(combinations(range(steps + n - 1), n - 1)))
    edges = np.column_stack([np.full(len(bars), -1), bars, np.full(len(bars), steps + n - 1)])
    weights: Float64 = (np.diff(edges, axis=1) - 1) / steps
    return weights
