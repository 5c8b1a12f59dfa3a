"""How attractive each document is, and how surely that is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from kinrank.arrays import Float64
from kinrank.clicks.counts import ClickCounts
from kinrank.clicks.examination import Examination
from kinrank.errors import DataError, ParameterError

MIN_STRENGTH = 20.0
_STEPS = 40  # of bisection
_TINY = 1e-9


@dataclass(frozen=True, eq=False)
class Attractiveness:
    """P(click | examined) of each pair: a Beta posterior.

    Attributes
    ----------
    mean, low, high : float64 arrays of shape (pairs,)
        The posterior mean and the 90% credible interval.
    weight : float64 array of shape (pairs,)
        How much the clicks say, from 0 (nothing: the posterior is the prior) to 1: the examined impressions as a share
        of them and the prior's.
    prior_mean, prior_strength : float
        The prior: its mean, and the number of examined impressions that it counts as.
    """

    mean: Float64
    low: Float64
    high: Float64
    weight: Float64
    prior_mean: float
    prior_strength: float


def estimate_attractiveness(
    counts: ClickCounts, examination: Examination, *, strength: float = MIN_STRENGTH
) -> Attractiveness:
    r"""Estimate the attractiveness of every document of every query.

    The likelihood of a document's clicks is that of the model of examination, P(click at k) = slope_k α + offset_k. The
    prior is Beta with the mean of the log. The posterior is approximated by a Beta distribution at the mode of the
    likelihood times the prior, with as many impressions as its Fisher information; without correction it is exact.

    Parameters
    ----------
    counts
        The counts of a log.
    examination
        The model of examination.
    strength
        Impressions that the prior counts as. With the default, a document with 100 clicks in 100 impressions does not
        outrank one with 9,000 in 10,000.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from kinrank.clicks import read_clicks
    >>> from kinrank.clicks.examination import estimate_examination
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.csv"
    >>> _ = path.write_text("query,session,document,rank,clicked\nalien,s1,d7,1,1\nalien,s2,d7,1,0\n")
    >>> counts = read_clicks([path])
    >>> found = estimate_attractiveness(counts, estimate_examination(counts, "none"), strength=2)
    >>> found.mean.round(6).tolist(), found.weight.tolist()
    ([0.5], [0.5])
    """
    if not strength > 0:
        raise ParameterError(f"strength must be above 0, got {strength}")
    slope, offset = examination.at(counts.rank)
    shown = np.where(slope > 0, counts.impressions, 0.0)
    if examination.model == "cascade":
        shown = np.minimum(shown, counts.examined)
    gained = np.where(slope > 0, np.minimum(counts.reward, shown), 0.0)
    seen = float((shown * slope).sum())
    if seen <= 0:
        raise DataError("no impression at a rank whose examination is known: check the ranks of the log")
    mean = float(np.clip((gained - offset * shown).sum() / seen, 1e-6, 1 - 1e-6))
    a, b = strength * mean, strength * (1 - mean)
    low, high = np.zeros(counts.n_pairs), np.ones(counts.n_pairs)
    for _ in range(_STEPS):  # the derivative of the log posterior decreases in α
        alpha = (low + high) / 2
        p = np.clip(slope * alpha[counts.pair_of_cell] + offset, _TINY, 1 - _TINY)
        uphill = counts.by_pair(slope * (gained / p - (shown - gained) / (1 - p))) + a / alpha - b / (1 - alpha) > 0
        low, high = np.where(uphill, alpha, low), np.where(uphill, high, alpha)
    alpha = np.clip((low + high) / 2, _TINY, 1 - _TINY)
    p = np.clip(slope * alpha[counts.pair_of_cell] + offset, _TINY, 1 - _TINY)
    # Fisher information of the clicks, in units of that of one examined impression
    size = counts.by_pair(shown * slope**2 / (p * (1 - p))) * alpha * (1 - alpha)
    total = strength + size
    return Attractiveness(
        mean=alpha,
        low=np.asarray(beta.ppf(0.05, total * alpha, total * (1 - alpha))),
        high=np.asarray(beta.ppf(0.95, total * alpha, total * (1 - alpha))),
        weight=size / total,
        prior_mean=mean,
        prior_strength=strength,
    )
