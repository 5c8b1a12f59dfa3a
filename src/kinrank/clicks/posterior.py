"""How attractive each document is, and how surely that is known."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from scipy.special import betaincinv

from kinrank.arrays import Float64
from kinrank.clicks.counts import ClickCounts
from kinrank.clicks.examination import Examination
from kinrank.errors import DataError, ParameterError
from kinrank.parallel import Serial, Threads, map_ordered, usable_threads

MIN_STRENGTH = 20.0
_STEPS = 60
_CLOSE = 1e-12
_TINY = 1e-9
_PAIRS = 100_000  # in one call of the kernel


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
    shown = counts.examined if examination.model == "cascade" else counts.impressions
    slope, offset = examination.at(np.arange(counts.n_ranks + 1))
    n_shown, n_gained = (np.r_[0.0, counts.by_rank(each)] for each in (shown, np.minimum(counts.reward, shown)))
    seen = float(n_shown @ slope)
    if seen <= 0:
        raise DataError("no impression at a rank whose examination is known: check the ranks of the log")
    mean = float(np.clip(((n_gained - offset * n_shown)[slope > 0]).sum() / seen, 1e-6, 1 - 1e-6))

    def part(start: int) -> Float64:
        pairs = counts.offsets[start : start + _PAIRS + 1]
        prior = strength * mean, strength * (1 - mean)
        alpha, size = _fit_pairs(pairs, counts.rank, shown, counts.reward, slope, offset, *prior)
        # Most documents of a sparse log share their counts with many others, and quantiles take longest.
        both, place = np.unique(alpha + 1j * size, return_inverse=True)
        a, b = (strength + both.imag) * both.real, (strength + both.imag) * (1 - both.real)
        low, high = betaincinv(a, b, 0.05)[place], betaincinv(a, b, 0.95)[place]
        return np.array([alpha, low, high, size / (strength + size)])

    starts = range(0, counts.n_pairs, _PAIRS)
    threads = Threads(usable_threads()) if len(starts) > 1 else Serial()
    alpha, low, high, weight = np.concatenate(list(map_ordered(threads, part, starts)), axis=1)
    return Attractiveness(alpha, low, high, weight, prior_mean=mean, prior_strength=strength)


@numba.njit(cache=True, nogil=True)
def _fit_pairs(offsets, rank, shown, reward, slope, offset, a, b):  # type: ignore[no-untyped-def]
    """Return the mode of each pair's posterior, and the Fisher information of its clicks there.

    The information is in units of that of one examined impression. The derivative of the log posterior decreases in
    alpha; Newton's steps that leave the bracket of its zero are replaced by bisection.
    """
    n_pairs = len(offsets) - 1
    mode, size = np.empty(n_pairs), np.empty(n_pairs)
    for pair in range(n_pairs):
        low, high, alpha = 0.0, 1.0, a / (a + b)
        for _ in range(_STEPS):
            uphill, bend = a / alpha - b / (1 - alpha), a / alpha**2 + b / (1 - alpha) ** 2
            for i in range(offsets[pair], offsets[pair + 1]):
                s = slope[rank[i]]
                if s > 0:
                    p = min(max(s * alpha + offset[rank[i]], _TINY), 1 - _TINY)
                    gained = min(reward[i], shown[i])
                    uphill += s * (gained / p - (shown[i] - gained) / (1 - p))
                    bend += s * s * (gained / p**2 + (shown[i] - gained) / (1 - p) ** 2)
            if uphill > 0:
                low = alpha
            else:
                high = alpha
            step = alpha + uphill / bend
            if not low < step < high:
                step = (low + high) / 2
            done = abs(step - alpha) < _CLOSE
            alpha = step
            if done:
                break
        information = 0.0
        for i in range(offsets[pair], offsets[pair + 1]):
            s = slope[rank[i]]
            if s > 0:
                p = min(max(s * alpha + offset[rank[i]], _TINY), 1 - _TINY)
                information += shown[i] * s * s / (p * (1 - p))
        mode[pair] = min(max(alpha, _TINY), 1 - _TINY)
        size[pair] = information * mode[pair] * (1 - mode[pair])
    return mode, size
