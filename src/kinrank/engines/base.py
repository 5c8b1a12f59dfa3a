"""Engine interface: find candidates, compute their features, and search with per-query weights.

Calls are synchronous and thread-safe. Each takes a `timeout` in seconds and returns within about that time or raises
`kinrank.errors.EngineError`. Callers with a deadline pass the remaining time; callers with an event loop use a thread.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32
from kinrank.engines.features import FeatureSet
from kinrank.engines.search_options import PLAIN, SearchOptions
from kinrank.errors import EngineError, EngineRefusedError, EngineTimeoutError

TRACE_HEADERS: ContextVar[Mapping[str, str]] = ContextVar("trace_headers", default=MappingProxyType({}))
"""Headers added to every request to an engine: ``traceparent`` and ``tracestate`` of the W3C, if there is a trace."""


# --- what engines return: documents, their features, and the health of an index ---------------------------------------


Document = tuple[str, Mapping[str, Any]]
"""A document id and its fields."""


@dataclass(frozen=True, eq=False)
class Hits:
    """Documents found by an engine, best first.

    Examples
    --------
    >>> hits = Hits(np.array(["d7", "d3"]), np.array([4.5, 1.0]))
    >>> len(hits), hits.doc_id.tolist()
    (2, ['d7', 'd3'])
    """

    doc_id: NDArray[np.str_]
    """Document ids in the engine's order."""
    score: NDArray[np.float64]
    """The engine's scores. They are comparable within one response only."""
    total: Mapping[str, Any] | None = None
    """How many documents match: ``{"value": 10000, "relation": "gte"}`` means at least 10,000."""
    fields: Sequence[Mapping[str, Any]] = ()
    """The requested fields of each document; empty if none were requested."""
    facets: Mapping[str, Any] = field(default_factory=dict)
    """The results of the requested facets, as the engine returns them."""

    def __len__(self) -> int:
        return len(self.doc_id)

    def take(self, places: Sequence[int]) -> Hits:
        """Return some of the documents, with the total and the facets of all."""
        chosen = np.asarray(places, dtype=np.int64)
        fields = [self.fields[place] for place in places] if self.fields else ()
        return replace(self, doc_id=self.doc_id[chosen], score=self.score[chosen], fields=fields)

    def followed_by(self, more: Hits) -> Hits:
        """Return these documents and then others, with the total and the facets of these."""
        return replace(
            self,
            doc_id=np.concatenate([self.doc_id, more.doc_id]),
            score=np.concatenate([self.score, more.score]),
            fields=[*self.fields, *more.fields],
        )


@dataclass(frozen=True, eq=False)
class FoundDocuments:
    """Documents that a search found, then documents that were requested by id, with their features."""

    hits: Hits
    """Documents in the engine's order, then the others. The total and the facets are those of the search alone."""
    features: Float32
    """Features of the documents; shape (documents, features)."""
    n_found: int
    """The number of documents that the search found."""
    problem: str | None = None
    """Why documents that were requested by id are missing, if they are."""


@dataclass(frozen=True, eq=False)
class LoggedFeatures:
    """Features of documents, computed by an engine."""

    values: Float32
    """NaN if a feature defined with ``missing = "nan"`` is missing. A document that is not in the index has a row of
    NaN; shape (documents, features).
    """
    found: NDArray[np.bool_]
    """Whether each document is in the index; shape (documents,)."""


@dataclass(frozen=True)
class Health:
    """Health of an engine and an index."""

    engine: str
    """Name and version: "elasticsearch 8.12.2"."""
    status: str
    """Green: all shards are allocated; yellow: some replicas are not; red: some primary shards are not."""
    nodes: int
    """Number of nodes."""
    documents: int
    """Number of documents in the index."""


def missing_ids(hits: Hits, doc_ids: Sequence[str]) -> list[str]:
    """Return the documents, each once, that are not among the hits."""
    found = set(hits.doc_id.tolist())
    return [doc_id for doc_id in dict.fromkeys(doc_ids) if doc_id not in found]


# --- the interface ---------------------------------------------------------------------------------------------------


class Engine(ABC):
    """Base class of engines: one index, and the features to compute from it.

    An engine is a context manager that closes its connections on exit.

    Attributes
    ----------
    feature_names : tuple of str
        Names of the columns of `features`, in the order of the weights of `apply`.
    feature_set : FeatureSet, optional
        Definitions of the features, if they come from a feature file.
    apply_params : mapping of str to str
        URL parameters to send with the body of `apply_request`. Without them the order may differ.
    """

    feature_names: tuple[str, ...]
    feature_set: FeatureSet | None = None
    apply_params: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def search(
        self,
        query: str,
        *,
        size: int,
        vector: ArrayLike | None = None,
        options: SearchOptions = PLAIN,
        timeout: float | None = None,
    ) -> Hits:
        """Return the candidates of a query in the engine's own order.

        Parameters
        ----------
        query
            Text of the query.
        size
            Maximum number of candidates.
        vector
            Embedding of the query, for candidates and features that compare vectors.
        options
            What candidates must match, and what is returned with them.
        timeout
            Seconds to wait for the response. Defaults to the engine's `timeout`.
        """

    @abstractmethod
    def log(
        self, query: str, doc_ids: Sequence[str], *, vector: ArrayLike | None = None, timeout: float | None = None
    ) -> LoggedFeatures:
        """Return the features of the given documents, and which of the documents are in the index."""

    @abstractmethod
    def apply_request(
        self,
        query: str,
        weights: ArrayLike,
        *,
        size: int,
        vector: ArrayLike | None = None,
        doc_ids: Sequence[str] | None = None,
        window: int | None = None,
        options: SearchOptions | None = None,
        boosts: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """Return the body of the request that `apply` sends, without sending it.

        Send it with `apply_params` in the URL. With `options`, the response has the fields, the total and the facets of
        `search`.
        """

    @abstractmethod
    def apply(
        self,
        query: str,
        weights: ArrayLike,
        *,
        size: int,
        vector: ArrayLike | None = None,
        doc_ids: Sequence[str] | None = None,
        window: int | None = None,
        options: SearchOptions | None = None,
        boosts: Mapping[str, float] | None = None,
        timeout: float | None = None,
    ) -> Hits:
        """Search with per-query weights in the request: the engine ranks by ``features @ weights``.

        Parameters
        ----------
        query, size, vector, timeout
            See `search`.
        weights
            One weight per feature, as returned by `Ranker.weights`. A missing feature counts as 0.
        doc_ids
            Rank only these documents. By default, rank the documents that `search` finds.
        window
            Rank only the first `window` documents of `search`. By default, rank all of them. An engine may apply the
            window to each shard, and rank more.
        options
            What documents must match, and what is returned with them. Documents that are not in `doc_ids` are then
            returned as well, after those that are.
        boosts
            What is added to ``features @ weights`` by document. With `options`, those of `doc_ids` that the search does
            not find are returned and counted as well.

        Returns
        -------
        Hits
            Documents in the order of ``features @ weights``. The scores increase with it and have no other meaning.
        """

    @abstractmethod
    def index(self, documents: Iterable[Document], *, settings: Mapping[str, Any] | None = None) -> int:
        """Write documents and return their number. For tests and demonstrations.

        The index is created with `settings` if it does not exist. The documents are searchable on return.
        """

    @abstractmethod
    def health(self) -> Health:
        """Return the health of the engine and the index.

        Raises
        ------
        EngineUnreachableError
            If no node responds.
        MissingIndexError
            If the index does not exist.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    def features(
        self, query: str, doc_ids: Sequence[str], *, vector: ArrayLike | None = None, timeout: float | None = None
    ) -> Float32:
        """Return the features of the given documents.

        Returns
        -------
        float32 array of shape (documents, features)
            Rows in the order of `doc_ids`. NaN means that a feature is missing or that the document is not in the
            index; use `log` to distinguish them.
        """
        return self.log(query, doc_ids, vector=vector, timeout=timeout).values

    def identity(self) -> dict[str, str]:
        """Return what identifies this index. A resumed log checks that it has not changed."""
        return {"engine": type(self).__name__}

    def scan(self, query: Mapping[str, Any], sort: str) -> Iterator[list[dict[str, Any]]]:
        """Yield the sources of all documents that match a query of the engine, page by page, as of the first page."""
        raise EngineRefusedError(f"{type(self).__name__} cannot list its documents (query {query}, sorted by {sort})")

    def field_bounds(self, field: str) -> tuple[float, float] | None:
        """Return the lowest and the highest value of a field (of a date: in milliseconds), or None without any."""
        raise EngineRefusedError(f"{type(self).__name__} has no bounds of the field {field!r}")

    def search_complete(
        self, query: str, *, size: int, vector: ArrayLike | None = None, timeout: float | None = None
    ) -> Hits:
        """Search as `search` does, but raise an error if some shards fail. Used for logs, which must be complete."""
        return self.search(query, size=size, vector=vector, timeout=timeout)

    def search_features(
        self,
        query: str,
        *,
        size: int,
        vector: ArrayLike | None = None,
        options: SearchOptions = PLAIN,
        timeout: float | None = None,
    ) -> tuple[Hits, Float32]:
        """Return candidates and their features, within `timeout` in total; in one request if the engine supports it."""
        start = time.monotonic()
        hits = self.search(query, size=size, vector=vector, options=options, timeout=timeout)
        left = remaining(timeout, start)
        return hits, self.features(query, hits.doc_id.tolist(), vector=vector, timeout=left)

    def search_adding(
        self,
        query: str,
        doc_ids: Sequence[str],
        *,
        size: int,
        vector: ArrayLike | None = None,
        options: SearchOptions = PLAIN,
        timeout: float | None = None,
    ) -> FoundDocuments:
        """Return candidates, and documents by id that are not among them, with features; within `timeout` in total.

        Documents that are not in the index, or do not match the filter of `options`, are left out. If the engine finds
        candidates but cannot deliver the others, `FoundDocuments.problem` has the reason.

        Parameters
        ----------
        doc_ids
            The documents to add.
        query, size, vector, options, timeout
            See `search`. Added documents do not count towards `size`.
        """
        start = time.monotonic()
        hits, features = self.search_features(query, size=size, vector=vector, options=options, timeout=timeout)
        found = FoundDocuments(hits, features, len(hits))
        missing = missing_ids(hits, doc_ids)
        if not missing:
            return found
        try:
            left = remaining(timeout, start)
            more, rows = self.fetch(query, missing, vector=vector, options=options, timeout=left)
        except EngineError as error:
            return replace(found, problem=str(error))
        return replace(found, hits=hits.followed_by(more), features=np.concatenate([features, rows]))

    def fetch(
        self,
        query: str,
        doc_ids: Sequence[str],
        *,
        vector: ArrayLike | None = None,
        options: SearchOptions = PLAIN,
        timeout: float | None = None,
    ) -> tuple[Hits, Float32]:
        """Return documents by id, whether or not the query finds them, and their features for the query.

        Documents that are not in the index, or do not match the filter of `options`, are left out. The scores mean
        nothing.
        """
        if options.filter_clause is not None or options.fields:
            raise EngineRefusedError(f"{type(self).__name__} cannot fetch documents within a filter, or their fields")
        logged = self.log(query, doc_ids, vector=vector, timeout=timeout)
        ids = np.array(doc_ids, dtype=np.str_)[logged.found]
        return Hits(ids, np.zeros(len(ids))), logged.values[logged.found]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def remaining(timeout: float | None, start: float) -> float | None:
    """Return the seconds of a timeout that are left since `start`. Raise `EngineTimeoutError` if there are none."""
    left = None if timeout is None else timeout - (time.monotonic() - start)
    if left is not None and left <= 0:
        raise EngineTimeoutError(f"the search took all of the {timeout:g} s: increase timeout")
    return left
