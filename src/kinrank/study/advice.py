"""Turn the results of a headroom study into a verdict and advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kinrank.measure import PairedComparison

Verdict = Literal["gain", "loss", "none", "unclear"]

LEVEL = 0.05
MIN_GAIN = 0.005
"""Smallest gain that is worth a model per query, by default."""


@dataclass(frozen=True)
class Advice:
    """A verdict and what to do.

    Attributes
    ----------
    verdict : {"gain", "loss", "none", "unclear"}
        "none" if a gain of at least `min_gain` is ruled out, "unclear" if there are too few queries to tell.
    text : str
        The verdict in words, and what to do.
    """

    verdict: Verdict
    text: str


def advise(gain: PairedComparison, known: PairedComparison, min_gain: float = MIN_GAIN) -> Advice:
    """Return the advice that follows from two comparisons.

    Parameters
    ----------
    gain
        A model per query compared with one model for all queries.
    known
        Weights from half of a query's own judgments compared with one model for all queries, on the other half.
    min_gain
        Smallest gain that is worth having.

    Examples
    --------
    >>> from kinrank.measure import compare_paired
    >>> same = compare_paired([0.5, 0.7, 0.9], [0.5, 0.7, 0.9])
    >>> advise(same, same).text
    "No per-query gain here: one model for all queries is as good and simpler. Weights from half of a query's own ..."
    """
    low, high = gain.interval
    significant = gain.p <= LEVEL
    interval = f"{gain.confidence:.0%} interval {low:+.4f} to {high:+.4f}"
    if significant and gain.mean_difference > 0:
        small = "" if gain.mean_difference >= min_gain else f", but by less than the minimum of {min_gain:g}"
        return Advice("gain", f"A model per query ranks better here: {gain.mean_difference:+.4f} ({interval}){small}.")
    if significant:
        return Advice(
            "loss",
            f"A model per query ranks worse here ({gain.mean_difference:+.4f}): keep one model for all queries. "
            f"{_reason(known)}",
        )
    if high < min_gain:
        return Advice(
            "none", f"No per-query gain here: one model for all queries is as good and simpler. {_reason(known)}"
        )
    return Advice(
        "unclear",
        f"No significant gain, but a gain of {min_gain:g} is not ruled out ({interval}, {gain.n:,} queries): judge "
        f"more queries, and keep one model until then. {_reason(known)}",
    )


def _reason(known: PairedComparison) -> str:
    if known.p <= LEVEL and known.mean_difference > 0:
        return (
            f"The queries do differ (weights from half of a query's own judgments add {known.mean_difference:+.4f} on "
            "the other half), but their neighbors do not show it: try a better description, such as vectors of the "
            "query texts, or features that are not normalized by query."
        )
    return "Weights from half of a query's own judgments do not help on the other half either."
