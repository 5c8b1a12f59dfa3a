"""Trust bias: how the clicks of a document at rank k depend on its clicks at the first rank.

If users trust high ranks, they also click there on documents that do not attract them. Clicks are then affine in the
attractiveness, P(click at k) = slope_k α + offset_k, with α the probability of a click at the first rank (Vardasbi et
al., 2020). The position-based model is the case of no offset.

The slope is a regression over the documents shown at both ranks. Click rates of single documents are noisy, which would
flatten it, so that the click rate of the document on other days serves as the instrument: its noise is independent.
"""

from __future__ import annotations

import numba
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
    if not counts.days:
        return None
    even, odd = counts.days["even"], counts.days["odd"]
    sums = np.zeros((n_groups, 6, counts.n_ranks))
    for instrument, outcome in ((even, odd), (odd, even)):
        _add_sums(counts.offsets, counts.rank, *instrument, *outcome, group, sums)
    sums = sums[:, :, known]
    total = sums.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = _solve(total)
        left = np.array([_solve(total - part) for part in sums])
    if not np.isfinite(left).all():
        return None
    error = np.sqrt((n_groups - 1) / n_groups * ((left - left.mean(axis=0)) ** 2).sum(axis=0))
    return np.concatenate([whole, error])


@numba.njit(cache=True, nogil=True)
def _add_sums(offsets, rank, other_impressions, other_clicks, impressions, clicks, group, sums):  # type: ignore[no-untyped-def]
    """Add the weighted sums of 1, z, c_1, c_k, z c_1 and z c_k to each group and rank; z is the rate on other days."""
    for pair in range(len(offsets) - 1):
        cells = range(offsets[pair], offsets[pair + 1])
        seen, clicked, n_first, c_first = 0.0, 0.0, 0.0, 0.0
        for i in cells:
            seen += other_impressions[i]
            clicked += other_clicks[i]
            if rank[i] == 1:
                n_first, c_first = float(impressions[i]), float(clicks[i])
        if seen == 0 or n_first == 0:
            continue
        z, there = clicked / seen, c_first / n_first
        for i in cells:
            if impressions[i] > 0:
                here = clicks[i] / impressions[i]
                weight = impressions[i] * n_first / (impressions[i] + n_first)
                terms = (1.0, z, there, here, z * there, z * here)
                for term in range(6):
                    sums[group[pair], term, rank[i] - 1] += weight * terms[term]


def _solve(sums: Float64) -> Float64:
    one, z, there, here, z_there, z_here = sums
    slope = (z_here - z * here / one) / (z_there - z * there / one)
    return np.array([slope, (here - slope * there) / one])
