"""Why a query is ranked as it is, in words and numbers a person can follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.rankers.local.base import coefficients

if TYPE_CHECKING:
    from kinrank.rankers.knn.ranker import KnnRanker


@dataclass(frozen=True, eq=False)
class Explanation:
    """How one query came to its ranking.

    Attributes
    ----------
    qid
        The query.
    neighbors : array
        The judged queries it learned from, nearest first; with cells, one that stands for each cell, as text.
    distances : float64 array
        How far each is; with cells, the center of the cell.
    counts : float64 array
        How many judged queries each stands for: 1, or what its cell gave.
    unusual : float
        The share of judged queries that have a nearer nearest neighbor than this query: 0.5 is a query like any
        other, 1.0 one that is farther from everything known than all judged queries are from each other.
    feature_names : tuple of str
        The features.
    weights, global_weights : float64 array, or None
        The query's own weights and those of the global model, per unit of each feature; None where the model is
        not linear.
    """

    qid: Any
    neighbors: NDArray[Any]
    distances: Float64
    counts: Float64
    unusual: float
    feature_names: tuple[str, ...]
    weights: Float64 | None
    global_weights: Float64 | None

    def __str__(self) -> str:
        cells = "" if np.all(self.counts == 1) else f" in {len(self.neighbors)} cells"
        lines = [
            f"query {self.qid}: learned from {self.counts.sum():.0f} judged queries{cells}, nearest {self._nearest()}",
            f"  farther from known queries than {self.unusual:.0%} of them are from each other",
        ]
        if self.weights is not None and self.global_weights is not None:
            change = self.weights - self.global_weights
            lines += [
                f"  {self.feature_names[f]}: weight {self.weights[f]:+.3g}, globally {self.global_weights[f]:+.3g}"
                for f in np.argsort(-np.abs(change))[:5]
            ]
        return "\n".join(lines)

    def _nearest(self) -> str:
        named = zip(self.neighbors[:3].tolist(), self.distances[:3], strict=True)
        return ", ".join(f"{neighbor} ({distance:.2f})" for neighbor, distance in named) or "none"


def explain_query(
    ranker: KnnRanker, queries: QuerySet, query: int, near: Int64, distances: Float64, weights: Float64 | None
) -> Explanation:
    """The explanation of one query of a fitted ranker."""
    nearest = distances[0] if len(distances) else np.inf
    limit = np.inf if ranker.radius is not None else ranker.n_neighbors
    held = np.minimum(np.cumsum(ranker.memory_.counts[near]), limit)
    unusual = np.searchsorted(ranker.usual_distances_, nearest) / len(ranker.usual_distances_)
    return Explanation(
        qid=queries.qid[query].item(),
        neighbors=ranker.qid_[near],
        distances=distances,
        counts=np.diff(held, prepend=0.0),
        unusual=float(unusual),
        feature_names=queries.feature_names,
        weights=weights,
        global_weights=None if weights is None else ranker.preparer_.raw_weights(coefficients(ranker.global_)),
    )
