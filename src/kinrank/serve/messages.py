"""What a service is asked and what it answers, whatever carries it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from kinrank.arrays import Float32
from kinrank.data.queryset import QuerySet
from kinrank.data.vectors import VECTORS
from kinrank.errors import DataError


class Fallback(StrEnum):
    """Why an answer is in the engine's order."""

    NO_MODEL = "no-model"
    LATE = "late"
    FAR = "far-query"
    NOT_FINITE = "not-finite"
    UNKNOWN_FEATURE = "unknown-feature"
    MODEL_ERROR = "model-error"
    ENGINE_DOWN = "engine-down"
    NO_VECTOR = "no-vector"


class UnknownFeatureError(DataError):
    """Features that the model was not fitted on."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """A query: its candidates in the engine's order, with their features.

    Attributes
    ----------
    ids : list of str
        The documents.
    features : float32 array of shape (candidates, features)
        NaN where a value is missing.
    feature_names : tuple of str, or None
        A name per column, in any order; those of the model in its order where not given. A feature of the model that
        is not named is missing.
    vector : float32 array, or None
        The embedding of the query, for models that describe queries by it.
    columns : mapping of str to float
        Other numbers of the query, for models that describe queries by them.

    Examples
    --------
    >>> asked = Candidates(["d1", "d2"], np.float32([[1, 2], [3, 4]]), ("title", "body"))
    >>> asked.aligned(("body", "age", "title"))[0].tolist()
    [2.0, nan, 1.0]
    """

    ids: list[str]
    features: Float32
    feature_names: tuple[str, ...] | None = None
    vector: Float32 | None = None
    columns: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or len(self.features) != len(self.ids) or not self.ids:
            raise DataError(f"features must have one row per id ({len(self.ids)}), got shape {self.features.shape}")
        if len(set(self.ids)) != len(self.ids):
            raise DataError("an id is there twice: give every candidate once")
        if self.feature_names is not None and len(set(self.feature_names)) != self.features.shape[1]:
            raise DataError(
                f"feature_names must be {self.features.shape[1]} different names, one per column of features, "
                f"got {len(set(self.feature_names))}"
            )

    def aligned(self, names: tuple[str, ...]) -> Float32:
        """The features in the order of a model; `UnknownFeatureError` where it does not know one of them."""
        width = self.features.shape[1]
        if self.feature_names is None:
            if width != len(names):
                raise UnknownFeatureError(f"the model has {len(names)} features, got {width}: name them, or give all")
            return self.features
        if self.feature_names == names:
            return self.features
        place = {name: position for position, name in enumerate(names)}
        unknown = [name for name in self.feature_names if name not in place]
        if unknown:
            raise UnknownFeatureError(f"the model has no feature {unknown[0]!r}: see GET /v1/model for those it has")
        rows = np.full((len(self.ids), len(names)), np.nan, dtype=np.float32)
        rows[:, [place[name] for name in self.feature_names]] = self.features
        return rows

    @property
    def kind(self) -> tuple[object, ...]:
        """What must be alike in queries that are ranked in one go."""
        return (None if self.vector is None else len(self.vector), *sorted(self.columns))


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A judged query: candidates and their grades.

    Attributes
    ----------
    qid : str
        The query.
    candidates : Candidates
        Its documents.
    grades : list of float
        Higher is better.
    """

    qid: str
    candidates: Candidates
    grades: list[float]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Candidates in order, best first.

    Attributes
    ----------
    ids : list of str
        The documents.
    scores : list of float, or None
        One each, descending; None in the engine's order, and where two models took turns.
    model, version : str, or None
        Which model ranked them.
    fallback : Fallback, or None
        Why they are in the engine's order; None where they are ranked.
    detail : str, or None
        The same in words.
    novelty : float, or None
        How far the query is from the judged ones; 1.0 is the edge of what is usual.
    teams : list of str, or None
        Where two models took turns: which one placed each document.
    """

    ids: list[str]
    scores: list[float] | None = None
    model: str | None = None
    version: str | None = None
    fallback: Fallback | None = None
    detail: str | None = None
    novelty: float | None = None
    teams: list[str] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The weights of a query's own model, or why there are none.

    Attributes
    ----------
    weights : dict of str to float, or None
        Per unit of each feature as it was given.
    model, version, fallback, detail
        As in `Ranking`.
    """

    weights: dict[str, float] | None = None
    model: str | None = None
    version: str | None = None
    fallback: Fallback | None = None
    detail: str | None = None


def as_query_set(some: list[Candidates], rows: list[Float32], names: tuple[str, ...]) -> QuerySet:
    """Candidates of one kind as a QuerySet, with features aligned by the caller."""
    offsets = np.zeros(len(some) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in rows], out=offsets[1:])
    first = some[0]
    columns = {name: np.array([each.columns[name] for each in some]) for name in first.columns}
    if first.vector is not None:
        columns[VECTORS] = np.stack([each.vector for each in some if each.vector is not None])
    X = rows[0] if len(rows) == 1 else np.concatenate(rows)
    return QuerySet(X, None, offsets, np.arange(len(some)), feature_names=names, query_columns=columns)
