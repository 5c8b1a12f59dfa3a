"""Azure AI Search: the weights of vector queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kinrank.engines.targets.base import Fuses, Target
from kinrank.errors import DataError


@dataclass(frozen=True)
class HybridSearch(Target):
    """Hybrid search of Azure AI Search (REST API 2024-07-01), as the body for ``docs/search``.

    One feature is the keyword search, the others are vector queries. Azure fuses them by reciprocal ranks. **This is
    not the order of the weighted sum**: only positions count. The keyword search has weight 1, so the weight of a
    vector query is divided by the keyword's. If that is 0, the keyword search is left out.

    The clauses are ``{"search": ..., "searchFields": ...}`` for the keyword search, and a vector query without its
    weight for the others: ``{"kind": "vector", "vector": [...], "fields": ..., "k": 50}``.

    Parameters
    ----------
    keyword : str
        Name of the feature of the keyword search.
    top : int
        Number of documents to return.

    Examples
    --------
    >>> query = {"kind": "vector", "vector": [0.1, 0.9], "fields": "embedding", "k": 50}
    >>> request = HybridSearch().request({"keyword": 1.0, "text": 3.0}, {"keyword": {"search": "heat"}, "text": query})
    >>> request["vectorQueries"][0]["weight"]
    3.0
    """

    version: ClassVar[str] = "Azure AI Search 2024-07-01"
    documentation: ClassVar[str] = "https://learn.microsoft.com/azure/search/hybrid-search-how-to-query"
    clause_kind: ClassVar[str] = "a keyword search or a vector query"
    fusion: ClassVar[Fuses] = "ranks"

    keyword: str = "keyword"
    top: int = 10

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
