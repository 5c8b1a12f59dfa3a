"""OpenSearch: a hybrid query with its weights in a temporary search pipeline, by scores or by ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kinrank.data.normalization import NORMALIZATIONS, Normalization
from kinrank.engines.targets.base import Target, normalize_weights
from kinrank.errors import DataError
from kinrank.registry.choices import check_choice

MAX_QUERIES = 5


@dataclass(frozen=True)
class HybridQuery(Target):
    """Hybrid query of OpenSearch 2.10, with the normalization processor in the request.

    The temporary pipeline applies to this request only, so each query can have its own weights. Scores are normalized
    over the documents that a sub-query returns. A document that it does not return, or that it scores 0, gets 0; the
    lowest other min-max score becomes 0.001. So sub-queries should return all candidates, with positive scores.

    Notes
    -----
    OpenSearch requires weights between 0 and 1 that sum to 1, so they are divided by their sum. At most five
    sub-queries are supported. Documents that differ by less than 0.1% of the range of a feature may swap places.

    Examples
    --------
    >>> clauses = {"title": {"match": {"title": "heat"}}, "plot": {"match": {"plot": "heat"}}}
    >>> request = HybridQuery().request({"title": 3.0, "plot": 1.0}, clauses)
    >>> request["search_pipeline"]["phase_results_processors"][0]["normalization-processor"]["combination"]
    {'technique': 'arithmetic_mean', 'parameters': {'weights': [0.75, 0.25]}}
    """

    version = "OpenSearch 2.10"
    documentation = "https://docs.opensearch.org/docs/search-plugins/search-pipelines/normalization-processor"
    clause_kind = "a sub-query"
    fusion = "normalized scores"

    technique: Normalization = "min_max"
    """Normalization. ``"z_score"`` needs OpenSearch 3.0."""
    size: int = 10
    """Number of hits, and of documents that a sub-query returns from each shard: at least the number of candidates."""

    @property
    def normalization(self) -> Normalization:
        """As set by the technique."""
        check_choice("technique", self.technique, NORMALIZATIONS)
        return self.technique

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        processor = {
            "normalization": {"technique": self.normalization},
            "combination": {
                "technique": "arithmetic_mean",
                "parameters": {"weights": normalize_weights(weights, self.version)},
            },
        }
        queries = _sub_queries(weights, clauses, self.version)
        return _hybrid_query(self.size, queries, {"normalization-processor": processor})


@dataclass(frozen=True)
class HybridRRF(Target):
    """Hybrid query of OpenSearch 3.1 with weighted reciprocal rank fusion (RRF) in the request.

    A document at position r (from 1) of a sub-query with weight w gets w / (rank_constant + r) from it. **This is not
    the order of the weighted sum**: RRF uses positions and ignores scores; `HybridQuery` uses scores.

    Notes
    -----
    OpenSearch requires weights between 0 and 1 that sum to 1, so they are divided by their sum. At most five
    sub-queries are supported.

    Examples
    --------
    >>> clauses = {"title": {"match": {"title": "heat"}}, "plot": {"match": {"plot": "heat"}}}
    >>> request = HybridRRF().request({"title": 3.0, "plot": 1.0}, clauses)
    >>> request["search_pipeline"]["phase_results_processors"][0]["score-ranker-processor"]["combination"]
    {'technique': 'rrf', 'rank_constant': 60, 'parameters': {'weights': [0.75, 0.25]}}
    """

    version = "OpenSearch 3.1"
    documentation = "https://docs.opensearch.org/docs/search-plugins/search-pipelines/score-ranker-processor"
    clause_kind = "a sub-query"
    fusion = "ranks"

    rank_constant: int = 60
    """Constant of RRF; with a larger one the first positions count less."""
    size: int = 10
    """Number of hits, and of documents that a sub-query returns from each shard."""

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        combination = {
            "technique": "rrf",
            "rank_constant": self.rank_constant,
            "parameters": {"weights": normalize_weights(weights, self.version)},
        }
        queries = _sub_queries(weights, clauses, self.version)
        return _hybrid_query(self.size, queries, {"score-ranker-processor": {"combination": combination}})


def _sub_queries(weights: dict[str, float], clauses: dict[str, Any], version: str) -> list[Any]:
    if len(weights) > MAX_QUERIES:
        raise DataError(
            f"{version} supports at most {MAX_QUERIES} sub-queries, got {len(weights)}: leave out features with "
            "weight 0, or learn from fewer features"
        )
    return [clauses[name] for name in weights]


def _hybrid_query(size: int, queries: list[Any], processor: dict[str, Any]) -> dict[str, Any]:
    return {
        "size": size,
        "query": {"hybrid": {"queries": queries}},
        "search_pipeline": {"phase_results_processors": [processor]},
    }
