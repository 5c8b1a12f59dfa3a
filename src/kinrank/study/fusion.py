"""Ways to combine the scores of a hybrid search, with the same weights for every query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.normalization import Normalization, normalize
from kinrank.data.queryset import QuerySet
from kinrank.describe.within_query import relative_features
from kinrank.measure import Measure
from kinrank.measure.base import mean_of
from kinrank.rankers.kin.blend import simplex

Combination = Literal["arithmetic", "geometric", "harmonic"]

RANK_CONSTANT = 60
_STEPS = {2: 20, 3: 10, 4: 6}
"""Number of steps from 0 to 1 for each weight, by the number of scores; 4 for more of them."""
MAX_GRID = 8
"""Number of scores up to which every combination of steps is tried: 330, and thousands from 12 scores on."""
_SHARES = (0.0, 0.1, 0.2, 0.3, 0.5)
_SWEEPS = 3


@dataclass(frozen=True)
class Fusion:
    """One way to combine scores."""

    normalization: Normalization | Literal["none", "ranks"]
    """What is weighted: scores normalized within the query, raw scores, or reciprocal ranks 1 / (60 + rank)."""
    combination: Combination = "arithmetic"
    """The weighted mean. As in OpenSearch, the geometric and harmonic means leave out searches that did not return the
    document.
    """

    @property
    def name(self) -> str:
        """Short name, such as ``min_max`` or ``min_max, geometric``."""
        return self.normalization + ("" if self.combination == "arithmetic" else f", {self.combination}")

    def values(self, queries: QuerySet) -> Float64:
        """Return what the weights are multiplied by, one column per score; 0 for a document that was not found."""
        if self.normalization == "none":
            return np.nan_to_num(queries.X.astype(np.float64))
        if self.normalization == "ranks":
            ranks = relative_features(queries.X, queries.offsets)[:, queries.n_features :]
            # Ties share their mean rank, so that the order of rows does not matter.
            return np.nan_to_num(1.0 / (RANK_CONSTANT + 1.0 + ranks.astype(np.float64)))
        return normalize(queries.X, queries.offsets, self.normalization).astype(np.float64)

    def combine(self, values: Float64, weights: Float64) -> Float64:
        """Return the weighted mean of each row.

        Examples
        --------
        >>> Fusion("min_max", "harmonic").combine(np.array([[1.0, 0.5], [1.0, 0.0]]), np.array([0.5, 0.5])).round(3)
        array([0.667, 1.   ])
        """
        if self.combination == "arithmetic":
            return values @ weights
        found = (values > 0) @ weights
        positive = np.where(values > 0, values, 1.0)
        total = np.where(found > 0, found, 1.0)
        if self.combination == "geometric":
            return np.where(found > 0, np.exp(np.log(positive) @ weights / total), 0.0)
        parts = np.where(values > 0, 1.0 / positive, 0.0) @ weights
        return np.where(parts > 0, total / np.where(parts > 0, parts, 1.0), 0.0)


NORMALIZED = (Fusion("min_max"), Fusion("l2"), Fusion("z_score"))
MEANS = (Fusion("min_max", "geometric"), Fusion("min_max", "harmonic"))
RAW, RRF = Fusion("none"), Fusion("ranks")


@dataclass(frozen=True, eq=False)
class GlobalWeights:
    """The best weights of a fusion on judged queries, the same for every query."""

    fusion: Fusion
    """The fusion."""
    weights: Float64
    """A weight per score. They sum to 1, except for raw scores."""
    quality: float
    """The measure on the queries that the weights were chosen on."""

    def predict(self, queries: QuerySet) -> Float64:
        """Score the candidates of every query with the same weights."""
        return self.fusion.combine(self.fusion.values(queries), self.weights)


def best_weights(fusion: Fusion, queries: QuerySet, measure: Measure) -> GlobalWeights:
    """Try weights on judged queries and return the best: a grid of up to `MAX_GRID` scores, else share by share.

    Examples
    --------
    >>> from kinrank.measure import NDCG
    >>> queries = QuerySet.from_arrays([[1.0, 0.0], [0.0, 1.0]], y=[1, 0], qid=[7, 7])
    >>> best_weights(Fusion("min_max"), queries, NDCG @ 10).quality
    1.0
    """
    weights, quality = _Search(fusion, queries, measure, per_query=False).best()
    return GlobalWeights(fusion, weights[0], float(quality[0]))


def scores_by_own_weights(fusion: Fusion, queries: QuerySet, measure: Measure) -> Float64:
    """Return scores by the best weights of each query, chosen with its own judgments: an unreachable upper bound."""
    search = _Search(fusion, queries, measure, per_query=True)
    return search.scores(search.best()[0])


def grid_of(n_scores: int) -> Float64:
    """Return every share of each score in equal steps."""
    return simplex(n_scores, _STEPS.get(n_scores, 4))


class _Search:
    """Search for the best weights: one set for all queries, or one set per query.

    Weights and qualities are arrays with one row, or one row per query.
    """

    def __init__(self, fusion: Fusion, queries: QuerySet, measure: Measure, *, per_query: bool) -> None:
        self.fusion, self.queries, self.measure, self.per_query = fusion, queries, measure, per_query
        self.values = fusion.values(queries)
        deviation = self.values.std(axis=0)
        raw = fusion.normalization == "none"
        self.units: Float64 = np.where(raw & (deviation > 0), deviation, 1.0)

    def best(self) -> tuple[Float64, Float64]:
        """Return the best weights and their quality."""
        n_scores = self.values.shape[1]
        if n_scores <= MAX_GRID:
            shares, quality = self._best_of(grid_of(n_scores))
        else:
            alone_and_equal = np.vstack([np.eye(n_scores), np.full(n_scores, 1.0 / n_scores)])
            shares, quality = self._ascend(*self._best_of(alone_and_equal))
        return shares / self.units, quality

    def scores(self, weights: Float64) -> Float64:
        """Return the scores of all rows."""
        if len(weights) == 1:
            return self.fusion.combine(self.values, weights[0])
        scores: Float64 = np.einsum("ij,ij->i", self.values, weights[self.queries.query_of_row])
        return scores

    def _best_of(self, tried: Float64) -> tuple[Float64, Float64]:
        qualities = np.array([self._quality(shares[None]) for shares in tried])
        best = np.argmax(qualities, axis=0)
        return tried[best], np.take_along_axis(qualities, best[None], axis=0)[0]

    def _ascend(self, shares: Float64, quality: Float64) -> tuple[Float64, Float64]:
        """Change the share of one score after the other as long as that gains; the others keep their proportions."""
        for _ in range(_SWEEPS):
            before = quality
            for score in range(shares.shape[1]):
                others = shares.copy()
                others[:, score] = 0.0
                total = others.sum(axis=1, keepdims=True)
                others /= np.where(total > 0, total, 1.0)
                for share in _SHARES:
                    changed = (1.0 - share) * others
                    changed[:, score] = share
                    tried = self._quality(changed)
                    better = (tried > quality) & (total[:, 0] > 0)
                    shares = np.where(better[:, None], changed, shares)
                    quality = np.where(better, tried, quality)
            if not np.any(quality > before):
                break
        return shares, quality

    def _quality(self, shares: Float64) -> Float64:
        """Return the measure of each query, or its mean over all."""
        queries, scores = self.queries, self.scores(shares / self.units)
        values = self.measure.per_query(scores, queries.grades, queries.offsets, queries.doc_id, queries.sample_weight)
        return np.nan_to_num(values) if self.per_query else np.array([mean_of(values)])
