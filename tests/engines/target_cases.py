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

CASES = {
    "opensearch-hybrid": Case("opensearch-hybrid(size=20)", {"title": 3.0, "text": 1.0}, MATCHES),
    "elasticsearch-linear": Case("elasticsearch-linear", {"title": 0.5, "text": 2.0}, RETRIEVERS),
    "qdrant-formula": Case(
        "qdrant-formula", {"title": 0.5, "text": 2.0, "votes": -0.25}, {**PREFETCHES, "votes": "movie.votes"}
    ),
}
