"""Engine interface: find candidates, compute their features, and search with per-query weights.

Calls are synchronous and thread-safe. Each takes a `timeout` in seconds and returns within about that time or raises
`kinrank.errors.EngineError`. Callers with a deadline pass the remaining time; callers with an event loop use a thread.
"""

from __future__ import annotations

import base64
import os
import random
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field, replace
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32
from kinrank.data.files import redact_passwords
from kinrank.engines._query_dsl import PLAIN, SearchOptions
from kinrank.engines.features import FeatureSet
from kinrank.errors import (
    EngineBusyError,
    EngineError,
    EngineRefusedError,
    EngineTimeoutError,
    EngineUnreachableError,
    ParameterError,
)
from kinrank.registry import Registry

TRACE_HEADERS: ContextVar[Mapping[str, str]] = ContextVar("trace_headers", default=MappingProxyType({}))
"""Headers added to every request to an engine: ``traceparent`` and ``tracestate`` of the W3C, if there is a trace."""


# --- what engines return: documents, their features, and the health of an index ---------------------------------------


Document = tuple[str, Mapping[str, Any]]
"""A document id and its fields."""
_HIGHEST_ORGANIC = 2.0**127


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

    @property
    def pinned(self) -> set[str]:
        """The documents that the engine itself has put first.

        Elasticsearch scores what a ``pinned`` query or a query rule pins above 2^127, and caps all other scores there.
        """
        ids: list[str] = self.doc_id[self.score > _HIGHEST_ORGANIC].tolist()
        return set(ids)

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

        Raise `EngineUnreachableError` if no node responds, and `MissingIndexError` if the index does not exist.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    def features(
        self, query: str, doc_ids: Sequence[str], *, vector: ArrayLike | None = None, timeout: float | None = None
    ) -> Float32:
        """Return the features of the given documents.

        NaN means that a feature is missing or that the document is not in the index; use `log` to distinguish
        them.
        """
        return self.log(query, doc_ids, vector=vector, timeout=timeout).values

    def identity(self) -> dict[str, str]:
        """Return what identifies this index. A resumed log checks that it has not changed."""
        return {"engine": type(self).__name__}

    def with_features(self, names: Collection[str]) -> Engine:
        """Return this engine, which computes only some of its features if it can."""
        del names
        return self

    def without_own_texts(self, query: str) -> Engine:
        """Return this engine, to which the text of a query is unknown; see `kinrank.engines.chosen_for`.

        What is learned from must come from it: a text that a document was chosen for gives away its label.
        """
        del query
        return self

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

        Added documents do not count towards `size`.
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


MORE_TIME = "allow more with --set timeout=SECONDS of kinrank log, --set engine_seconds=SECONDS of kinrank serve"
"""What to do if an engine needs more time than it is given."""


def remaining(timeout: float | None, start: float) -> float | None:
    """Return the seconds of a timeout that are left since `start`. Raise `EngineTimeoutError` if there are none."""
    left = None if timeout is None else timeout - (time.monotonic() - start)
    if left is not None and left <= 0:
        raise EngineTimeoutError(f"the search took all of the {timeout:g} s; {MORE_TIME}")
    return left


# --- open an engine by its address: ``elasticsearch+http://127.0.0.1:9200/movies`` ------------------------------------


FORM = "ENGINE+http://HOST:PORT/INDEX"
_HOST = r"(?:[^/?#,\s]*@)?(?:[\w.-]+|\[[^\]/\s]+\])(?::\d+)?"
_ADDRESS = re.compile(
    rf"(?P<engine>[\w-]+)\+(?P<scheme>https?)://(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<index>/[^/\s]*)?/?"
)
_PORT = re.compile(r":\d+$")
_CREDENTIALS = {"api_key", "basic_auth", "bearer_auth", "headers", "http_auth"}

ENGINES = Registry(
    "engine",
    {
        "elasticsearch": "kinrank.engines.lucene:ElasticsearchEngine",
        "opensearch": "kinrank.engines.lucene:OpenSearchEngine",
    },
)


def connect(address: str, features: FeatureSet | str | os.PathLike[str] | None = None, **options: Any) -> Engine:
    """Open an index of a search engine. Nothing is sent until the first call.

    Parameters
    ----------
    address
        ``ENGINE+http://HOST:PORT/INDEX`` or ``ENGINE+https://...``, where ENGINE is a name in `ENGINES`. Separate
        several hosts with commas; put ``USER:PASSWORD@`` before a host that needs it.
    features
        A `FeatureSet`, or the path of a feature file.
    options
        Passed to the engine's class: ``timeout``, ``connections``, and any option of the official client, such as
        ``api_key`` or ``ca_certs``.

    Notes
    -----
    Without credentials in the address or the options, they are read from the environment:
    ``KINRANK_ENGINE_API_KEY``, or ``KINRANK_ENGINE_USER`` and ``KINRANK_ENGINE_PASSWORD``.

    Examples
    --------
    >>> with connect("elasticsearch+http://127.0.0.1:9200,127.0.0.1:9201/movies", timeout=2.0) as engine:
    ...     engine.hosts, engine.index_name
    (['http://127.0.0.1:9200', 'http://127.0.0.1:9201'], 'movies')
    >>> connect("http://127.0.0.1:9200/movies")
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: 'http://127.0.0.1:9200/movies' is not an engine address: use ENGINE+http://...
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ParameterError(
            f"{redact_passwords(address)!r} is not an engine address: use {FORM}, where ENGINE is one of "
            f"{', '.join(ENGINES)}; percent-encode special characters in a password (%23 for #)"
        )
    port = {"http": 80, "https": 443}[match["scheme"]]
    hosts = [
        f"{match['scheme']}://{host}" if _PORT.search(host) else f"{match['scheme']}://{host}:{port}"
        for host in match["hosts"].split(",")
    ]
    if features is not None and not isinstance(features, FeatureSet):
        features = FeatureSet.read(features)
    index = (match["index"] or "").strip("/")
    if "@" not in match["hosts"] and not _CREDENTIALS & options.keys():
        options |= _credentials_from_environment()
    engine_class = ENGINES[match["engine"]]
    try:
        engine: Engine = engine_class(hosts, index, features, **options)
    except ParameterError:
        raise
    except ValueError as error:  # raised by the client, whose message may contain the password
        raise ParameterError(
            redact_passwords(f"cannot open {address!r} ({error}): check the hosts and the client options")
        ) from None
    return engine


def _credentials_from_environment() -> dict[str, Any]:
    # Other users of the machine can read a command line, but not the environment.
    key, user, password = (os.environ.get(f"KINRANK_ENGINE_{name}", "") for name in ("API_KEY", "USER", "PASSWORD"))
    if not key and not user:
        return {}
    basic = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"headers": {"authorization": f"ApiKey {key}" if key else f"Basic {basic}"}}


# --- retry requests to an engine that is overloaded, slow or briefly unreachable, with fewer requests at a time -------


TRANSIENT_ERRORS = (EngineBusyError, EngineTimeoutError, EngineUnreachableError)
"""Errors that a retry may resolve."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class ConcurrencyLimit:
    """Adaptive limit of requests in flight: halved after each failure, increased slowly after each success.

    Examples
    --------
    >>> limit = ConcurrencyLimit(8)
    >>> limit.decrease()
    >>> limit.value
    4.0
    """

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.value = float(maximum)
        self._in_flight = 0
        self._changed = threading.Condition()

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Wait for a free slot and hold it within the block."""
        with self._changed:
            self._changed.wait_for(lambda: self._in_flight < max(1, int(self.value)))
            self._in_flight += 1
        try:
            yield
        finally:
            with self._changed:
                self._in_flight -= 1
                self._changed.notify()

    def decrease(self) -> None:
        """Halve the limit, to at least one."""
        with self._changed:
            self.value = max(1.0, self.value / 2)

    def increase(self) -> None:
        """Increase the limit by one per as many successes as there are slots."""
        with self._changed:
            self.value = min(float(self.maximum), self.value + 1 / self.value)
            self._changed.notify()


@dataclass(eq=False, repr=False)
class RetryingPool:
    """Thread pool that retries failed requests and adapts the number of requests in flight.

    Attributes
    ----------
    limit : ConcurrencyLimit
        Current limit of requests in flight.
    retries : int
        Number of retries so far.
    """

    workers: int
    """Maximum number of requests in flight."""
    _: KW_ONLY
    retry_for: float = 120.0
    """Seconds after which a request is no longer retried and its last error is raised."""
    first_pause: float = 0.1
    longest_pause: float = 5.0
    """Seconds before the first retry, and at most. The pause doubles with each retry and is partly random, so that
    requests do not retry all at once.
    """

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ParameterError(f"workers must be at least 1, got {self.workers}")
        self.limit = ConcurrencyLimit(self.workers)
        self.retries = 0
        self._lock = threading.Lock()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield the results in the order of the items, consuming at most two items per worker ahead.

        Examples
        --------
        >>> list(RetryingPool(2).map(lambda x: x * x, [1, 2, 3]))
        [1, 4, 9]
        """
        pending: deque[Future[Result]] = deque()
        stop = threading.Event()
        with ThreadPoolExecutor(self.workers) as threads:
            try:
                for item in items:
                    if len(pending) == 2 * self.workers:
                        yield pending.popleft().result()
                    pending.append(threads.submit(self._call, function, item, stop))
                while pending:
                    yield pending.popleft().result()
            finally:
                stop.set()
                threads.shutdown(cancel_futures=True)

    def _call(self, function: Callable[[Item], Result], item: Item, stop: threading.Event) -> Result:
        deadline = time.monotonic() + self.retry_for
        pause = self.first_pause
        while True:
            try:
                with self.limit.slot():
                    if stop.is_set():  # the result is no longer needed
                        raise CancelledError
                    result = function(item)
            except TRANSIENT_ERRORS:
                self.limit.decrease()
                if time.monotonic() + pause > deadline:
                    raise
                with self._lock:
                    self.retries += 1
                stop.wait(random.uniform(pause / 2, pause))  # noqa: S311 - not for cryptography
                pause = min(2 * pause, self.longest_pause)
            else:
                self.limit.increase()
                return result
