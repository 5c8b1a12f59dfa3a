"""Trust bias: how the clicks of a document at rank k depend on its clicks at the first rank.

If users trust high ranks, they also click there on documents that do not attract them. Clicks are then affine in the
attractiveness, P(click at k) = slope_k α + offset_k, with α the probability of a click at the first rank (Vardasbi et
al., 2020). The position-based model is the case of no offset.

The slope is a regression over the documents shown at both ranks. Click rates of single documents are noisy, which would
flatten it, so that the click rate of the document on other days serves as the instrument: its noise is independent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from kinrank.arrays import Float64, Int64
from kinrank.clicks.counts import ClickCounts
from kinrank.clicks.swaps import DRAWS

MIN_STRENGTH = 10.0
"""Strength of an instrument, an F statistic, below which its slopes are not to be trusted (Staiger and Stock, 1997)."""


@dataclass(frozen=True, eq=False)
class AffineFit:
    """A regression of the clicks of each rank on those of the first."""

    slope: Float64
    offset: Float64
    slope_error: Float64
    offset_error: Float64
    """The estimates, and their standard errors; shape (ranks,)."""
    strength: Float64
    """F statistic of the instrument: how clearly click rates on other days go along with those at the first rank, for
    documents that were also shown at this rank. If it is weak, slopes and errors are meaningless; shape (ranks,).
    """
    drawn: Float64
    """Slopes and offsets from groups of queries that are weighed at random (the Bayesian bootstrap); shape (draws, 2,
    ranks).
    """


def regress_on_first_rank(counts: ClickCounts, known: Int64, group: Int64, n_groups: int) -> AffineFit | None:
    """Return slopes and offsets, and their standard errors by leaving groups of queries out.

    Returns
    -------
    AffineFit or None
        None if the log has too few clicks, or only one day.
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
    weights = np.random.default_rng(0).exponential(size=(DRAWS, n_groups))
    drawn = np.array([_solve(each) for each in np.einsum("dg,gtk->dtk", weights, sums)])
    shared = np.array([_covariance(total - part) for part in sums])
    with np.errstate(divide="ignore", invalid="ignore"):
        strength = np.nan_to_num(_covariance(total) ** 2 / _jackknife(shared) ** 2)
    slope_error, offset_error = _jackknife(left)
    return AffineFit(whole[0], whole[1], slope_error, offset_error, strength, drawn)


def _jackknife(left: Float64) -> Float64:
    """Return standard errors from estimates that leave out one group each."""
    groups = len(left)
    error: Float64 = np.sqrt((groups - 1) / groups * ((left - left.mean(axis=0)) ** 2).sum(axis=0))
    return error


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


def _covariance(sums: Float64) -> Float64:
    """Return how far the click rate on other days explains that at the first rank."""
    one, z, there, _, z_there, _ = sums
    covariance: Float64 = z_there - z * there / one
    return covariance


def _solve(sums: Float64) -> Float64:
    one, z, there, here, _, z_here = sums
    slope = (z_here - z * here / one) / _covariance(sums)
    return np.array([slope, (here - slope * there) / one])
