"""Requests to the service, its results and its events, independent of the transport."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from kinrank.arrays import Float32, Float64
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, VECTORS
from kinrank.errors import DataError, EncoderError, KinrankError


class Fallback(StrEnum):
    """Why a result is in the engine's order. The values appear in responses and metric labels."""

    NO_MODEL = "no-model"
    LATE = "late"
    NOVEL = "novel-query"
    NOT_FINITE = "not-finite"
    UNKNOWN_FEATURE = "unknown-feature"
    MODEL_ERROR = "model-error"
    ENGINE_DOWN = "engine-down"
    NO_VECTOR = "no-vector"
    ENCODER = "encoder-error"
    UNFAITHFUL = "unfaithful-weights"


class UnknownFeatureError(DataError):
    """The candidates have features that the model was not fitted on."""


@dataclass(frozen=True, slots=True, eq=False)
class CandidateSet:
    """The candidates of one query in the engine's order, with their features.

    Attributes
    ----------
    ids : list of str
        Document ids.
    features : float32 array of shape (candidates, features)
        NaN marks a missing value.
    feature_names : tuple of str, or None
        One name per column, in any order. Features of the model that are not listed are missing. None means the
        model's features in the model's order.
    vector : float32 array, or None
        The embedding of the query, for models that describe queries by it.
    columns : mapping of str to float
        Further numbers of the query, for models that describe queries by them.
    text : str, or None
        The text of the query, for models that encode it. A vector takes precedence.
    keys : mapping of str to list of str
        Other values of each candidate, such as its site or brand, for models whose memory keeps them.
    pinned : frozenset of str
        Documents that keep their places, as the engine or the caller wants; others are ignored.

    Examples
    --------
    >>> candidates = CandidateSet(["d1", "d2"], np.float32([[1, 2], [3, 4]]), ("title", "body"))
    >>> candidates.align(("body", "age", "title"))[0].tolist()
    [2.0, nan, 1.0]
    """

    ids: list[str]
    features: Float32
    feature_names: tuple[str, ...] | None = None
    vector: Float32 | None = None
    columns: Mapping[str, float] = field(default_factory=dict)
    text: str | None = None
    keys: Mapping[str, list[str]] = field(default_factory=dict)
    pinned: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name, values in self.keys.items():
            if len(values) != len(self.ids):
                raise DataError(f"key {name!r} must have one value per id ({len(self.ids)}), got {len(values)}")
        if self.features.ndim != 2 or len(self.features) != len(self.ids) or not self.ids:
            raise DataError(f"features must have one row per id ({len(self.ids)}), got shape {self.features.shape}")
        if len(set(self.ids)) != len(self.ids):
            raise DataError("ids contains duplicates: list every candidate once")
        if self.feature_names is not None and len(set(self.feature_names)) != self.features.shape[1]:
            raise DataError(
                f"feature_names must be {self.features.shape[1]} different names, one per column of features, "
                f"got {len(set(self.feature_names))}"
            )

    def align(self, names: tuple[str, ...]) -> Float32:
        """Return the features in the model's order. Raise `UnknownFeatureError` if the model lacks one of them."""
        width = self.features.shape[1]
        if self.feature_names is None:
            if width != len(names):
                raise UnknownFeatureError(
                    f"the model has {len(names)} features, got {width}: send all of them, or name those you send"
                )
            return self.features
        if self.feature_names == names:
            return self.features
        column_of = {name: column for column, name in enumerate(names)}
        unknown = [name for name in self.feature_names if name not in column_of]
        if unknown:
            raise UnknownFeatureError(
                f"the model has no feature {unknown[0]!r}: send only features that it was fitted on"
            )
        rows = np.full((len(self.ids), len(names)), np.nan, dtype=np.float32)
        rows[:, [column_of[name] for name in self.feature_names]] = self.features
        return rows

    def to_record(self) -> dict[str, Any]:
        """Return the fields as JSON values; a missing feature, which JSON does not have, is None."""
        return {
            "ids": self.ids,
            "feature_names": self.feature_names,
            "features": [[None if value != value else value for value in row] for row in self.features.tolist()],
            "vector": None if self.vector is None else self.vector.tolist(),
            "columns": dict(self.columns),
            "text": self.text,
            "keys": dict(self.keys),
        }

    @property
    def batch_key(self) -> tuple[object, ...]:
        """Queries with equal keys can be ranked in one batch."""
        vector = None if self.vector is None else len(self.vector)
        return vector, self.text is None, tuple(sorted(self.columns)), tuple(sorted(self.keys))


@dataclass(frozen=True, slots=True, eq=False)
class JudgedQuery:
    """A query whose candidates have grades.

    Attributes
    ----------
    qid : str
        Query id.
    candidates : CandidateSet
        The judged documents.
    grades : list of float
        One per candidate; higher is better.
    """

    qid: str
    candidates: CandidateSet
    grades: list[float]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Candidates in order, best first.

    Attributes
    ----------
    ids : list of str
        Document ids.
    scores : list of float, or None
        One per document, descending but for pinned ones. None if the order is the engine's.
    model, version : str, or None
        The model that ranked them.
    fallback : Fallback, or None
        Why they are in the engine's order; None if a model ranked them.
    detail : str, or None
        The reason for the fallback in words.
    novelty : float, or None
        Distance from the query to the nearest judged query, relative to the distances among judged queries: 99% of
        them have their nearest other judged query within 1.0. None if the model knows no distances.
    query_id : str, or None
        The UBI id of this list, for events about it.
    explored : float, or None
        For a list that explores, the share of lists that do: its order is a draw from what people may choose. None for
        the order of what they are expected to choose.
    arm : str, or None
        The arm of an A/B test, as the caller named it; None if it did not.
    """

    ids: list[str]
    scores: list[float] | None = None
    model: str | None = None
    version: str | None = None
    fallback: Fallback | None = None
    detail: str | None = None
    novelty: float | None = None
    query_id: str | None = None
    explored: float | None = None
    arm: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class QueryWeights:
    """The weights of a query's local model, or why there are none.

    Attributes
    ----------
    weights : dict of str to float, or None
        Weight by feature name, for features on their original scale, or as normalized within the query.
    model, version, fallback, detail
        As in `Ranking`.
    normalization : str or None
        How the features are normalized within the query; None for their original scale.
    fidelity : float, or None
        Kendall's τ between the model's ranking of the candidates and that by the weights; None if the model is linear,
        so that both are equal.
    request, params : dict, or None
        Body and URL parameters of the request to the attached engine that ranks with the weights.
    boosts : dict of str to float, or None
        What people chose: what to add to the weighted sum of a document, by id; None if nothing is known of them.
    """

    weights: dict[str, float] | None = None
    model: str | None = None
    version: str | None = None
    fallback: Fallback | None = None
    detail: str | None = None
    normalization: str | None = None
    fidelity: float | None = None
    request: dict[str, Any] | None = None
    params: dict[str, Any] | None = None
    boosts: dict[str, float] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Neighbor:
    """A judged query that the local model was learned from.

    Attributes
    ----------
    qid : str
        Query id.
    distance : float
        Its distance to the query.
    text : str, or None
        Its text, if known.
    """

    qid: str
    distance: float
    text: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class QueryExplanation:
    """Why a query was ranked as it was.

    Attributes
    ----------
    neighbors : list of Neighbor
        The nearest judged queries, nearest first.
    n_neighbors : int
        How many judged queries the local model was learned from; `neighbors` may list fewer.
    unusual : float
        Share of the judged queries that are closer to their nearest other judged query than this query is.
    local_weights, global_weights : dict of str to float, or None
        Weight by feature name in the local and in the global model, if they are linear.
    shares : dict of str to float, or None
        Share of the final order that each component of the ranker contributes, if it has several.
    spread : dict of str to float, or None
        Standard deviation of each feature among the candidates. A weight times its spread can be compared between
        features.
    reasons : dict of str to dict of str to float, or None
        For each document, the features that lift or lower it most, with what they add to its score in comparison with
        the mean candidate; None if no linear weights stand for the ranking.
    titles : dict of str to str, or None
        The titles of the candidates whose titles the model has kept.
    choices : dict of str to str, or None
        For each document that people looked at, in words: how often they chose it, and its rank without that.
    judged : dict of str to str, or None
        For each document that was a candidate of similar judged queries, in words: how it was judged for them, and its
        rank without that.
    """

    neighbors: list[Neighbor]
    n_neighbors: int
    unusual: float
    local_weights: dict[str, float] | None = None
    global_weights: dict[str, float] | None = None
    shares: dict[str, float] | None = None
    spread: dict[str, float] | None = None
    reasons: dict[str, dict[str, float]] | None = None
    titles: dict[str, str] | None = None
    choices: dict[str, str] | None = None
    judged: dict[str, str] | None = None


def to_query_set(queries: list[CandidateSet], rows: list[Float32], names: tuple[str, ...]) -> QuerySet:
    """Return queries with equal batch keys as a QuerySet; `rows` are their aligned features."""
    offsets = np.zeros(len(queries) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in rows], out=offsets[1:])
    first = queries[0]
    columns = {name: np.array([query.columns[name] for query in queries]) for name in first.columns}
    if first.vector is not None:
        columns[VECTORS] = np.stack([query.vector for query in queries if query.vector is not None])
    if first.text is not None:
        columns[TEXT] = np.array([query.text for query in queries], dtype=np.str_)
    X = rows[0] if len(rows) == 1 else np.concatenate(rows)
    documents = np.array([document for query in queries for document in query.ids], dtype=np.str_)
    keys = {name: np.array([value for query in queries for value in query.keys[name]]) for name in first.keys}
    return QuerySet(
        X,
        None,
        offsets,
        np.arange(len(queries)),
        documents,
        feature_names=names,
        query_columns=columns,
        doc_columns=keys,
    )


class Failure(NamedTuple):
    """Why a query is answered without a model."""

    reason: Fallback
    """The reason."""
    detail: str
    """The reason in words."""
    where: str | None = None
    """Under which name the error is reported; None if the request is to blame."""


def failure_of(error: Exception, rows: Float32 | None = None) -> Failure:
    """Return the failure that an exception means; `rows` are the features as the model takes them, if known."""
    if isinstance(error, EncoderError):
        return Failure(Fallback.ENCODER, str(error), "encode")
    if isinstance(error, UnknownFeatureError):
        return Failure(Fallback.UNKNOWN_FEATURE, str(error))
    if isinstance(error, DataError) and rows is not None and not np.isfinite(rows).all():
        return Failure(Fallback.NOT_FINITE, str(error))
    if isinstance(error, KinrankError):
        return Failure(Fallback.MODEL_ERROR, str(error))
    return Failure(Fallback.MODEL_ERROR, "the model failed; the log has the traceback", "rank")


def failure_in(scores: Float64, novelty: float | None, max_novelty: float) -> Failure | None:
    """Return why the prediction for a query is not used; None if it is."""
    if novelty is not None and novelty > max_novelty:
        detail = f"novelty {novelty:.3g} is above {max_novelty:.3g}: no similar query was judged"
        return Failure(Fallback.NOVEL, detail)
    if not np.isfinite(scores).all():
        return Failure(Fallback.NOT_FINITE, "the model's scores are not finite")
    return None


class Observer:
    """Receives the events of a service. The methods do nothing; override those you need."""

    def stage(self, stage: str, seconds: float, queries: int = 1) -> None:
        """Record a stage of a request that has just ended: ``wait`` for the model's thread, ``encode``, ``rank``...

        `queries` is the number of queries that were handled together in this time.
        """

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Record the time of the block as a stage, whether or not it succeeds."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stage(stage, time.perf_counter() - start)

    def fallback(self, model: str, reason: Fallback) -> None:
        """Record a result in the engine's order."""

    def ranked(self, model: str, version: str, seconds: float) -> None:
        """Record the time that a version of a model took for a query."""

    def result(self, model: str, version: str, fallback: Fallback | None) -> None:
        """Record whether a version of a model ranked a query, or why not."""

    def novelty(self, model: str, novelty: float) -> None:
        """Record the novelty of a live query; see `kinrank.serve.Ranking`."""

    def batch(self, model: str, size: int) -> None:
        """Record the size of a batch."""

    def model(self, model: str, version: str | None, event: str, detail: str = "") -> None:
        """Record that a model was ``loaded``, ``refused`` or ``missing``, or that judgments were ``learned`` or not.

        A model without examples is ``untested``, and one whose lists cannot explore although they should is
        ``not-exploring``. The event is ``unreachable`` if the store of the model cannot be read, and ``learn-failed``
        if judgments or choices could not be learned. After an older copy of the judgments was restored, they are
        ``relearned``.
        """

    def memory_store(self, failures: int, restored: int, lost: int) -> None:
        """Record how often the database of the memory failed or was an older copy, and how many changes that lost."""

    def error(self, where: str, error: BaseException) -> None:
        """Record a failure that no input should cause."""
