"""Expectation maximization over counts for the position-based model (Richardson et al., 2007)."""

from __future__ import annotations

import numpy as np

from kinrank.arrays import Float64, Int64
from kinrank.clicks.counts import ClickCounts

_EM_STEPS = 500
_EM_TOLERANCE = 1e-5
_TINY = 1e-9


def fit_position_based(counts: ClickCounts, known: Int64, start: Float64) -> Float64:
    """Return P(examined) of the known ranks relative to the first: P(click) = θ_k α.

    Only documents seen at several of the ranks are used: the attractiveness of any other document fits every curve.
    There is one parameter per document, so that documents with few impressions bias the curve; `kinrank.clicks.swaps`
    has no such parameters.
    """
    place = np.full(counts.n_ranks + 1, -1)
    place[known + 1] = np.arange(len(known))
    usable = (place[counts.rank] >= 0) & (counts.impressions > 0)
    several = np.bincount(counts.pair_of_cell[usable], minlength=counts.n_pairs) > 1
    usable &= several[counts.pair_of_cell]
    rank = place[counts.rank[usable]]
    _, pair = np.unique(counts.pair_of_cell[usable], return_inverse=True)
    clicks = counts.clicks[usable]
    skips = counts.impressions[usable] - clicks
    shown = np.bincount(pair, clicks + skips)
    of_rank = np.bincount(rank, clicks + skips, minlength=len(known))
    theta = np.minimum(start, 1.0)
    alpha = (np.bincount(pair, clicks) + 0.5) / (np.bincount(pair, (clicks + skips) * theta[rank]) + 1)
    alpha = np.clip(alpha, 0.01, 0.99)
    for _ in range(_EM_STEPS):
        a, p = alpha[pair], theta[rank]
        neither = np.maximum(1 - p * a, _TINY)
        alpha = np.bincount(pair, clicks + skips * a * (1 - p) / neither) / shown
        new = np.bincount(rank, clicks + skips * p * (1 - a) / neither, minlength=len(known)) / of_rank
        change = np.abs(new - theta).max()
        theta = new
        if change < _EM_TOLERANCE:
            break
    curve: Float64 = theta / theta[0]
    return curve
