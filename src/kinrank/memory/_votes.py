"""Count looks and choices of lists in memory, as `kinrank clicks --evidence` counts those of a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

MAX_RANK = 50
"""The last rank that counts."""


class RankCurve(NamedTuple):
    """How the ranks of a list are examined: P(click) = slope α + offset."""

    slope: Sequence[float]
    offset: Sequence[float]
    """By rank, from the first one."""
    cascade: bool = False
    """Whether ranks below the last click are not examined."""

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> RankCurve:
        """Return the curve that a folder of evidence was written with; 1 / rank without one.

        Examples
        --------
        >>> RankCurve.of({}).slope[:4]
        [1.0, 0.5, 0.3333333333333333, 0.25]
        """
        stored = meta.get("examination")
        if stored is None:
            return cls([1 / rank for rank in range(1, MAX_RANK + 1)], [0.0] * MAX_RANK)
        ranks = np.array(stored["ranks"])
        curve = np.zeros((2, max(MAX_RANK, int(ranks.max(initial=1)))))
        curve[:, ranks - 1] = stored["slope"], stored["offset"]
        slope, offset = curve.tolist()
        return cls(slope, offset, stored["model"] == "cascade")


class ShownList(NamedTuple):
    """Documents that a client was shown for a query, best first."""

    query: int
    day: int
    client: int
    documents: Sequence[str]
    clicked: Mapping[str, float]
    """The value of the clicks by document."""


class Vote(NamedTuple):
    """What one client looked at and chose of a document of a query on a day: the mean of its impressions."""

    looks: float
    choices: float
    chose: bool


class Votes(NamedTuple):
    """What the clients who were shown a document of a query on a day looked at and chose."""

    looks: float
    choices: float
    clients: frozenset[int]
    choosers: frozenset[int]
    """Those of them who chose it."""


def client_votes(lists: Iterable[ShownList], curve: RankCurve) -> dict[str, Vote]:
    """Return the votes of one client, query and day by document, from all lists of the three.

    Examples
    --------
    >>> lists = [ShownList(1, 20, 5, ["d7", "d9"], clicked) for clicked in ({"d9": 1.0}, {})]
    >>> client_votes(lists, RankCurve.of({}))["d9"]
    Vote(looks=0.5, choices=0.5, chose=True)
    """
    impressions: dict[str, list[float]] = {}
    for shown in lists:
        places = {document: rank for rank, document in reversed(list(enumerate(shown.documents[: len(curve.slope)])))}
        last = max((places[document] for document in shown.clicked if document in places), default=len(places))
        for document, rank in places.items():
            slope = curve.slope[rank]
            total = impressions.setdefault(document, [0.0, 0.0, 0.0, 0.0])
            clicked = shown.clicked.get(document, 0.0)
            total[0] += 1
            total[1] += 0.0 if curve.cascade and rank > last else slope
            total[2] += clicked - curve.offset[rank] if slope > 0 else 0.0
            total[3] += clicked if slope > 0 else 0.0
    return {
        document: Vote(looked / n, chosen / n, clicked > 0)
        for document, (n, looked, chosen, clicked) in impressions.items()
        if looked > 0
    }


def count_votes(lists: Iterable[ShownList], curve: RankCurve) -> dict[tuple[int, str, int], Votes]:
    """Return the votes by query, document and day. Each client has one vote on a document a day.

    Examples
    --------
    >>> lists = [ShownList(1, 20, client, ["d7", "d9"], {"d9": 1.0}) for client in (5, 5, 6)]
    >>> votes = count_votes(lists, RankCurve.of({}))
    >>> votes[1, "d9", 20].looks, votes[1, "d9", 20].choices, len(votes[1, "d9", 20].clients)
    (1.0, 2.0, 2)
    >>> len(votes[1, "d7", 20].choosers), len(votes[1, "d9", 20].choosers)
    (0, 2)
    """
    by_client: dict[tuple[int, int, int], list[ShownList]] = {}
    for shown in lists:
        by_client.setdefault((shown.query, shown.day, shown.client), []).append(shown)
    cells: dict[tuple[int, str, int], dict[int, Vote]] = {}
    for (query, day, client), some in by_client.items():
        for document, vote in client_votes(some, curve).items():
            cells.setdefault((query, document, day), {})[client] = vote
    return {
        cell: Votes(
            sum(vote.looks for vote in votes.values()),
            sum(vote.choices for vote in votes.values()),
            frozenset(votes),
            frozenset(client for client, vote in votes.items() if vote.chose),
        )
        for cell, votes in cells.items()
    }
