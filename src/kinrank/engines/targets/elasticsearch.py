"""Elasticsearch: the linear retriever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kinrank.engines.targets.base import Fuses, Target, check_choice
from kinrank.errors import ParameterError


@dataclass(frozen=True)
class LinearRetriever(Target):
    """The linear retriever of Elasticsearch 8.18: a weighted sum of the scores of other retrievers.

    Parameters
    ----------
    normalizer : {"none", "minmax"}
        What is done to scores before they are weighed. ``"none"`` ranks by features as they are; with ``"minmax"``
        every retriever should return every candidate, since scores are scaled over what it returned.
    window : int
        How many documents each retriever gives; one that it did not give scores 0 there. At least `size`.
    size : int
        How many hits.

    Notes
    -----
    Weights must not be negative; they are sent as they are.

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
    clause: ClassVar[str] = "a retriever"

    normalizer: Literal["none", "minmax"] = "none"
    window: int = 100
    size: int = 10

    @property
    def fuses(self) -> Fuses:
        """Scores as they are, unless a normalizer is set."""
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
