"""Elasticsearch: the linear retriever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kinrank.engines.targets.base import Fuses, Target
from kinrank.errors import ParameterError
from kinrank.registry.choices import check_choice


@dataclass(frozen=True)
class LinearRetriever(Target):
    """Linear retriever of Elasticsearch 8.18: a weighted sum of the scores of other retrievers.

    Parameters
    ----------
    normalizer : {"none", "minmax"}
        Normalization of the scores before they are weighted. ``"none"`` ranks by the raw features. With ``"minmax"``
        every retriever should return every candidate, since scores are scaled over the documents it returns.
    window : int
        Number of documents that each retriever returns, at least `size`. Other documents get 0 from it.
    size : int
        Number of hits.

    Notes
    -----
    Weights must not be negative. They are sent unchanged.

    Examples
    --------
    >>> clauses = {"title": {"standard": {"query": {"match": {"title": "heat"}}}}}
    >>> LinearRetriever().request({"title": 0.5}, clauses)["retriever"]["linear"]["retrievers"][0]["weight"]
    0.5
    """

    version: ClassVar[str] = "Elasticsearch 8.18"
    documentation: ClassVar[str] = (
        "https://www.elastic.co/docs/reference/elasticsearch/rest-apis/retrievers/linear-retriever"
    )
    clause_kind: ClassVar[str] = "a retriever"

    normalizer: Literal["none", "minmax"] = "none"
    window: int = 100
    size: int = 10

    @property
    def fuses(self) -> Fuses:
        """Raw scores, unless a normalizer is set."""
        return "scores" if self.normalizer == "none" else "normalized scores"

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        check_choice("normalizer", self.normalizer, ("none", "minmax"))
        if self.window < self.size:
            raise ParameterError(f"window must be at least size, got {self.window} and {self.size}")
        retrievers = [
            {"retriever": clauses[name], "weight": weight, "normalizer": self.normalizer}
            for name, weight in weights.items()
        ]
        return {
            "size": self.size,
            "retriever": {"linear": {"retrievers": retrievers, "rank_window_size": self.window}},
        }
