"""KNN as most experiments run it: the paper's neighbors, learned from by least squares."""

from __future__ import annotations

from typing import Any

from kinrank.rankers.knn import KnnRanker


def uniform_knn(n_neighbors: int = 400, **settings: Any) -> KnnRanker:
    """Return an unfitted KNN ranker that is affordable for every k.

    As in the paper, the mean describes a query, its neighbors count alike, and nothing pulls. Unlike
    `KnnRanker.as_published`, it learns by RankRLS, and query features are standardized. The experiment ``knn-letor``
    measures both.
    """
    published: dict[str, Any] = {"describe": "mean", "neighbor_weights": "uniform", "prior": "none"}
    return KnnRanker(n_neighbors, **published | settings)
