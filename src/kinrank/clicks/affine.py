"""Trust bias: how the clicks of a document at rank k depend on its clicks at the first rank.

If users trust high ranks, they also click there on documents that do not attract them. Clicks are then affine in the
attractiveness, P(click at k) = slope_k α + offset_k, with α the probability of a click at the first rank (Vardasbi et
al., 2020). The position-based model is the case of no offset.

The slope is a regression over the documents shown at both ranks. Click rates of single documents are noisy, which would
flatten it, so that the click rate of the document on other days serves as the instrument: its noise is independent.
"""

from __future__ import annotations

import numpy as np

from kinrank.arrays import Float64, Int64
from kinrank.clicks.counts import ClickCounts


def regress_on_first_rank(counts: ClickCounts, known: Int64, group: Int64, n_groups: int) -> Float64 | None:
    """Return slopes and offsets, and their standard errors by leaving groups of queries out.

    Returns
    -------
    array of shape (4, ranks), or None
        Slopes, offsets and the standard errors of both; None if the log has too few clicks, or only one day.
    """
    even, odd = counts.span("even"), counts.span("even", rest=True)
    sums = _sums(even, odd, known, group, n_groups) + _sums(odd, even, known, group, n_groups)
    total = sums.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = _solve(total)
        left = np.array([_solve(total - part) for part in sums])
    if not np.isfinite(left).all():
        return None
    error = np.sqrt((n_groups - 1) / n_groups * ((left - left.mean(axis=0)) ** 2).sum(axis=0))
    return np.concatenate([whole, error])


def _sums(instrument: ClickCounts, outcome: ClickCounts, known: Int64, group: Int64, n_groups: int) -> Float64:
    """Return the weighted sums of 1, z, c_1, c_k, z c_1 and z c_k: array of shape (groups, 6, ranks)."""
    seen = instrument.by_pair(instrument.impressions)
    clicked = instrument.by_pair(instrument.clicks)
    first = outcome.rank == 1
    n_first = outcome.by_pair(np.where(first, outcome.impressions, 0))
    c_first = outcome.by_pair(np.where(first, outcome.clicks, 0))
    pair = outcome.pair_of_cell
    used = np.flatnonzero((outcome.impressions > 0) & (seen[pair] > 0) & (n_first[pair] > 0))
    pair = pair[used]
    weight = outcome.impressions[used] * n_first[pair] / (outcome.impressions[used] + n_first[pair])
    z = clicked[pair] / seen[pair]
    here = outcome.clicks[used] / outcome.impressions[used]
    there = c_first[pair] / n_first[pair]
    ranks = outcome.n_ranks
    bucket = group[pair] * ranks + outcome.rank[used] - 1
    terms = (weight, weight * z, weight * there, weight * here, weight * z * there, weight * z * here)
    sums = np.array([np.bincount(bucket, term, minlength=n_groups * ranks).reshape(n_groups, ranks) for term in terms])
    return sums.transpose(1, 0, 2)[:, :, known]


def _solve(sums: Float64) -> Float64:
    one, z, there, here, z_there, z_here = sums
    slope = (z_here - z * here / one) / (z_there - z * there / one)
    return np.array([slope, (here - slope * there) / one])
