"""Weaviate: the alpha of a hybrid search."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kinrank.engines.targets.base import Fuses, Target, vector_share
from kinrank.errors import DataError

ARGUMENTS = ("query", "properties", "vector", "targetVectors")
"""Arguments of the hybrid operator that clauses can set."""


@dataclass(frozen=True)
class HybridSearch(Target):
    """Hybrid search of Weaviate 1.20 with relative score fusion, as the body for ``/v1/graphql``.

    There are two features, a keyword search and a vector search. Their weights become alpha, the vector's share of the
    sum. The scores of each search are scaled to 0..1 over its results before they are added. **The order only
    approximates that of the weighted sum**: a keyword search returns matching objects only, so its scores are not
    scaled over all candidates.

    The clauses are arguments of the hybrid operator: ``{"query": ..., "properties": [...]}`` for the keyword search,
    ``{"vector": [...]}`` for the vector search, or an empty object if Weaviate computes the vector.

    Parameters
    ----------
    keyword, vector : str
        Names of the two features.
    collection : str
        Collection to search.
    fields : list of str
        Properties to return.
    limit : int
        Number of objects to return.

    Examples
    --------
    >>> request = HybridSearch().request({"keyword": 1.0, "vector": 3.0}, {"keyword": {"query": "heat"}, "vector": {}})
    >>> print(request["query"])
    { Get { Document(limit: 10, hybrid: {query: "heat", alpha: 0.75, fusionType: relativeScoreFusion})
      { _additional { id score } } } }
    """

    version: ClassVar[str] = "Weaviate 1.20"
    documentation: ClassVar[str] = "https://docs.weaviate.io/weaviate/api/graphql/search-operators#hybrid"
    clause_kind: ClassVar[str] = "arguments of the hybrid operator"
    fusion: ClassVar[Fuses] = "normalized scores"

    keyword: str = "keyword"
    vector: str = "vector"
    collection: str = "Document"
    fields: Sequence[str] = ()
    limit: int = 10

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
