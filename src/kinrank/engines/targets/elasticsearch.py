"""Elasticsearch: the linear retriever, and weighted reciprocal rank fusion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kinrank.data.normalization import Normalization
from kinrank.engines.targets.base import Fuses, Target, relative_weights
from kinrank.errors import ParameterError
from kinrank.registry.choices import check_choice

NORMALIZERS: dict[str, Normalization | None] = {"none": None, "minmax": "min_max", "l2_norm": "l2"}


@dataclass(frozen=True)
class LinearRetriever(Target):
    """Linear retriever of Elasticsearch 8.18: a weighted sum of the scores of other retrievers.

    Notes
    -----
    Weights must not be negative. They are sent unchanged. Boosts of documents are a further retriever, which also finds
    these documents. It cannot lower a document: negative boosts are left out.

    Examples
    --------
    >>> clauses = {"title": {"standard": {"query": {"match": {"title": "heat"}}}}}
    >>> LinearRetriever().request({"title": 0.5}, clauses)["retriever"]["linear"]["retrievers"][0]["weight"]
    0.5
    """

    version = "Elasticsearch 8.18"
    documentation = "https://www.elastic.co/docs/reference/elasticsearch/rest-apis/retrievers/linear-retriever"
    clause_kind = "a retriever"

    normalizer: Literal["none", "minmax", "l2_norm"] = "none"
    """Normalization of the scores before they are weighted. ``"none"`` ranks by the raw features. With the others every
    retriever should return every candidate, since scores are scaled over the documents it returns. ``"l2_norm"`` needs
    Elasticsearch 8.19.
    """
    window: int = 100
    """Number of documents that each retriever returns, at least `size`. Other documents get 0 from it."""
    size: int = 10
    """Number of hits."""

    @property
    def fuses(self) -> Fuses:
        """Raw scores, unless a normalizer is set."""
        return "scores" if self.normalizer == "none" else "normalized scores"

    @property
    def normalization(self) -> Normalization | None:
        """As set by the normalizer."""
        check_choice("normalizer", self.normalizer, tuple(NORMALIZERS))
        return NORMALIZERS[self.normalizer]

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        check_choice("normalizer", self.normalizer, tuple(NORMALIZERS))
        check_window(self.window, self.size)
        retrievers = [
            {"retriever": clauses[name], "weight": weight, "normalizer": self.normalizer}
            for name, weight in weights.items()
        ]
        return {
            "size": self.size,
            "retriever": {"linear": {"retrievers": retrievers, "rank_window_size": self.window}},
        }

    def _boosted(self, request: dict[str, Any], boosts: Mapping[str, float]) -> dict[str, Any]:
        documents = [
            {"constant_score": {"filter": {"ids": {"values": [doc_id]}}, "boost": boost}}
            for doc_id, boost in boosts.items()
            if boost > 0
        ]
        if documents:
            retriever = {"standard": {"query": {"bool": {"should": documents}}}}
            part = {"retriever": retriever, "weight": 1.0, "normalizer": "none"}
            request["retriever"]["linear"]["retrievers"].append(part)
        return request


@dataclass(frozen=True)
class RRFRetriever(Target):
    """Weighted reciprocal rank fusion (RRF) of Elasticsearch 9.2.

    A document at position r (from 1) of a retriever with weight w gets w / (rank_constant + r) from it. **This is not
    the order of the weighted sum**: RRF uses positions and ignores scores.

    Notes
    -----
    Weights must not be negative. They are divided by their mean, so that equal weights give plain RRF.

    Examples
    --------
    >>> clauses = {name: {"standard": {"query": {"match": {name: "heat"}}}} for name in ("title", "plot")}
    >>> request = RRFRetriever().request({"title": 3.0, "plot": 1.0}, clauses)
    >>> [part["weight"] for part in request["retriever"]["rrf"]["retrievers"]]
    [1.5, 0.5]
    """

    version = "Elasticsearch 9.2"
    documentation = "https://www.elastic.co/docs/reference/elasticsearch/rest-apis/retrievers/rrf-retriever"
    clause_kind = "a retriever"
    fusion = "ranks"

    rank_constant: int = 60
    """Constant of RRF; with a larger one the first positions count less."""
    window: int = 100
    """Number of documents that each retriever returns, at least `size`."""
    size: int = 10
    """Number of hits."""

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        check_window(self.window, self.size)
        relative = zip(weights, relative_weights(weights, self.version), strict=True)
        rrf = {
            "retrievers": [{"retriever": clauses[name], "weight": weight} for name, weight in relative],
            "rank_constant": self.rank_constant,
            "rank_window_size": self.window,
        }
        return {"size": self.size, "retriever": {"rrf": rrf}}


def check_window(window: int, size: int) -> None:
    """Raise if the window is smaller than the number of hits."""
    if window < size:
        raise ParameterError(f"window must be at least size, got {window} and {size}")
