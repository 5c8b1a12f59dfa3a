"""Interface of targets: from weights to a request."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kinrank.data.normalization import Normalization
from kinrank.errors import DataError, ParameterError

Fuses = Literal["scores", "normalized scores", "ranks"]
Ranges = Mapping[str, tuple[float, float]]


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

    clause_kind: ClassVar[str] = ""
    """What the engine needs for each feature besides its weight. Empty if it knows features by name."""

    allows_negative: ClassVar[bool] = False
    """Whether weights can be negative."""

    fusion: ClassVar[Fuses] = "scores"
    """What the engine fuses, unless a setting of the target changes it."""

    per_query: ClassVar[bool] = True
    """Whether the weights are sent with a query. If not, they are uploaded as a model for many queries."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, default = getattr(self, field.name), field.default
            positive = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if isinstance(default, int) and not positive:
                raise ParameterError(f"{field.name} must be a positive integer, got {value!r}")
            if isinstance(default, str) and not isinstance(value, str):
                raise ParameterError(f"{field.name} must be a string, got {value!r}")

    @property
    def fuses(self) -> Fuses:
        """What the engine multiplies by the weights: raw scores, scores normalized per query, or ranks."""
        return self.fusion

    @property
    def normalization(self) -> Normalization | None:
        """How the engine normalizes scores; None if it does not."""
        return "min_max" if self.fuses == "normalized scores" else None

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
        elif ranges is not None and self.fuses != "scores":
            checked = {name: weight * _range_width(name, ranges) for name, weight in checked.items()}
        if not self.allows_negative:
            self._check_not_negative(checked)
        given = {} if clauses is None else dict(clauses)
        if self.clause_kind:
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
        """Raise unless the engine normalizes as the weights expect. For ranks, no weights are exact."""
        if self.fuses != "ranks" and self.normalization != normalization:
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


def normalize_weights(weights: Mapping[str, float], version: str) -> list[float]:
    """Divide the weights by their sum. The order does not change, since only their proportions matter."""
    total = math.fsum(weights.values())
    if total == 0:
        raise DataError(
            f"{version} needs weights that sum to 1, but all weights are 0: nothing was learned for this query"
        )
    return [weight / total for weight in weights.values()]


def relative_weights(weights: Mapping[str, float], version: str) -> list[float]:
    """Divide the weights by their mean, so that equal weights are all 1."""
    return [len(weights) * share for share in normalize_weights(weights, version)]


def vector_share(weights: Mapping[str, float], keyword: str, vector: str, version: str) -> float:
    """Return alpha, the vector's share of two weights, for engines that combine a keyword and a vector search."""
    if set(weights) != {keyword, vector}:
        raise DataError(
            f"{version} supports two features, {keyword!r} and {vector!r}, got {list(weights)}: learn from these two, "
            "or set keyword= and vector="
        )
    return dict(zip(weights, normalize_weights(weights, version), strict=True))[vector]


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
