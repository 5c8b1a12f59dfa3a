"""Milvus: the weights of a hybrid search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kinrank.engines.targets.base import Target


@dataclass(frozen=True)
class WeightedSearch(Target):
    """Hybrid search of Milvus 2.5 with the weighted reranker, as the body for ``/v2/vectordb/entities/hybrid_search``.

    A clause is a search: ``{"data": [vector], "annsField": FIELD, "limit": N}``. An entity that a search does not
    return gets 0 from it, so give each search a limit of at least the number of candidates. Raw scores are added
    (``norm_score`` is off). Use similarities (cosine, inner product, BM25), not distances.

    Parameters
    ----------
    collection : str
        Collection to search.
    limit : int
        Number of entities to return.

    Notes
    -----
    Milvus requires weights between 0 and 1, so they are divided by the largest.

    Examples
    --------
    >>> clauses = {name: {"data": [[0.1, 0.9]], "annsField": name, "limit": 100} for name in ("title", "plot")}
    >>> WeightedSearch().request({"title": 0.5, "plot": 2.0}, clauses)["rerank"]
    {'strategy': 'weighted', 'params': {'weights': [0.25, 1.0], 'norm_score': False}}
    """

    version: ClassVar[str] = "Milvus 2.5"
    documentation: ClassVar[str] = "https://milvus.io/docs/weighted-ranker.md"
    clause_kind: ClassVar[str] = "a search"

    collection: str = "documents"
    limit: int = 10

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        largest = max(weights.values()) or 1.0
        params = {"weights": [weight / largest for weight in weights.values()], "norm_score": False}
        return {
            "collectionName": self.collection,
            "search": [clauses[name] for name in weights],
            "rerank": {"strategy": "weighted", "params": params},
            "limit": self.limit,
        }
