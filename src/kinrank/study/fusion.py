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


@dataclass(frozen=True)
class Fusion:
    """One way to combine scores.

    Attributes
    ----------
    normalization : {"min_max", "l2", "z_score", "none", "ranks"}
        What is weighted: scores normalized within the query, raw scores, or reciprocal ranks 1 / (60 + rank).
    combination : {"arithmetic", "geometric", "harmonic"}
        The weighted mean. As in OpenSearch, the geometric and harmonic means leave out searches that did not return the
        document.
    """

    normalization: Normalization | Literal["none", "ranks"]
    combination: Combination = "arithmetic"

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
    """The best weights of a fusion on judged queries, the same for every query.

    Attributes
    ----------
    fusion : Fusion
        The fusion.
    weights : float64 array
        A weight per score. They sum to 1, except for raw scores.
    quality : float
        The measure on the queries that the weights were chosen on.
    """

    fusion: Fusion
    weights: Float64
    quality: float

    def predict(self, queries: QuerySet) -> Float64:
        """Score the candidates of every query with the same weights."""
        return self.fusion.combine(self.fusion.values(queries), self.weights)


def best_weights(fusion: Fusion, queries: QuerySet, measure: Measure) -> GlobalWeights:
    """Try a grid of weights on judged queries and return the best.

    Examples
    --------
    >>> from kinrank.measure import NDCG
    >>> queries = QuerySet.from_arrays([[1.0, 0.0], [0.0, 1.0]], y=[1, 0], qid=[7, 7])
    >>> best_weights(Fusion("min_max"), queries, NDCG @ 10).quality
    1.0
    """
    values = fusion.values(queries)
    grid = grid_of(fusion, values)
    tried = [mean_of(each) for each in _qualities(fusion, queries, values, grid, measure)]
    best = int(np.argmax(tried))
    return GlobalWeights(fusion, grid[best], tried[best])


def oracle_scores(fusion: Fusion, queries: QuerySet, measure: Measure) -> Float64:
    """Return scores by the best weights of each query, chosen with its own judgments: an unreachable upper bound."""
    values = fusion.values(queries)
    grid = grid_of(fusion, values)
    each = np.nan_to_num(np.array(_qualities(fusion, queries, values, grid, measure)))
    chosen = grid[np.argmax(each, axis=0)][queries.query_of_row]
    scores: Float64 = np.einsum("ij,ij->i", values, chosen)
    return scores


def grid_of(fusion: Fusion, values: Float64) -> Float64:
    """Return the weights to try: every share of each score in equal steps, in units of its deviation if it is raw."""
    n_scores = values.shape[1]
    grid = simplex(n_scores, _STEPS.get(n_scores, 4))
    if fusion.normalization != "none":
        return grid
    deviation = values.std(axis=0)
    return grid / np.where(deviation > 0, deviation, 1.0)


def _qualities(fusion: Fusion, queries: QuerySet, values: Float64, grid: Float64, measure: Measure) -> list[Float64]:
    """Return the measure of each query with each of the weights."""
    return [
        measure.per_query(fusion.combine(values, weights), queries.grades, queries.offsets, queries.doc_id)
        for weights in grid
    ]
