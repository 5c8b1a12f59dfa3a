"""Typesense: the alpha of a hybrid search."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from kinrank.engines.targets.base import Fuses, Target, vector_share
from kinrank.errors import DataError


@dataclass(frozen=True)
class HybridSearch(Target):
    """Hybrid search of Typesense 0.25, as the body for ``/multi_search``.

    There are two features, a keyword search and a vector search. Their weights become alpha, the vector's share. A
    document gets (1 - alpha) / rank from the keyword search and alpha / rank from the vector search. **This is not the
    order of the weighted sum**: only positions count.

    The clauses are ``{"q": ..., "query_by": ...}`` for the keyword search and ``{"field": ..., "vector": [...]}`` for
    the vector search; without a vector, Typesense embeds the query.

    Parameters
    ----------
    keyword, vector : str
        Names of the two features.
    collection : str
        Collection to search.
    limit : int
        Number of documents to return.

    Examples
    --------
    >>> clauses = {"keyword": {"q": "heat", "query_by": "title"}, "vector": {"field": "embedding"}}
    >>> HybridSearch().request({"keyword": 1.0, "vector": 3.0}, clauses)["searches"][0]["vector_query"]
    'embedding:([], alpha: 0.75)'
    """

    version: ClassVar[str] = "Typesense 0.25"
    documentation: ClassVar[str] = "https://typesense.org/docs/latest/api/vector-search.html"
    clause_kind: ClassVar[str] = "arguments of the search"
    fusion: ClassVar[Fuses] = "ranks"

    keyword: str = "keyword"
    vector: str = "vector"
    collection: str = "documents"
    limit: int = 10

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        alpha = vector_share(weights, self.keyword, self.vector, self.version)
        searched = clauses[self.vector]
        if "field" not in searched:
            raise DataError(f"the clause of {self.vector!r} for {self.version} must name a field, got {searched!r}")
        query = f"{searched['field']}:({json.dumps(searched.get('vector', []))}, alpha: {alpha})"
        search = {
            "collection": self.collection,
            **clauses[self.keyword],
            "vector_query": query,
            "per_page": self.limit,
        }
        return {"searches": [search]}
