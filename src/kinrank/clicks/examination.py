"""Models of what users examine: how often a document at a rank is clicked, given how attractive it is.

All models are affine in the attractiveness α of the document: P(click | document at rank k) = slope_k α + offset_k.

==========  ==========================================================================================
``swaps``   slopes from documents seen at several ranks, see `kinrank.clicks.examination` (recommended)
``trust``   slopes and offsets: users also click on unattractive documents at trusted ranks, see `affine`
``cascade`` users read from the top and stop at their last click; later ranks are not examined
``none``    slopes are 1: plain click rates
==========  ==========================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtri
from scipy.stats import chi2

from kinrank.arrays import Float64, Int64
from kinrank.clicks._counts import ClickCounts
from kinrank.errors import DataError, ParameterError

# --- how often each rank is examined, from documents that were shown at several ranks of the same query ---------------
#
# A document keeps its attractiveness when its rank changes, so that its clicks at two ranks k and l compare the
# examination of the ranks alone: with ``w = n_k n_l / (n_k + n_l)`` impressions to compare, the expected values of ``w
# c_k / n_k`` and ``w c_l / n_l`` have the ratio θ_k : θ_l (Agarwal et al. 2019, "Estimating position bias without
# intrusive interventions"). Summed over documents, these are the results of contests between ranks, and the strengths
# in the model of Bradley and Terry are the examination probabilities, up to a factor.


_GROUPS = 40  # of queries, each left out once by the jackknife
_MIN_CLICKS = 10.0  # of documents seen at both ranks, below which two ranks are not compared
DRAWS = 40
"""Draws of the bootstrap."""
_SWAP_STEPS = 10_000
_SWAP_TOLERANCE = 1e-9


def contests(counts: ClickCounts, group: Int64, n_groups: int) -> Float64:
    """Return the comparable clicks at rank k against rank l, of each group of queries.

    Entry (g, k, l): clicks at rank k of documents that were also shown at rank l.
    """
    won = np.zeros((n_groups, counts.n_ranks, counts.n_ranks))
    _add_contests(counts.offsets, counts.rank, counts.impressions, counts.clicks, group, won)
    return won


@numba.njit(cache=True, nogil=True)
def _add_contests(offsets, rank, impressions, clicks, group, won):  # type: ignore[no-untyped-def]
    for pair in range(len(offsets) - 1):
        for i in range(offsets[pair], offsets[pair + 1]):
            for j in range(i + 1, offsets[pair + 1]):
                shown = impressions[i] + impressions[j]
                if impressions[i] > 0 and impressions[j] > 0:  # w c_i / n_i = n_j c_i / (n_i + n_j)
                    won[group[pair], rank[i] - 1, rank[j] - 1] += impressions[j] / shown * clicks[i]
                    won[group[pair], rank[j] - 1, rank[i] - 1] += impressions[i] / shown * clicks[j]


def connected_ranks(won: Float64) -> Int64:
    """Return the ranks (from 0) that are compared with the first rank, with enough clicks and in both directions.

    The strengths are finite only if the wins connect the ranks strongly: no group of ranks wins against the others
    without ever losing (Ford, 1957). A rank whose documents got all clicks elsewhere would have the strength 0.
    """
    enough = won + won.T >= _MIN_CLICKS
    _, part = connected_components(enough & (won > 0), directed=True, connection="strong")
    return np.flatnonzero(part == part[0])


def strengths(won: Float64) -> Float64:
    """Return the strengths of Bradley and Terry, the first of which is 1, by the MM steps of Hunter (2004)."""
    games = won + won.T
    wins = np.maximum(won.sum(axis=1), 1e-6)
    theta = np.ones(len(won))
    for _ in range(_SWAP_STEPS):
        new = wins / (games / (theta[:, None] + theta)).sum(axis=1)
        new /= new[0]
        done = np.abs(np.log(new / theta)).max() < _SWAP_TOLERANCE
        theta = new
        if done:
            break
    return theta


def jackknife(won: Float64) -> tuple[Float64, Float64]:
    """Return the strengths from all groups, and the standard errors of their logarithms by leaving groups out."""
    total = won.sum(axis=0)
    whole = strengths(total)
    left = np.log([strengths(total - part) for part in won])
    groups = len(won)
    deviation = np.sqrt((groups - 1) / groups * ((left - left.mean(axis=0)) ** 2).sum(axis=0))
    return whole, deviation


def bootstrap(won: Float64, n_draws: int = DRAWS, seed: int = 0) -> Float64:
    """Return strengths from groups of queries that are weighed at random, of shape (draws, ranks).

    The weights are exponential (the Bayesian bootstrap): none is 0, so that the strengths stay finite.
    """
    weights = np.random.default_rng(seed).exponential(size=(n_draws, len(won)))
    return np.array([strengths(total) for total in np.einsum("dg,gkl->dkl", weights, won)])


def groups_of_queries(counts: ClickCounts, n_groups: int = _GROUPS) -> tuple[Int64, int]:
    """Return the group of each pair; the queries are dealt out at random."""
    codes = counts.query_codes
    n_queries = int(codes[-1]) + 1
    n_groups = max(2, min(n_groups, n_queries))
    order = np.random.default_rng(0).permutation(n_queries)
    return (order % n_groups)[codes], n_groups


# --- trust bias: how the clicks of a document at rank k depend on its clicks at the first rank ------------------------
#
# If users trust high ranks, they also click there on documents that do not attract them. Clicks are then affine in the
# attractiveness, P(click at k) = slope_k α + offset_k, with α the probability of a click at the first rank (Vardasbi et
# al., 2020). The position-based model is the case of no offset.
#
# The slope is a regression over the documents shown at both ranks. Click rates of single documents are noisy, which
# would flatten it, so that the click rate of the document on other days serves as the instrument: its noise is
# independent.


MIN_STRENGTH = 10.0
"""Strength of an instrument, an F statistic, below which its slopes are not to be trusted (Staiger and Stock, 1997)."""


@dataclass(frozen=True, eq=False)
class _AffineFit:
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


def regress_on_first_rank(counts: ClickCounts, known: Int64, group: Int64, n_groups: int) -> _AffineFit | None:
    """Return slopes and offsets, and their standard errors by leaving groups of queries out.

    Return None if the log has too few clicks, or only one day.
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
    return _AffineFit(whole[0], whole[1], slope_error, offset_error, strength, drawn)


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


MODELS = ("swaps", "trust", "cascade", "none")
_CORRECTED = ("swaps", "trust")
_MISFIT = 0.001  # p-value below which a model does not fit


@dataclass(frozen=True, eq=False)
class Examination:
    """How ranks are examined."""

    model: str
    """The name of the model."""
    ranks: Int64
    """The ranks that the model knows, from 1. Impressions at other ranks are not used."""
    slope: Float64
    offset: Float64
    """P(click) = slope α + offset, for each of the ranks. The first slope is 1: examination is relative to the first
    rank.
    """
    low: Float64
    high: Float64
    """The 95% interval of the slopes; equal to the slopes if the model does not estimate them."""
    verdict: str
    """Whether the log identifies the examination of ranks, in one sentence."""
    warnings: tuple[str, ...] = ()
    """Signs that the model does not fit the log."""
    fits: bool = True
    """False if the log shows that the model does not fit it."""
    drawn: Float64 | None = None
    """Slopes and offsets of a bootstrap over queries, of shape (draws, 2, ranks): how uncertain the model is. None if
    it estimates nothing.
    """

    def at(self, rank: NDArray[np.integer]) -> tuple[Float64, Float64]:
        """Return the slope and the offset of each rank; slope 0 if the model does not know the rank."""
        size = max(int(self.ranks[-1]), int(rank.max(initial=1))) + 1
        slope, offset = np.zeros(size), np.zeros(size)
        slope[self.ranks], offset[self.ranks] = self.slope, self.offset
        return slope[rank], offset[rank]


def estimate_examination(counts: ClickCounts, model: str = "swaps") -> Examination:
    """Estimate how users examine the ranks of a log.

    Raise `DataError` if the log does not identify the examination: documents never change their rank, or too few of
    them do.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pyarrow.parquet as pq
    >>> from kinrank.clicks import read_clicks
    >>> from kinrank.datasets import make_two_camps, simulate_clicks
    >>> queries = make_two_camps(n_queries=200)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.parquet"
    >>> pq.write_table(simulate_clicks(queries, queries.X[:, 0], n_lists=50, tail=0, depth=4), path)
    >>> examination = estimate_examination(read_clicks([path]))
    >>> examination.slope.round(1).tolist()
    [1.0, 0.5, 0.3, 0.2]
    """
    if model not in MODELS:
        raise ParameterError(f"unknown model {model!r}: choose one of {', '.join(MODELS)}")
    if model not in _CORRECTED:
        return _fixed(counts, model)
    group, n_groups = groups_of_queries(counts)
    won = contests(counts, group, n_groups)
    known = connected_ranks(won.sum(axis=0))
    verdict = _verdict(counts, known)
    if len(known) < 2:
        raise DataError(
            f"{verdict} Examination and relevance cannot be told apart in this log. Show some documents at other ranks "
            "(randomize, or change the ranking), or ask for a model without correction: none or cascade"
        )
    won = won[:, known][:, :, known]
    slope, deviation = jackknife(won)
    drawn = bootstrap(won)
    both = np.stack([drawn, np.zeros_like(drawn)], axis=1)
    affine = regress_on_first_rank(counts, known, group, n_groups)
    warnings, fits = _misfit(affine)
    found = Examination(
        model=model,
        ranks=known + 1,
        slope=slope,
        offset=np.zeros(len(known)),
        low=slope * np.exp(ndtri(0.025) * deviation),
        high=slope * np.exp(ndtri(0.975) * deviation),
        verdict=verdict,
        warnings=warnings,
        fits=fits,
        drawn=both,
    )
    if model == "swaps":
        return found
    if affine is None:
        raise DataError("too few clicks, or only one day of them, for the model trust: use the model swaps")
    if affine.strength[1:].min() < MIN_STRENGTH:
        weakest = 1 + int(affine.strength[1:].argmin())
        raise DataError(
            "clicks on other days say too little about those at rank 1, for documents also shown at rank "
            f"{known[weakest] + 1} (F = {affine.strength[weakest]:.1f}, below {MIN_STRENGTH:g}): the model trust is "
            "not identified. Use the model swaps, a longer log, or fewer ranks"
        )
    return replace(
        found,
        slope=affine.slope,
        offset=affine.offset,
        low=affine.slope - 1.96 * affine.slope_error,
        high=affine.slope + 1.96 * affine.slope_error,
        warnings=(),
        fits=True,
        drawn=affine.drawn,
    )


def _fixed(counts: ClickCounts, model: str) -> Examination:
    """Return a model whose slopes are not estimated from changes of rank."""
    ranks = np.flatnonzero(counts.by_rank(counts.impressions)) + 1
    slope = np.ones(len(ranks))
    what = {
        "cascade": "Ranks after the last click of a list count as not examined; nothing is estimated.",
        "none": "No correction: high ranks look more relevant than they are.",
    }[model]
    return Examination(model, ranks, slope, np.zeros(len(ranks)), slope, slope, what)


def _verdict(counts: ClickCounts, known: Int64) -> str:
    several = np.diff(counts.offsets) > 1
    share = counts.by_pair(counts.impressions)[several].sum() / counts.impressions.sum()
    moved = f"{share:.0%} of the impressions are of documents seen at several ranks"
    if len(known) < 2:
        return f"Not identifiable: {moved}, too few to compare ranks."
    text = f"Identifiable for {len(known)} of {counts.n_ranks} ranks: {moved}."
    if len(known) < counts.n_ranks:
        text += " Impressions at the other ranks are not used."
    return text


def _misfit(fit: _AffineFit | None) -> tuple[tuple[str, ...], bool]:
    """Test whether the offsets of the affine model are 0; return warnings, and False if the model does not fit."""
    if fit is None or fit.strength[1:].max() < MIN_STRENGTH:
        return ("The log has too few clicks, or only one day, to test whether a position-based model fits.",), True
    strong = fit.strength[1:] >= MIN_STRENGTH  # the first rank is the reference
    offset, error = fit.offset[1:][strong], fit.offset_error[1:][strong]
    z = np.divide(offset, error, out=np.zeros(len(offset)), where=error > 0)
    if len(z) * float(chi2.sf(np.max(z**2, initial=0), 1)) < _MISFIT:
        worst = int(np.argmax(np.abs(z)))
        text = (
            "The position-based model does not fit: a document that nobody clicks at the first rank would have a "
            f"click rate of {offset[worst]:+.3f} at a later one. Users may trust high ranks (model trust) or stop "
            "after a click (model cascade)."
        )
        return (text,), False
    return (), True
