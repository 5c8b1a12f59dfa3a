"""Qdrant: a formula over the scores of prefetches and payload fields, or weighted ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kinrank.engines.targets.base import Fuses, Target, shares
from kinrank.errors import DataError

DOCUMENTATION = "https://qdrant.tech/documentation/"


@dataclass(frozen=True)
class FormulaQuery(Target):
    """The formula query of Qdrant 1.14: the weighted sum of prefetched scores and of payload fields.

    A clause is a prefetch (an object), whose score is the feature, or the key of a payload field (text). A point
    that a prefetch did not find scores 0 there, so a prefetch should have a limit as large as the set of candidates, or
    a filter to them; a point without the field has 0.

    Parameters
    ----------
    limit : int
        How many points.

    Notes
    -----
    Weights of any sign are sent as they are. At least one feature must be a prefetch: it finds the candidates.

    Examples
    --------
    >>> clauses = {"text": {"query": [0.1, 0.9], "using": "text", "limit": 100}, "votes": "votes"}
    >>> request = FormulaQuery().request({"text": 2.0, "votes": -0.5}, clauses)
    >>> request["query"]["formula"]
    {'sum': [{'mult': [2.0, '$score[0]']}, {'mult': [-0.5, 'votes']}]}
    >>> request["query"]["defaults"]
    {'votes': 0.0}
    """

    version: ClassVar[str] = "Qdrant 1.14"
    documentation: ClassVar[str] = DOCUMENTATION + "search/search-relevance/"
    clause: ClassVar[str] = "a prefetch or the key of a payload field"
    allows_negative: ClassVar[bool] = True

    limit: int = 10

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        found = [name for name in weights if not isinstance(clauses[name], str)]
        if not found:
            raise DataError(f"{self.version} needs at least one prefetch to find points, got payload fields only")
        variables = {name: f"$score[{found.index(name)}]" if name in found else str(clauses[name]) for name in weights}
        formula: dict[str, Any] = {
            "formula": {"sum": [{"mult": [weight, variables[name]]} for name, weight in weights.items()]}
        }
        fields = {variables[name]: 0.0 for name in weights if name not in found}
        if fields:
            formula["defaults"] = fields
        return {"prefetch": [clauses[name] for name in found], "query": formula, "limit": self.limit}


@dataclass(frozen=True)
class WeightedRRF(Target):
    """Weighted reciprocal rank fusion of Qdrant 1.17.

    A point at position p (from 0) of a prefetch of weight w gets 1 / ((p + 1) / w + k - 1) from it. **Not the order of
    the weighted sum**: scores are forgotten, only positions count; `FormulaQuery` keeps them. Servers before 1.17
    ignore the weights without a word.

    Parameters
    ----------
    k : int
        How little the first positions count more than later ones; Qdrant's own default is 2.
    limit : int
        How many points.

    Notes
    -----
    Weights must not be negative. Here their size matters as well as their proportions: they are divided by their mean,
    so that equal weights are plain reciprocal rank fusion.

    Examples
    --------
    >>> clauses = {name: {"query": [0.1, 0.9], "using": name, "limit": 100} for name in ("title", "plot")}
    >>> WeightedRRF(k=60).request({"title": 3.0, "plot": 1.0}, clauses)["query"]
    {'rrf': {'k': 60, 'weights': [1.5, 0.5]}}
    """

    version: ClassVar[str] = "Qdrant 1.17"
    documentation: ClassVar[str] = DOCUMENTATION + "search/hybrid-queries/"
    clause: ClassVar[str] = "a prefetch"

    k: int = 2
    limit: int = 10

    @property
    def fuses(self) -> Fuses:
        """Ranks."""
        return "ranks"

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        relative = [len(weights) * share for share in shares(weights, self.version)]
        prefetches = [clauses[name] for name in weights]
        return {"prefetch": prefetches, "query": {"rrf": {"k": self.k, "weights": relative}}, "limit": self.limit}
