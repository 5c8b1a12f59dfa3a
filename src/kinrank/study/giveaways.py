"""Find a feature that holds the grade: it ranks near perfectly by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.learn.pairs import JudgedPairs
from kinrank.measure.base import mean_of
from kinrank.rankers.local.held_out import MEASURE

NEAR_PERFECT = 0.99
"""NDCG@10 from which a ranking is too good to be believed."""
MIN_QUERIES = 10
"""Number of queries with different grades that it takes to tell."""
_MAX_QUERIES = 1_000


@dataclass(frozen=True)
class Giveaway:
    """A feature that ranks near perfectly by itself."""

    feature: str
    """Its name."""
    quality: float
    """NDCG@10 of the order by this feature, over queries with different grades."""
    by_chance: float
    """The same for documents in random order."""

    def __str__(self) -> str:
        return (
            f"feature {self.feature!r} alone ranks at NDCG@10 = {self.quality:.4f} (random order: "
            f"{self.by_chance:.4f}), which is too good to be believed"
        )


def find_giveaway(queries: QuerySet) -> Giveaway | None:
    """Return the feature that ranks best by itself, up or down, if it is near perfect; None if no feature is.

    Queries whose documents all have one grade are left out: any order of them is perfect.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 200)
    >>> X = np.column_stack([y + rng.normal(size=200), 3 - y])
    >>> print(find_giveaway(QuerySet.from_arrays(X, y, group=[10] * 20, feature_names=["bm25", "rank"])))
    feature 'rank' alone ranks at NDCG@10 = 1.0000 (random order: ...), which is too good to be believed
    """
    telling = np.flatnonzero(JudgedPairs.from_queries(queries).pairs > 0)
    if len(telling) < MIN_QUERIES:
        return None
    sample = queries[telling[:: -(-len(telling) // _MAX_QUERIES)]]

    def quality(scores: np.ndarray) -> float:
        return mean_of(MEASURE.per_query(scores, sample.grades, sample.offsets))

    by_chance = quality(np.zeros(sample.n_rows))
    if by_chance >= NEAR_PERFECT:
        return None
    values = np.nan_to_num(sample.X.astype(np.float64))
    qualities = [max(quality(column), quality(-column)) for column in values.T]
    top = int(np.argmax(qualities)) if qualities else 0
    if not qualities or qualities[top] < NEAR_PERFECT:
        return None
    return Giveaway(sample.feature_names[top], qualities[top], by_chance)
