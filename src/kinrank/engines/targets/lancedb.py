"""LanceDB: the weight of a hybrid search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kinrank.engines.targets.base import Fuses, Target, vector_share


@dataclass(frozen=True)
class LinearCombination(Target):
    """Hybrid search of LanceDB 0.30 with its linear combination reranker, as arguments for the Python client.

    There are two features, a full-text search and a vector search, whose scores are scaled to 0..1 over what each
    returns. Pass the result on to a query::

        query = table.search(query_type="hybrid").vector(request["vector"]).text(request["text"])
        reranker = LinearCombinationReranker(**request["reranker"])
        hits = query.rerank(reranker).limit(request["limit"]).to_list()

    The clauses are ``{"text": ...}`` for the full-text search and ``{"vector": [...]}`` for the vector search.

    Parameters
    ----------
    keyword, vector : str
        Names of the two features.
    limit : int
        Number of rows to return, and of rows that each search returns.

    Examples
    --------
    >>> clauses = {"keyword": {"text": "heat"}, "vector": {"vector": [0.1, 0.9]}}
    >>> LinearCombination().request({"keyword": 1.0, "vector": 3.0}, clauses)["reranker"]
    {'weight': 0.75}
    """

    version: ClassVar[str] = "LanceDB 0.30"
    documentation: ClassVar[str] = "https://docs.lancedb.com/integrations/reranking/linear_combination"
    clause_kind: ClassVar[str] = "arguments of the query"
    fusion: ClassVar[Fuses] = "normalized scores"

    keyword: str = "keyword"
    vector: str = "vector"
    limit: int = 10

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        alpha = vector_share(weights, self.keyword, self.vector, self.version)
        given = {**clauses[self.keyword], **clauses[self.vector]}
        return {**given, "reranker": {"weight": alpha}, "limit": self.limit}
