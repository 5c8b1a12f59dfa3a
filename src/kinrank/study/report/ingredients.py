"""How much each ingredient of a ranker counts: trees, the query's own model, the global model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.rankers.capabilities import can_explain
from kinrank.study.comparison import Fittable

NAMES = {
    "trees: features": "trees, by the features",
    "trees: standing": "trees, by the standing among the candidates",
    "trees: local score": "trees, by the score of the query's own model",
    "local": "the query's own model",
    "global": "one linear model for all queries",
}


def ingredient_shares(ranker: Fittable | None, queries: QuerySet) -> dict[str, float]:
    """Return the mean share of each ingredient in the scores of the queries; empty if the ranker has only one.

    Parameters
    ----------
    ranker
        A fitted ranker, or None.
    queries
        The queries to average over.
    """
    if not can_explain(ranker):
        return {}
    each = [explanation.shares for explanation in ranker.explain(queries)]
    return {part: float(np.mean([shares[part] for shares in each])) for part in (each[0] if each else {})}


def in_words(shares: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return the name and the percentage of each ingredient that counts, the largest first.

    Examples
    --------
    >>> in_words({"trees: features": 0.2, "local": 0.0, "global": 0.8})
    [('one linear model for all queries', '80%'), ('trees, by the features', '20%')]
    """
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return [(NAMES.get(part, part), f"{share:.0%}") for part, share in ordered if share >= 0.005]
