"""What the figures of a headroom study advise, in a sentence a person can act on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kinrank.measure import PairedComparison

Verdict = Literal["gain", "loss", "none", "unclear"]

LEVEL = 0.05
WORTH = 0.005
"""The smallest gain worth a model per query, where the user says nothing else."""


@dataclass(frozen=True)
class Advice:
    """A verdict and what it means.

    Attributes
    ----------
    verdict : {"gain", "loss", "none", "unclear"}
        "none" where a gain worth having is ruled out, "unclear" where the queries are too few to tell.
    text : str
        The verdict in plain words, and what to do.
    """

    verdict: Verdict
    text: str


def advise(gain: PairedComparison, known: PairedComparison, worth: float = WORTH) -> Advice:
    """Read the two differences.

    Parameters
    ----------
    gain
        A model per query against one model for all.
    known
        Weights from half of a query's own judgments against one model for all, on the other half.
    worth
        The smallest gain worth having.

    Examples
    --------
    >>> from kinrank.measure import compare_paired
    >>> same = compare_paired([0.5, 0.7, 0.9], [0.5, 0.7, 0.9])
    >>> advise(same, same).text
    "No per-query gain here: one model for all queries is as good and simpler, and even a query's own ... nothing."
    """
    low, high = gain.interval
    significant = gain.p <= LEVEL
    differ = known.p <= LEVEL and known.mean_difference > 0
    if significant and gain.mean_difference > 0:
        size = "" if gain.mean_difference >= worth else f", though less than the {worth:g} asked for"
        return Advice(
            "gain",
            f"A model per query pays here: {gain.mean_difference:+.4f} ({gain.confidence:.0%} interval {low:+.4f} to "
            f"{high:+.4f}){size}.",
        )
    if significant:
        return Advice(
            "loss",
            f"Per-query models lose here ({gain.mean_difference:+.4f}): keep one model for all queries. "
            f"{_why(differ, known)}",
        )
    if high < worth:
        said = "No per-query gain here: one model for all queries is as good and simpler"
        if differ:
            return Advice("none", f"{said}. {_why(differ, known)}")
        return Advice("none", f"{said}, and even a query's own judgments of half its documents add nothing.")
    return Advice(
        "unclear",
        f"No per-query gain shown, and none worth {worth:g} ruled out ({gain.confidence:.0%} interval {low:+.4f} to "
        f"{high:+.4f}, {gain.n:,} queries): judge more queries, and keep one model until then. {_why(differ, known)}",
    )


def _why(differ: bool, known: PairedComparison) -> str:
    if differ:
        return (
            f"The queries do want different things (their own judgments of half their documents add "
            f"{known.mean_difference:+.4f} on the other half), but their neighbors do not show it: try a better "
            "description, such as vectors of the query texts, or features that are not normalized by query."
        )
    return "Nor do a query's own judgments of half its documents help on the other half."
