"""OpenSearch: a hybrid query whose weights stand in a search pipeline of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kinrank.engines.targets.base import Fuses, Target, shares
from kinrank.errors import DataError

MOST_QUERIES = 5


@dataclass(frozen=True)
class HybridQuery(Target):
    """The hybrid query of OpenSearch 2.10, with the normalization processor in the request.

    The temporary pipeline is used for this request only, so each query may have weights of its own. Scores are
    normalized (min-max) per sub-query over what it retrieved; a document that it did not retrieve, or that scores 0
    there, gets 0, the lowest of the others .001. So sub-queries should return all candidates, with scores above 0.

    Parameters
    ----------
    size : int
        How many hits; also how many documents a sub-query retrieves of each shard: at least as many as candidates.

    Notes
    -----
    Weights must lie between 0 and 1 and sum to 1: they are divided by their sum. At most five sub-queries. Documents
    that differ by less than a thousandth of the range of a feature may change places.

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
    clause: ClassVar[str] = "a sub-query"

    size: int = 10

    @property
    def fuses(self) -> Fuses:
        """Scores normalized per query."""
        return "normalized scores"

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        if len(weights) > MOST_QUERIES:
            raise DataError(
                f"{self.version} takes at most {MOST_QUERIES} sub-queries, got {len(weights)}: leave out features of "
                "weight 0, or learn from fewer"
            )
        processor = {
            "normalization": {"technique": "min_max"},
            "combination": {
                "technique": "arithmetic_mean",
                "parameters": {"weights": shares(weights, self.version)},
            },
        }
        return {
            "size": self.size,
            "query": {"hybrid": {"queries": [clauses[name] for name in weights]}},
            "search_pipeline": {"phase_results_processors": [{"normalization-processor": processor}]},
        }
