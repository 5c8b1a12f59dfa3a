"""Team-draft interleaving: two rankings shown as one, so that clicks decide between them (Radlinski et al., 2008)."""

from __future__ import annotations

from random import Random


def team_draft(first: list[str], second: list[str], seed: str) -> tuple[list[str], list[int]]:
    """One list of both: in every round a coin says who picks first, and each picks its best document still left.

    Parameters
    ----------
    first, second
        The same documents in two orders.
    seed
        The same seed gives the same list, so that a repeated request shows what it showed.

    Returns
    -------
    list of str
        The documents.
    list of int
        0 or 1 each: who placed it. A click on it is a point for that team.

    Examples
    --------
    >>> team_draft(["a", "b", "c", "d"], ["d", "a", "c", "b"], seed="r1")
    (['d', 'a', 'c', 'b'], [1, 0, 1, 0])
    """
    coin = Random(seed)  # noqa: S311 - a fair coin, no secret
    rankings = (iter(first), iter(second))
    shown: dict[str, int] = {}
    while len(shown) < len(first):
        leader = coin.getrandbits(1)
        for team in (leader, 1 - leader):
            pick = next((document for document in rankings[team] if document not in shown), None)
            if pick is not None:
                shown[pick] = team
    return list(shown), list(shown.values())
