"""Models of what users examine: how often a document at a rank is clicked, given how attractive it is.

All models are affine in the attractiveness α of the document: P(click | document at rank k) = slope_k α + offset_k.

==========  ==========================================================================================
``swaps``   slopes from documents seen at several ranks, see `kinrank.clicks.swaps` (recommended)
``pbm``     the position-based model by expectation maximization, from the same documents
``trust``   slopes and offsets: users also click on unattractive documents at trusted ranks, see `affine`
``cascade`` users read from the top and stop at their last click; later ranks are not examined
``coec``    slopes are the click rates of the ranks: clicks over expected clicks
``none``    slopes are 1: plain click rates
==========  ==========================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import chi2

from kinrank.arrays import Float64, Int64
from kinrank.clicks.affine import MIN_STRENGTH, AffineFit, regress_on_first_rank
from kinrank.clicks.counts import ClickCounts
from kinrank.clicks.em import fit_position_based
from kinrank.clicks.swaps import bootstrap, connected_ranks, contests, groups_of_queries, jackknife
from kinrank.errors import DataError, ParameterError

MODELS = ("swaps", "pbm", "trust", "cascade", "coec", "none")
_CORRECTED = ("swaps", "pbm", "trust")
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

    Raises
    ------
    DataError
        If the log does not identify the examination: documents never change their rank, or too few of them do.

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
            "(randomize, or change the ranking), or ask for a model without correction: none, coec or cascade"
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
    if model == "pbm":
        fitted = fit_position_based(counts, known, slope)
        return replace(found, slope=fitted, drawn=both * (fitted / slope))
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
    shown = counts.by_rank(counts.impressions)
    ranks = np.flatnonzero(shown) + 1
    slope = np.ones(len(ranks))
    if model == "coec":
        rate = (counts.by_rank(counts.clicks) + 0.5) / (shown + 1)
        slope = rate[ranks - 1] / rate[ranks[0] - 1]
    what = {
        "coec": "Slopes are the click rates of ranks: better documents at the top look like examination.",
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


def _misfit(fit: AffineFit | None) -> tuple[tuple[str, ...], bool]:
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
