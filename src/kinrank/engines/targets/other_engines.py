"""Vespa, Weaviate, Milvus, LanceDB, Azure AI Search and Typesense: requests that carry the weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kinrank.engines.targets.base import Target, vector_share
from kinrank.errors import DataError


@dataclass(frozen=True)
class VespaQueryInput(Target):
    """Weights as a mapped tensor in the query, for a rank profile that multiplies its features by it (Vespa 8).

    The rank profile declares the tensor and uses the feature names as labels::

        rank-profile kinrank {
            inputs {
                query(weights) tensor<float>(feature{})
            }
            function features() {
                expression: tensor<float>(feature{}):{title: bm25(title), popularity: attribute(popularity)}
            }
            first-phase {
                expression: sum(query(weights) * features)
            }
        }

    Notes
    -----
    Weights of any sign are sent unchanged. Add `yql` and the other parameters of the query to the request.

    Examples
    --------
    >>> VespaQueryInput().request({"title": 0.5, "popularity": -0.1})
    {'ranking': 'kinrank', 'input.query(weights)': '{"title": 0.5, "popularity": -0.1}'}
    """

    version = "Vespa 8"
    documentation = "https://docs.vespa.ai/en/reference/api/query.html"
    allows_negative = True

    profile: str = "kinrank"
    """Name of the rank profile."""
    tensor: str = "weights"
    """Name of the input."""

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        # The literal form of a mapped tensor with one dimension and quoted labels is a JSON object.
        return {"ranking": self.profile, f"input.query({self.tensor})": json.dumps(weights, ensure_ascii=False)}


ARGUMENTS = ("query", "properties", "vector", "targetVectors")
"""Arguments of the hybrid operator that clauses can set."""


@dataclass(frozen=True)
class WeaviateHybridSearch(Target):
    """Hybrid search of Weaviate 1.20 with relative score fusion, as the body for ``/v1/graphql``.

    There are two features, a keyword search and a vector search. Their weights become alpha, the vector's share of the
    sum. The scores of each search are scaled to 0..1 over its results before they are added. **The order only
    approximates that of the weighted sum**: a keyword search returns matching objects only, so its scores are not
    scaled over all candidates.

    The clauses are arguments of the hybrid operator: ``{"query": ..., "properties": [...]}`` for the keyword search,
    ``{"vector": [...]}`` for the vector search, or an empty object if Weaviate computes the vector.

    Examples
    --------
    >>> clauses = {"keyword": {"query": "heat"}, "vector": {}}
    >>> request = WeaviateHybridSearch().request({"keyword": 1.0, "vector": 3.0}, clauses)
    >>> print(request["query"])
    { Get { Document(limit: 10, hybrid: {query: "heat", alpha: 0.75, fusionType: relativeScoreFusion})
      { _additional { id score } } } }
    """

    version = "Weaviate 1.20"
    documentation = "https://docs.weaviate.io/weaviate/api/graphql/search-operators#hybrid"
    clause_kind = "arguments of the hybrid operator"
    fusion = "normalized scores"

    keyword: str = "keyword"
    vector: str = "vector"
    """Names of the two features."""
    collection: str = "Document"
    """Collection to search."""
    fields: Sequence[str] = ()
    """Properties to return."""
    limit: int = 10
    """Number of objects to return."""

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        alpha = vector_share(weights, self.keyword, self.vector, self.version)
        given = {**clauses[self.keyword], **clauses[self.vector]}
        unknown = [name for name in given if name not in ARGUMENTS]
        if unknown or "query" not in given:
            raise DataError(
                f"the clauses for {self.version} must include 'query' and can include {', '.join(ARGUMENTS[1:])}; "
                f"got {list(given)}"
            )
        # In GraphQL names and the fusion type are not quoted; all else is written as in JSON.
        arguments = {name: json.dumps(value, ensure_ascii=False) for name, value in given.items()}
        arguments |= {"alpha": json.dumps(alpha), "fusionType": "relativeScoreFusion"}
        operator = ", ".join(f"{name}: {value}" for name, value in arguments.items())
        returned = " ".join([*self.fields, "_additional { id score }"])
        return {
            "query": f"{{ Get {{ {self.collection}(limit: {self.limit}, hybrid: {{{operator}}}) {{ {returned} }} }} }}"
        }


@dataclass(frozen=True)
class MilvusWeightedSearch(Target):
    """Hybrid search of Milvus 2.5 with the weighted reranker, as the body for ``/v2/vectordb/entities/hybrid_search``.

    A clause is a search: ``{"data": [vector], "annsField": FIELD, "limit": N}``. An entity that a search does not
    return gets 0 from it, so give each search a limit of at least the number of candidates. Raw scores are added
    (``norm_score`` is off). Use similarities (cosine, inner product, BM25), not distances.

    Notes
    -----
    Milvus requires weights between 0 and 1, so they are divided by the largest.

    Examples
    --------
    >>> clauses = {name: {"data": [[0.1, 0.9]], "annsField": name, "limit": 100} for name in ("title", "plot")}
    >>> MilvusWeightedSearch().request({"title": 0.5, "plot": 2.0}, clauses)["rerank"]
    {'strategy': 'weighted', 'params': {'weights': [0.25, 1.0], 'norm_score': False}}
    """

    version = "Milvus 2.5"
    documentation = "https://milvus.io/docs/weighted-ranker.md"
    clause_kind = "a search"

    collection: str = "documents"
    """Collection to search."""
    limit: int = 10
    """Number of entities to return."""

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        largest = max(weights.values()) or 1.0
        params = {"weights": [weight / largest for weight in weights.values()], "norm_score": False}
        return {
            "collectionName": self.collection,
            "search": [clauses[name] for name in weights],
            "rerank": {"strategy": "weighted", "params": params},
            "limit": self.limit,
        }


@dataclass(frozen=True)
class LanceDBLinearCombination(Target):
    """Hybrid search of LanceDB 0.30 with its linear combination reranker, as arguments for the Python client.

    There are two features, a full-text search and a vector search, whose scores are scaled to 0..1 over what each
    returns. Pass the result on to a query::

        query = table.search(query_type="hybrid").vector(request["vector"]).text(request["text"])
        reranker = LinearCombinationReranker(**request["reranker"])
        hits = query.rerank(reranker).limit(request["limit"]).to_list()

    The clauses are ``{"text": ...}`` for the full-text search and ``{"vector": [...]}`` for the vector search.

    Examples
    --------
    >>> clauses = {"keyword": {"text": "heat"}, "vector": {"vector": [0.1, 0.9]}}
    >>> LanceDBLinearCombination().request({"keyword": 1.0, "vector": 3.0}, clauses)["reranker"]
    {'weight': 0.75}
    """

    version = "LanceDB 0.30"
    documentation = "https://docs.lancedb.com/integrations/reranking/linear_combination"
    clause_kind = "arguments of the query"
    fusion = "normalized scores"

    keyword: str = "keyword"
    vector: str = "vector"
    """Names of the two features."""
    limit: int = 10
    """Number of rows to return, and of rows that each search returns."""

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        alpha = vector_share(weights, self.keyword, self.vector, self.version)
        given = {**clauses[self.keyword], **clauses[self.vector]}
        return {**given, "reranker": {"weight": alpha}, "limit": self.limit}


@dataclass(frozen=True)
class AzureHybridSearch(Target):
    """Hybrid search of Azure AI Search (REST API 2024-07-01), as the body for ``docs/search``.

    One feature is the keyword search, the others are vector queries. Azure fuses them by reciprocal ranks. **This is
    not the order of the weighted sum**: only positions count. The keyword search has weight 1, so the weight of a
    vector query is divided by the keyword's. If that is 0, the keyword search is left out.

    The clauses are ``{"search": ..., "searchFields": ...}`` for the keyword search, and a vector query without its
    weight for the others: ``{"kind": "vector", "vector": [...], "fields": ..., "k": 50}``.

    Examples
    --------
    >>> query = {"kind": "vector", "vector": [0.1, 0.9], "fields": "embedding", "k": 50}
    >>> clauses = {"keyword": {"search": "heat"}, "text": query}
    >>> request = AzureHybridSearch().request({"keyword": 1.0, "text": 3.0}, clauses)
    >>> request["vectorQueries"][0]["weight"]
    3.0
    """

    version = "Azure AI Search 2024-07-01"
    documentation = "https://learn.microsoft.com/azure/search/hybrid-search-how-to-query"
    clause_kind = "a keyword search or a vector query"
    fusion = "ranks"

    keyword: str = "keyword"
    """Name of the feature of the keyword search."""
    top: int = 10
    """Number of documents to return."""

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        if self.keyword not in weights or len(weights) < 2:
            raise DataError(
                f"{self.version} needs {self.keyword!r} and at least one vector query, got {list(weights)}: set "
                "keyword="
            )
        vectors = {name: weight for name, weight in weights.items() if name != self.keyword and weight > 0}
        unit = weights[self.keyword]
        if unit == 0 and not vectors:
            raise DataError(f"{self.version} needs a weight above 0: nothing was learned for this query")
        keyword = {} if unit == 0 else clauses[self.keyword]
        queries = [{**clauses[name], "weight": weight / (unit or 1.0)} for name, weight in vectors.items()]
        return {**keyword, **({"vectorQueries": queries} if queries else {}), "top": self.top}


@dataclass(frozen=True)
class TypesenseHybridSearch(Target):
    """Hybrid search of Typesense 0.25, as the body for ``/multi_search``.

    There are two features, a keyword search and a vector search. Their weights become alpha, the vector's share. A
    document gets (1 - alpha) / rank from the keyword search and alpha / rank from the vector search. **This is not the
    order of the weighted sum**: only positions count.

    The clauses are ``{"q": ..., "query_by": ...}`` for the keyword search and ``{"field": ..., "vector": [...]}`` for
    the vector search; without a vector, Typesense embeds the query.

    Examples
    --------
    >>> clauses = {"keyword": {"q": "heat", "query_by": "title"}, "vector": {"field": "embedding"}}
    >>> TypesenseHybridSearch().request({"keyword": 1.0, "vector": 3.0}, clauses)["searches"][0]["vector_query"]
    'embedding:([], alpha: 0.75)'
    """

    version = "Typesense 0.25"
    documentation = "https://typesense.org/docs/latest/api/vector-search.html"
    clause_kind = "arguments of the search"
    fusion = "ranks"

    keyword: str = "keyword"
    vector: str = "vector"
    """Names of the two features."""
    collection: str = "documents"
    """Collection to search."""
    limit: int = 10
    """Number of documents to return."""

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
