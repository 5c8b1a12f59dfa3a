"""A small example request for every target."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
SCHEMAS = HERE / "schemas"


class Case(NamedTuple):
    """Arguments of a request to a target."""

    spec: str
    weights: dict[str, float]
    clauses: dict[str, Any] | None = None


MATCHES = {
    "title": {"match": {"title": {"query": "heat"}}},
    "text": {"knn": {"text_vector": {"vector": [0.1, 0.9], "k": 100}}},
}
RETRIEVERS = {
    "title": {"standard": {"query": {"match": {"title": "heat"}}}},
    "text": {"knn": {"field": "text_vector", "query_vector": [0.1, 0.9], "k": 100, "num_candidates": 200}},
}
PREFETCHES = {
    "title": {"query": {"indices": [7, 42], "values": [1.0, 0.5]}, "using": "title", "limit": 100},
    "text": {"query": [0.1, 0.9], "using": "text", "limit": 100},
}
HYBRID = {
    "keyword": {"query": 'the "heat" of\nthe night', "properties": ["title^3", "plot"]},
    "vector": {"vector": [0.1, 0.9]},
}
SEARCHES = {
    "title": {"data": [{"7": 1.0, "42": 0.5}], "annsField": "title", "limit": 100},
    "text": {"data": [[0.1, 0.9]], "annsField": "text", "limit": 100},
}
SELECTS = {
    "title": {
        "sql": "SELECT id, ts_rank_cd(title, plainto_tsquery(%(text)s)) AS score FROM movies "
        "WHERE title @@ plainto_tsquery(%(text)s) ORDER BY score DESC LIMIT 100",
        "params": {"text": "heat"},
    },
    "text": {
        "sql": "SELECT id, 1 - (embedding <=> %(vector)s::vector) AS score FROM movies "
        "ORDER BY embedding <=> %(vector)s::vector LIMIT 100",
        "params": {"vector": "[0.1, 0.9]"},
    },
}
ROWS = {"keyword": {"text": "heat"}, "vector": {"vector": [0.1, 0.9]}}
AZURE = {
    "keyword": {"search": "heat", "searchFields": "title,plot"},
    "text": {"kind": "vector", "vector": [0.1, 0.9], "fields": "embedding", "k": 50},
}
TYPESENSE = {"keyword": {"q": "heat", "query_by": "title,plot"}, "vector": {"field": "text", "vector": [0.1, 0.9]}}

CASES = {
    "opensearch-hybrid": Case("opensearch-hybrid(size=20)", {"title": 3.0, "text": 1.0}, MATCHES),
    "opensearch-rrf": Case("opensearch-rrf(size=20)", {"title": 3.0, "text": 1.0}, MATCHES),
    "elasticsearch-rrf": Case("elasticsearch-rrf", {"title": 3.0, "text": 1.0}, RETRIEVERS),
    "elasticsearch-linear": Case("elasticsearch-linear", {"title": 0.5, "text": 2.0}, RETRIEVERS),
    "vespa": Case("vespa", {"title": 0.5, 'the "text"': -0.25}),
    "qdrant-formula": Case(
        "qdrant-formula", {"title": 0.5, "text": 2.0, "votes": -0.25}, {**PREFETCHES, "votes": "movie.votes"}
    ),
    "qdrant-rrf": Case("qdrant-rrf(k=60)", {"title": 3.0, "text": 1.0}, PREFETCHES),
    "weaviate-hybrid": Case(
        "weaviate-hybrid(collection='Movie', fields=['title'])", {"keyword": 1.0, "vector": 3.0}, HYBRID
    ),
    "milvus-weighted": Case("milvus-weighted(collection='movies')", {"title": 0.5, "text": 2.0}, SEARCHES),
    "lancedb-hybrid": Case("lancedb-hybrid", {"keyword": 1.0, "vector": 3.0}, ROWS),
    "pgvector": Case("pgvector", {"title": 1.0, "text": 3.0}, SELECTS),
    "azure-hybrid": Case("azure-hybrid", {"keyword": 2.0, "text": 3.0}, AZURE),
    "typesense-hybrid": Case("typesense-hybrid(collection='movies')", {"keyword": 1.0, "vector": 3.0}, TYPESENSE),
    "solr-ltr": Case("solr-ltr(name='kin', store='movies')", {"title": 0.5, "votes": -0.25}),
    "ltr-plugin": Case("ltr-plugin(name='kin')", {"title": 0.5, "votes": 0.25}),
}
