"""The contract of a target: weights in, a request out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kinrank.errors import DataError, ParameterError

Fuses = Literal["scores", "normalized scores", "ranks"]
Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Target(ABC):
    """Base of all targets: one documented way to hand weights to a search engine.

    Its fields are what the request says beside the weights. What the engine does not take is refused, or changed in a
    way that keeps the order: by a common factor, or by a constant that every document gets.
    """

    version: ClassVar[str]
    """The engine, and the version since when it understands the request."""

    documentation: ClassVar[str]
    """The vendor's page that the request is written after."""

    clause: ClassVar[str] = ""
    """What the engine wants for each feature beside its weight; empty where it knows features by name."""

    allows_negative: ClassVar[bool] = False
    """Whether weights may be below 0."""

    per_query: ClassVar[bool] = True
    """Whether the weights travel with a query; a model that is uploaded is one for many."""

    def __post_init__(self) -> None:
        for setting in fields(self):
            value, usual = getattr(self, setting.name), setting.default
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if isinstance(usual, int) and not whole:
                raise ParameterError(f"{setting.name} must be a whole number from 1, got {value!r}")
            if isinstance(usual, str) and not isinstance(value, str):
                raise ParameterError(f"{setting.name} must be text, got {value!r}")

    @property
    def fuses(self) -> Fuses:
        """What the engine multiplies with the weights: scores as they are, scores normalized per query, or ranks."""
        return "scores"

    def request(
        self,
        weights: Mapping[str, float],
        clauses: Mapping[str, Any] | None = None,
        *,
        ranges: Ranges | None = None,
        inverted: Collection[str] = (),
    ) -> dict[str, Any]:
        """The body of the request, or the part of it that holds the weights.

        Parameters
        ----------
        weights
            The weight of each feature, for features as they are: a row of `Ranker.weights` with its names.
        clauses
            What `clause` says, for each feature.
        ranges
            The least and the largest value of each feature among the candidates of the query (`value_ranges`). An
            engine that normalizes scores divides those that a clause returned by their (largest - least); with
            `ranges` the weights are multiplied by it, so that the order is that of features as they are, if every
            clause returns every candidate: ``{"bool": {"must": [{"ids": ...}], "should": [clause]}}``, in the query
            language of Elasticsearch and OpenSearch. Without, weights are those of normalized scores.
        inverted
            Features whose clause scores a constant minus the feature: their weights change sign. The way for a
            feature where less is more into an engine that takes no negative weight.

        Raises
        ------
        kinrank.errors.DataError
            Where the weights cannot be said in this request, or a clause is missing.
        """
        own = _checked(weights, inverted)
        if ranges is not None and self.fuses != "scores":
            own = {name: weight * _spread(name, ranges) for name, weight in own.items()}
        if not self.allows_negative:
            self._refuse_negative(own)
        given = {} if clauses is None else dict(clauses)
        if self.clause:
            self._check_clauses(own, given)
        return self._request(own, given)

    @abstractmethod
    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        """The request for checked weights, in the order given."""

    def _refuse_negative(self, weights: Mapping[str, float]) -> None:
        for name, weight in weights.items():
            if weight < 0:
                raise DataError(
                    f"{self.version} takes no negative weight, and {name!r} has {weight:.4g}: learn with "
                    f"RankRLS(nonnegative=True), or give a clause that scores a constant minus {name!r} and name it in "
                    "inverted"
                )

    def _check_clauses(self, weights: Mapping[str, float], clauses: Mapping[str, Any]) -> None:
        missing = [name for name in weights if name not in clauses]
        unknown = [name for name in clauses if name not in weights]
        if missing or unknown:
            raise DataError(
                f"{self.version} needs {self.clause} for each feature: missing {missing}, without a weight {unknown}"
            )


def value_ranges(feature_names: Sequence[str], X: NDArray[Any]) -> dict[str, tuple[float, float]]:
    """The least and the largest value of each feature among the candidates of one query; a missing one is 0.

    Examples
    --------
    >>> value_ranges(["title", "votes"], np.array([[0.0, 7.0], [2.5, 3.0]]))
    {'title': (0.0, 2.5), 'votes': (3.0, 7.0)}
    """
    values = np.where(np.isnan(X), 0.0, X)
    bounds = zip(values.min(axis=0).tolist(), values.max(axis=0).tolist(), strict=True)
    return dict(zip(feature_names, bounds, strict=True))


def shares(weights: Mapping[str, float], version: str) -> list[float]:
    """Weights that sum to 1, which ranks alike: only their proportions matter."""
    total = math.fsum(weights.values())
    if total == 0:
        raise DataError(f"{version} wants weights that sum to 1, and all are 0: nothing was learned for this query")
    return [weight / total for weight in weights.values()]


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise where a setting is none of its choices."""
    if value not in choices:
        raise ParameterError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def _checked(weights: Mapping[str, float], inverted: Collection[str]) -> dict[str, float]:
    if not weights:
        raise DataError("there are no weights: give at least one feature")
    unknown = [name for name in inverted if name not in weights]
    if unknown:
        raise DataError(f"inverted names {unknown[0]!r}, which has no weight; there are {', '.join(weights)}")
    own = {str(name): -float(weight) if name in inverted else float(weight) for name, weight in weights.items()}
    for name, weight in own.items():
        if not math.isfinite(weight):
            raise DataError(f"the weight of {name!r} is {weight}: a weight must be a finite number")
    return {name: weight + 0.0 for name, weight in own.items()}  # -0.0 becomes 0.0


def _spread(name: str, ranges: Ranges) -> float:
    if name not in ranges:
        raise DataError(f"ranges lacks {name!r}: give the least and the largest value of every feature")
    least, largest = ranges[name]
    if not largest >= least:
        raise DataError(f"the range of {name!r} must ascend, got {least} to {largest}")
    return largest - least
