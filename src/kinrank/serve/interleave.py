"""Team-draft interleaving: two rankings shown as one, so that clicks decide between them (Radlinski et al., 2008)."""

from __future__ import annotations

from random import Random

from kinrank.serve.messages import Ranking


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


def interleave(first: Ranking, second: Ranking, models: tuple[str, str], seed: str) -> Ranking:
    """Return the rankings of two models as one, or the first that fell back."""
    for ranking in (first, second):
        if ranking.fallback is not None:
            return ranking
    ids, teams = team_draft(first.ids, second.ids, seed)
    novelty = max((ranking.novelty for ranking in (first, second) if ranking.novelty is not None), default=None)
    return Ranking(ids, model="+".join(models), novelty=novelty, teams=[models[team] for team in teams])
