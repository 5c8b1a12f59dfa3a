"""OpenSearch: a hybrid query with its weights in a temporary search pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kinrank.engines.targets.base import Fuses, Target, normalize_weights
from kinrank.errors import DataError

MAX_QUERIES = 5


@dataclass(frozen=True)
class HybridQuery(Target):
    """Hybrid query of OpenSearch 2.10, with the normalization processor in the request.

    The temporary pipeline applies to this request only, so each query can have its own weights. Scores are min-max
    normalized over the documents that a sub-query returns. A document that it does not return, or that it scores 0,
    gets 0; the lowest other score becomes 0.001. So sub-queries should return all candidates, with positive scores.

    Parameters
    ----------
    size : int
        Number of hits, and of documents that a sub-query returns from each shard: at least the number of candidates.

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

    version: ClassVar[str] = "OpenSearch 2.10"
    documentation: ClassVar[str] = (
        "https://docs.opensearch.org/docs/search-plugins/search-pipelines/normalization-processor"
    )
    clause_kind: ClassVar[str] = "a sub-query"

    size: int = 10

    @property
    def fuses(self) -> Fuses:
        """Scores normalized per query."""
        return "normalized scores"

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        if len(weights) > MAX_QUERIES:
            raise DataError(
                f"{self.version} supports at most {MAX_QUERIES} sub-queries, got {len(weights)}: leave out features "
                "with weight 0, or learn from fewer features"
            )
        processor = {
            "normalization": {"technique": "min_max"},
            "combination": {
                "technique": "arithmetic_mean",
                "parameters": {"weights": normalize_weights(weights, self.version)},
            },
        }
        return {
            "size": self.size,
            "query": {"hybrid": {"queries": [clauses[name] for name in weights]}},
            "search_pipeline": {"phase_results_processors": [{"normalization-processor": processor}]},
        }
