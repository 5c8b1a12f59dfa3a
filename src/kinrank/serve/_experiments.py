"""Lists that try something out: two rankings shown as one, and documents of which little is known."""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from random import Random
from typing import NamedTuple

import numpy as np

from kinrank.arrays import Float64, Int64
from kinrank.serve.messages import Ranking

# --- team-draft interleaving: two rankings shown as one, so that clicks decide between them (Radlinski et al., 2008) --


def team_draft(first: list[str], second: list[str], seed: str) -> tuple[list[str], list[int]]:
    """Interleave two rankings of the same documents.

    In every round a coin decides which ranking picks first; each picks its best document that is still left.

    Parameters
    ----------
    first, second
        The same documents in two orders.
    seed
        Seed of the coin. The same seed gives the same list, so a repeated request shows the same result.

    Returns
    -------
    list of str
        The interleaved documents.
    list of int
        0 or 1 per document: the ranking that placed it. A click on it is a point for that ranking.

    Examples
    --------
    >>> team_draft(["a", "b", "c", "d"], ["d", "a", "c", "b"], seed="r1")
    (['d', 'a', 'c', 'b'], [1, 0, 1, 0])
    """
    coin = Random(seed)  # noqa: S311 - not used for security
    rankings = (iter(first), iter(second))
    placed: dict[str, int] = {}
    while len(placed) < len(first):
        leader = coin.getrandbits(1)
        for team in (leader, 1 - leader):
            pick = next((document for document in rankings[team] if document not in placed), None)
            if pick is not None:
                placed[pick] = team
    return list(placed), list(placed.values())


ENGINE = "engine"
"""Stands for the engine's own order where a model may be named, unless a model has this name."""
MODEL = "model"
"""The arm of an A/B test that the model ranks."""


def arm_of(session: str, share: float) -> str:
    """Return the arm of an A/B test that a session is in: the engine for a share of the sessions, else the model.

    Sessions in the arm of the engine stay there when its share grows.

    Examples
    --------
    >>> arms = [arm_of(f"session {number}", 0.5) for number in range(1000)]
    >>> arms.count(ENGINE), set(arms) == {ENGINE, MODEL}, arm_of("session 1", 1.0)
    (527, True, 'engine')
    """
    digest = hashlib.blake2b(f"arm\0{session}".encode(errors="surrogatepass"), digest_size=8).digest()
    return ENGINE if int.from_bytes(digest) < share * 2**64 else MODEL


def interleave(first: Ranking, second: Ranking, models: tuple[str, str], seed: str) -> Ranking:
    """Return the rankings of two models as one, or the first that fell back."""
    for ranking in (first, second):
        if ranking.fallback is not None:
            return ranking
    ids, teams = team_draft(first.ids, second.ids, seed)
    novelty = max((ranking.novelty for ranking in (first, second) if ranking.novelty is not None), default=None)
    return Ranking(ids, model="+".join(models), novelty=novelty, teams=[models[team] for team in teams])


# --- which lists try out a document, and which one --------------------------------------------------------------------
#
# One document of the first `WINDOW` moves up to one of the first places. It is the one that is drawn the furthest above
# its expected rate of choices: the less is known of a document, the more often it is tried out.


WINDOW = 20
"""Documents below this place are not tried out."""
PLACES = 2, 6
"""The first and the last place at which a document is tried out; the best one stays first."""


class Draw(NamedTuple):
    """What decides which document a list tries out."""

    seed: int
    """Decides the draw."""
    propensity: float
    """The probability that a list tries out a document."""


DRAW: ContextVar[Draw | None] = ContextVar("draw", default=None)
"""What decides which document the list of the request tries out; None for none."""


def draw_for(query_id: str, share: float) -> Draw | None:
    """Return what a list tries out, always the same for an id; None for all but a share of the ids.

    Examples
    --------
    >>> sum(draw_for(str(number), 0.1) is not None for number in range(1000))
    100
    """
    if not share:
        return None
    digest = hashlib.blake2b(query_id.encode(errors="surrogatepass"), digest_size=16).digest()
    chosen = int.from_bytes(digest[:8]) < share * 2**64
    return Draw(int.from_bytes(digest[8:]), share) if chosen else None


def explored_order(order: Int64, expected: Float64, drawn: Float64, seed: int) -> Int64:
    """Return an order in which one of the first candidates moves up.

    Parameters
    ----------
    order
        The candidates, best first.
    expected
        The expected rate of choices of each candidate.
    drawn
        A rate drawn from what it may be.
    seed
        Decides the place.

    Examples
    --------
    >>> rates = np.array([0.9, 0.8, 0.7, 0.6])
    >>> explored_order(np.arange(4), rates, rates + [0.0, 0.0, 0.0, 0.2], seed=1).tolist()
    [0, 1, 3, 2]
    """
    first, last = PLACES
    window = min(len(order), WINDOW)
    if window <= first:  # nothing is below the first place at which a document is tried out
        return order
    place = first - 1 + seed % (min(last, window - 1) - first + 1)
    below = order[place + 1 : window]
    chosen = place + 1 + int(np.argmax(drawn[below] - expected[below]))
    return np.concatenate([order[:place], order[chosen : chosen + 1], order[place:chosen], order[chosen + 1 :]])
