"""Requests that carry weights, in the documented form of Elasticsearch, OpenSearch and Qdrant."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kinrank.data.normalization import NORMALIZATIONS, Normalization
from kinrank.errors import DataError, ParameterError
from kinrank.registry.choices import check_choice

Ranges = Mapping[str, tuple[float, float]]
NORMALIZERS: dict[str, Normalization | None] = {"none": None, "minmax": "min_max", "l2_norm": "l2"}
MAX_QUERIES = 5
QDRANT = "https://qdrant.tech/documentation/"


@dataclass(frozen=True)
class Target(ABC):
    """Base class of targets: one documented way to send weights to a search engine.

    The fields of a target are the other settings of its request. Weights that the engine does not accept are an error,
    or are changed in a way that keeps the order: by a common factor, or by a constant added to every document.
    """

    version: ClassVar[str]
    """The engine and the first version that supports the request."""

    documentation: ClassVar[str]
    """URL of the vendor's documentation of the request."""

    clause_kind: ClassVar[str]
    """What the engine needs for each feature besides its weight."""

    allows_negative: ClassVar[bool] = False
    """Whether weights can be negative."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, default = getattr(self, field.name), field.default
            positive = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if isinstance(default, int) and not positive:
                raise ParameterError(f"{field.name} must be a positive integer, got {value!r}")
            if isinstance(default, str) and not isinstance(value, str):
                raise ParameterError(f"{field.name} must be a string, got {value!r}")

    @property
    def normalization(self) -> Normalization | None:
        """How the engine normalizes scores; None if it does not."""
        return None

    def request(
        self,
        weights: Mapping[str, float],
        clauses: Mapping[str, Any] | None = None,
        *,
        ranges: Ranges | None = None,
        inverted: Collection[str] = (),
        normalization: Normalization | None = None,
        boosts: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """Return the body of the request, or the part of it that holds the weights.

        Parameters
        ----------
        weights
            Weight of each feature: a row of `Ranker.weights` by feature name.
        clauses
            Clause of each feature, as described by `clause_kind`.
        ranges
            Minimum and maximum of each feature among the candidates of the query (`value_ranges`), for engines that
            normalize scores. These engines divide the scores of a clause by (maximum - minimum); with `ranges` the
            weights are multiplied by it, which restores the order of the raw features. This requires that every clause
            returns every candidate, for example
            ``{"bool": {"must": [{"ids": ...}], "should": [clause]}}`` in Elasticsearch and OpenSearch. Without
            `ranges`, the weights apply to normalized scores.
        inverted
            Features whose clause scores a constant minus the feature. The sign of their weights is changed, so that
            engines without negative weights can use features where lower is better.
        normalization
            What the weights are for: features as they are (None), or normalized within the query, as for a ranker with
            `Ranker.normalization`. Such weights need no `ranges`, and an engine that normalizes in the same way.
        boosts
            What to add to the weighted sum of single documents, by id, as a model of choices has it.

        Raises
        ------
        kinrank.errors.DataError
            If the engine does not support the weights or boosts, or a clause is missing.
        """
        checked = _check_weights(weights, inverted)
        if normalization is not None:
            self._check_normalization(normalization)
        elif ranges is not None and self.normalization is not None:
            checked = {name: weight * _range_width(name, ranges) for name, weight in checked.items()}
        if not self.allows_negative:
            self._check_not_negative(checked)
        given = {} if clauses is None else dict(clauses)
        self._check_clauses(checked, given)
        request = self._request(checked, given)
        return self._boosted(request, boosts) if boosts else request

    @abstractmethod
    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        """Return the request for valid weights and clauses."""

    def _boosted(self, request: dict[str, Any], boosts: Mapping[str, float]) -> dict[str, Any]:  # noqa: ARG002
        """Return the request with boosts of documents."""
        raise DataError(
            f"{self.version} cannot boost single documents in this request, and {len(boosts)} have boosts: use "
            "elasticsearch-linear, or the request of POST /v1/weights; or rank with POST /v1/rank"
        )

    def _check_normalization(self, normalization: Normalization) -> None:
        """Raise unless the engine normalizes as the weights expect."""
        if self.normalization != normalization:
            applied = "adds raw scores" if self.normalization is None else f"normalizes by {self.normalization}"
            wanted = "none" if self.normalization is None else self.normalization
            raise DataError(
                f"the weights are for {normalization} scores, and {self.version} {applied}: learn with "
                f"scale={wanted!r} of the ranker, or use another target"
            )

    def _check_not_negative(self, weights: Mapping[str, float]) -> None:
        for name, weight in weights.items():
            if weight < 0:
                raise DataError(
                    f"{self.version} does not support negative weights, and the weight of {name!r} is {weight:.4g}: "
                    f"learn with RankRLS(nonnegative=True), or pass a clause that scores a constant minus {name!r} and "
                    "list the feature in inverted"
                )

    def _check_clauses(self, weights: Mapping[str, float], clauses: Mapping[str, Any]) -> None:
        missing = [name for name in weights if name not in clauses]
        unknown = [name for name in clauses if name not in weights]
        if missing or unknown:
            raise DataError(
                f"{self.version} needs {self.clause_kind} for each feature: missing {missing}, without a weight "
                f"{unknown}"
            )


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
    def normalization(self) -> Normalization | None:
        """As set by the normalizer."""
        check_choice("normalizer", self.normalizer, tuple(NORMALIZERS))
        return NORMALIZERS[self.normalizer]

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        check_choice("normalizer", self.normalizer, tuple(NORMALIZERS))
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
class HybridQuery(Target):
    """Hybrid query of OpenSearch 2.10, with the normalization processor in the request.

    The temporary pipeline applies to this request only, so each query can have its own weights. Scores are normalized
    over the documents that a sub-query returns. A document that it does not return, or that it scores 0, gets 0; the
    lowest other min-max score becomes 0.001. So sub-queries should return all candidates, with positive scores.

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

    version = "OpenSearch 2.10"
    documentation = "https://docs.opensearch.org/docs/search-plugins/search-pipelines/normalization-processor"
    clause_kind = "a sub-query"

    technique: Normalization = "min_max"
    """Normalization. ``"z_score"`` needs OpenSearch 3.0."""
    size: int = 10
    """Number of hits, and of documents that a sub-query returns from each shard: at least the number of candidates."""

    @property
    def normalization(self) -> Normalization:
        """As set by the technique."""
        check_choice("technique", self.technique, NORMALIZATIONS)
        return self.technique

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        if len(weights) > MAX_QUERIES:
            raise DataError(
                f"{self.version} supports at most {MAX_QUERIES} sub-queries, got {len(weights)}: leave out features "
                "with weight 0, or learn from fewer features"
            )
        processor = {
            "normalization": {"technique": self.normalization},
            "combination": {
                "technique": "arithmetic_mean",
                "parameters": {"weights": _normalize_weights(weights, self.version)},
            },
        }
        return {
            "size": self.size,
            "query": {"hybrid": {"queries": [clauses[name] for name in weights]}},
            "search_pipeline": {"phase_results_processors": [{"normalization-processor": processor}]},
        }


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
    documentation = QDRANT + "search/search-relevance/"
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


def value_ranges(feature_names: Sequence[str], X: NDArray[Any]) -> dict[str, tuple[float, float]]:
    """Return the minimum and maximum of each feature among the candidates of one query. Missing values count as 0.

    Examples
    --------
    >>> value_ranges(["title", "votes"], np.array([[0.0, 7.0], [2.5, 3.0]]))
    {'title': (0.0, 2.5), 'votes': (3.0, 7.0)}
    """
    values = np.where(np.isnan(X), 0.0, X)
    bounds = zip(values.min(axis=0).tolist(), values.max(axis=0).tolist(), strict=True)
    return dict(zip(feature_names, bounds, strict=True))


def _normalize_weights(weights: Mapping[str, float], version: str) -> list[float]:
    """Divide the weights by their sum. The order does not change, since only their proportions matter."""
    total = math.fsum(weights.values())
    if total == 0:
        raise DataError(
            f"{version} needs weights that sum to 1, but all weights are 0: nothing was learned for this query"
        )
    return [weight / total for weight in weights.values()]


def _check_weights(weights: Mapping[str, float], inverted: Collection[str]) -> dict[str, float]:
    if not weights:
        raise DataError("no weights given: pass at least one feature")
    unknown = [name for name in inverted if name not in weights]
    if unknown:
        raise DataError(f"inverted feature {unknown[0]!r} has no weight; features with a weight: {', '.join(weights)}")
    signed = {str(name): -float(weight) if name in inverted else float(weight) for name, weight in weights.items()}
    for name, weight in signed.items():
        if not math.isfinite(weight):
            raise DataError(f"the weight of {name!r} must be finite, got {weight}")
    return {name: weight + 0.0 for name, weight in signed.items()}  # -0.0 becomes 0.0


def _range_width(name: str, ranges: Ranges) -> float:
    if name not in ranges:
        raise DataError(f"ranges has no entry for {name!r}: give the minimum and maximum of every feature")
    minimum, maximum = ranges[name]
    if not maximum >= minimum:
        raise DataError(f"the maximum of the range of {name!r} is below its minimum, got {minimum} to {maximum}")
    return maximum - minimum
