"""Qdrant: a formula over prefetched scores and payload fields, or weighted reciprocal rank fusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kinrank.engines.targets.base import Target, relative_weights
from kinrank.errors import DataError

DOCUMENTATION = "https://qdrant.tech/documentation/"


@dataclass(frozen=True)
class FormulaQuery(Target):
    """Formula query of Qdrant 1.14: the weighted sum of prefetched scores and payload fields.

    A clause is a prefetch (an object), whose score is the feature, or the key of a payload field (a string). A point
    that a prefetch does not return gets 0 from it, so filter each prefetch to the candidates or give it a limit of at
    least their number. A point without the payload field gets 0.

    Notes
    -----
    Weights of any sign are sent unchanged. At least one feature must be a prefetch, to find the candidates.

    Examples
    --------
    >>> clauses = {"text": {"query": [0.1, 0.9], "using": "text", "limit": 100}, "votes": "votes"}
    >>> request = FormulaQuery().request({"text": 2.0, "votes": -0.5}, clauses)
    >>> request["query"]["formula"]
    {'sum': [{'mult': [2.0, '$score[0]']}, {'mult': [-0.5, 'votes']}]}
    >>> request["query"]["defaults"]
    {'votes': 0.0}
    """

    version = "Qdrant 1.14"
    documentation = DOCUMENTATION + "search/search-relevance/"
    clause_kind = "a prefetch or the key of a payload field"
    allows_negative = True

    limit: int = 10
    """Number of points to return."""

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        prefetched = [name for name in weights if not isinstance(clauses[name], str)]
        if not prefetched:
            raise DataError(f"{self.version} needs at least one prefetch to find points, got payload fields only")
        scores = {name: f"$score[{position}]" for position, name in enumerate(prefetched)}
        variables = {name: scores.get(name, clauses[name]) for name in weights}
        formula: dict[str, Any] = {
            "formula": {"sum": [{"mult": [weight, variables[name]]} for name, weight in weights.items()]}
        }
        fields = {variables[name]: 0.0 for name in weights if name not in prefetched}
        if fields:
            formula["defaults"] = fields
        return {"prefetch": [clauses[name] for name in prefetched], "query": formula, "limit": self.limit}


@dataclass(frozen=True)
class WeightedRRF(Target):
    """Weighted reciprocal rank fusion (RRF) of Qdrant 1.17.

    A point at position p (from 0) of a prefetch with weight w gets 1 / ((p + 1) / w + k - 1) from it. **This is not the
    order of the weighted sum**: RRF uses positions and ignores scores; `FormulaQuery` uses scores. Servers before 1.17
    ignore the weights without an error.

    Notes
    -----
    Weights must not be negative. Not only their proportions matter, so they are divided by their mean: equal weights
    give plain RRF.

    Examples
    --------
    >>> clauses = {name: {"query": [0.1, 0.9], "using": name, "limit": 100} for name in ("title", "plot")}
    >>> WeightedRRF(k=60).request({"title": 3.0, "plot": 1.0}, clauses)["query"]
    {'rrf': {'k': 60, 'weights': [1.5, 0.5]}}
    """

    version = "Qdrant 1.17"
    documentation = DOCUMENTATION + "search/hybrid-queries/"
    clause_kind = "a prefetch"
    fusion = "ranks"

    k: int = 2
    """Constant of RRF; with a larger k the first positions count less. Qdrant's default is 2."""
    limit: int = 10
    """Number of points to return."""

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        relative = relative_weights(weights, self.version)
        prefetches = [clauses[name] for name in weights]
        return {"prefetch": prefetches, "query": {"rrf": {"k": self.k, "weights": relative}}, "limit": self.limit}
