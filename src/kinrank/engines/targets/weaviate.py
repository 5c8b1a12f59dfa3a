"""Weaviate: the alpha of a hybrid search."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kinrank.engines.targets.base import Fuses, Target, shares
from kinrank.errors import DataError

ARGUMENTS = ("query", "properties", "vector", "targetVectors")
"""What a clause may say of the hybrid operator."""


@dataclass(frozen=True)
class HybridSearch(Target):
    """A hybrid search of Weaviate 1.20 by relative scores, as the body for ``/v1/graphql``.

    There are two features, a keyword search and a vector search, and their weights become one number: alpha, the
    vector's share of the sum. Scores of each search are scaled to 0..1 over what it found before they are added.
    **Near the order of the weighted sum**, no more: a keyword search finds only what matches, so its scale is not that
    of the candidates.

    The clauses hold arguments of the hybrid operator: ``{"query": ..., "properties": [...]}`` for the keyword search,
    ``{"vector": [...]}`` for the vector search, or an empty object where Weaviate makes the vector itself.

    Parameters
    ----------
    keyword, vector : str
        Which features they are.
    collection : str
        What is searched.
    fields : list of str
        The properties to return.
    limit : int
        How many objects.

    Examples
    --------
    >>> request = HybridSearch().request({"keyword": 1.0, "vector": 3.0}, {"keyword": {"query": "heat"}, "vector": {}})
    >>> print(request["query"])
    { Get { Document(limit: 10, hybrid: {query: "heat", alpha: 0.75, fusionType: relativeScoreFusion})
      { _additional { id score } } } }
    """

    version: ClassVar[str] = "Weaviate 1.20"
    documentation: ClassVar[str] = "https://docs.weaviate.io/weaviate/api/graphql/search-operators#hybrid"
    clause: ClassVar[str] = "arguments of the hybrid operator"

    keyword: str = "keyword"
    vector: str = "vector"
    collection: str = "Document"
    fields: Sequence[str] = ()
    limit: int = 10

    @property
    def fuses(self) -> Fuses:
        """Scores normalized per query."""
        return "normalized scores"

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        if set(weights) != {self.keyword, self.vector}:
            raise DataError(
                f"{self.version} weighs two features, {self.keyword!r} and {self.vector!r}, got {list(weights)}: "
                "learn from these two, or name others with keyword= and vector="
            )
        alpha = dict(zip(weights, shares(weights, self.version), strict=True))[self.vector]
        given = {**clauses[self.keyword], **clauses[self.vector]}
        unknown = [name for name in given if name not in ARGUMENTS]
        if unknown or "query" not in given:
            raise DataError(
                f"the clauses of {self.version} must say 'query' and may say {', '.join(ARGUMENTS[1:])}, "
                f"got {list(given)}"
            )
        # Names and the fusion type stand bare in GraphQL, everything else is written as in JSON.
        words = {name: json.dumps(value, ensure_ascii=False) for name, value in given.items()}
        words |= {"alpha": json.dumps(alpha), "fusionType": "relativeScoreFusion"}
        operator = ", ".join(f"{name}: {value}" for name, value in words.items())
        wanted = " ".join([*self.fields, "_additional { id score }"])
        return {
            "query": f"{{ Get {{ {self.collection}(limit: {self.limit}, hybrid: {{{operator}}}) {{ {wanted} }} }} }}"
        }
