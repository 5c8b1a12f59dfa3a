"""Elasticsearch and OpenSearch, through their official clients: one engine with few differences."""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, get_args
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike

from kinrank.arrays import Float32
from kinrank.data.files import redact_passwords
from kinrank.engines import chosen_for
from kinrank.engines._query_dsl import (
    PLAIN,
    Dialect,
    HitValues,
    QueryBuilder,
    SearchOptions,
    adding_search,
    feature_matrix,
    ids_filter,
    without_added,
)
from kinrank.engines.base import (
    MORE_TIME,
    TRACE_HEADERS,
    Document,
    Engine,
    FoundDocuments,
    Health,
    Hits,
    LoggedFeatures,
    missing_ids,
    remaining,
)
from kinrank.engines.features import Clause, FeatureSet, FieldCheck
from kinrank.errors import (
    EngineBusyError,
    EngineError,
    EngineFailedError,
    EngineRefusedError,
    EngineTimeoutError,
    EngineUnreachableError,
    MissingIndexError,
    ParameterError,
)
from kinrank.registry import check_choice, import_extra

BUSY = (429, 502, 503, 504)
# A node left, or its search context was lost. The status is 500 or 404, as for an invalid request.
NODE_LOST = frozenset(
    {
        "connect_transport_exception",
        "node_closed_exception",
        "node_disconnected_exception",
        "node_not_connected_exception",
        "search_context_missing_exception",
    }
)


def response_error(status: int, body: Any, where: str) -> EngineError:
    """Return the error for an unsuccessful response.

    Examples
    --------
    >>> missing = {"error": {"type": "index_not_found_exception", "reason": "no such index [movies]"}}
    >>> response_error(404, missing, "engine")
    MissingIndexError('engine: no such index [movies]; check the name, or index the documents first')
    >>> response_error(429, {"error": {"type": "rejected", "reason": "queue is full"}}, "engine")
    EngineBusyError('engine: overloaded (429, queue is full); retry later, or send fewer requests at a time')
    """
    kind, reason = root_cause(body)
    if kind == "index_not_found_exception":
        return MissingIndexError(f"{where}: {reason}; check the name, or index the documents first")
    if status in BUSY:
        return EngineBusyError(
            f"{where}: overloaded ({status}, {reason}); retry later, or send fewer requests at a time"
        )
    if not NODE_LOST.isdisjoint(_error_types(body)):
        return EngineBusyError(f"{where}: lost a node during the request ({status}, {reason}); retry later")
    if status in (401, 403):
        return EngineRefusedError(f"{where}: access denied ({status}, {reason}); check the user, password or API key")
    if status >= 500:
        return EngineFailedError(f"{where}: failed ({status}, {kind}): {reason}; look at the engine's log")
    return EngineRefusedError(f"{where}: request rejected ({status}, {kind}): {reason}")


def check_complete(response: Mapping[str, Any], where: str) -> None:
    """Raise `EngineBusyError` if shards failed or the search timed out: partial results must not be logged."""
    failed = response["_shards"]["failed"]
    if failed or response["timed_out"]:
        failures = response["_shards"].get("failures") or [{"reason": "timed out"}]
        _, reason = root_cause({"error": failures[0]["reason"]})
        raise EngineBusyError(f"{where}: partial response ({failed} shards failed: {reason}); retry later")


def root_cause(body: Any) -> tuple[str, str]:
    """Return the type of the innermost error and the reasons of all errors that led to it.

    The innermost reason is usually the most helpful one, but it can be a parser's "null".

    Examples
    --------
    >>> root_cause({"error": {"type": "a", "reason": "all failed", "failed_shards": [
    ...     {"reason": {"type": "b", "reason": "runtime", "caused_by": {"type": "c", "reason": "wrong length"}}}]}})
    ('c', 'runtime: wrong length')
    """
    error = body.get("error") if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return "error", str(error)
    for shard in error.get("failed_shards", ())[:1]:
        error = shard.get("reason", error)
    reasons = [str(error.get("reason", error))]
    while isinstance(error.get("caused_by"), Mapping) and error["caused_by"].get("reason"):
        error = error["caused_by"]
        reasons.append(str(error["reason"]))
    return str(error.get("type", "error")), ": ".join(dict.fromkeys(reasons))


def _error_types(body: Any) -> Iterator[str]:
    """Yield the types of all errors in a response, at any depth."""
    if isinstance(body, Mapping):
        if "type" in body:
            yield str(body["type"])
        body = list(body.values())
    if isinstance(body, list):
        for inner in body:
            yield from _error_types(inner)


# --- shared implementation of the Elasticsearch and OpenSearch engines ------------------------------------------------


DocumentIds = Literal["id", "index/id"]

DOCUMENTS_PER_REQUEST = 1000
"""Maximum number of documents whose features one request computes."""

DOCUMENTS_PER_PAGE = 5000
"""Number of documents that one request of a scan returns."""

_KEEP_ALIVE = "5m"  # between two pages
_KNOWN_FOR = 60.0  # seconds until the fields of the index are read again

ADMIN_TIMEOUT = 60.0
"""Timeout in seconds for creating, filling and deleting an index."""

# Use the term statistics of the whole index: otherwise the score of a document depends on its shard.
GLOBAL_STATISTICS = {"search_type": "dfs_query_then_fetch"}


class _Written(NamedTuple):
    """The numbers of documents that were written, and that were not."""

    written: int
    ignored: int


class LuceneEngine(Engine):
    """Base class of `ElasticsearchEngine` and `OpenSearchEngine`.

    Parameters
    ----------
    hosts
        Addresses of the nodes, ``"http://127.0.0.1:9200"``. If one is down, requests go to another.
    index
        Name of the index.
    features
        Features to compute. Not needed for `index` and `health`.
    timeout
        Default timeout of a request, in seconds.
    connections
        Number of connections to keep per node. Further threads wait.
    ids
        What identifies a document: its id, or ``"index/id"`` if `index` is an alias of several indexes that have
        documents with the same ids.
    client
        Other options of the official client: ``api_key``, ``basic_auth`` or ``http_auth``, ``ca_certs``...
    """

    name: ClassVar[str]
    dialect: ClassVar[Dialect]
    _library: Any  # the module of the official client
    _client_errors: tuple[type[Exception], ...]
    apply_params = GLOBAL_STATISTICS

    def __init__(
        self,
        hosts: str | Sequence[str],
        index: str,
        features: FeatureSet | None = None,
        *,
        timeout: float = 10.0,
        connections: int = 32,
        ids: DocumentIds = "id",
        **client: Any,
    ) -> None:
        check_choice("ids", ids, get_args(DocumentIds))
        if not index:
            raise ParameterError(
                f"no index given: add it to the end of the engine address, as in {self.name}+http://host/movies"
            )
        self.hosts = [hosts] if isinstance(hosts, str) else list(hosts)
        self.index_name = index
        self.feature_set = features
        self.feature_names = () if features is None else features.names
        self.timeout = timeout
        self.ids = ids
        self._fields = FieldCheck(features, index)
        self.client = self._make_client(connections, client)
        self._chosen: tuple[float, list[str]] = -_KNOWN_FOR, []
        self._variant = lru_cache(maxsize=64)(self._make_variant)

    # --- implemented by each engine -------------------------------------------------------------------------------

    @abstractmethod
    def _make_client(self, connections: int, options: dict[str, Any]) -> Any:
        """Create the official client. It may retry on another node only: pauses are up to the caller."""

    @abstractmethod
    def _perform(
        self, method: str, path: str, params: Mapping[str, Any], body: Any, headers: dict[str, str], timeout: float
    ) -> Any:
        """Send a request with the client and return the decoded response."""

    @abstractmethod
    def _problem(self, error: Exception) -> tuple[int | None, Any]:
        """Return the status and body of the response that an error of the client has, or None and its reason."""

    @abstractmethod
    def _bulk_client(self) -> tuple[Any, dict[str, Any]]:
        """Return the client, and the options for its bulk helper, with which requests may take `ADMIN_TIMEOUT`."""

    @abstractmethod
    def _log_batch(
        self, builder: QueryBuilder, wanted: SearchOptions, n_documents: int, timeout: float
    ) -> dict[str, HitValues]:
        """Return scores, field values and requested fields of the documents that match, at most `n_documents`."""

    # --- the Engine interface -------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        size: int,
        vector: ArrayLike | None = None,
        options: SearchOptions = PLAIN,
        timeout: float | None = None,
    ) -> Hits:
        """See `Engine.search`."""
        return self._search(self._search_body(query, size, vector, options), timeout)

    def search_complete(
        self, query: str, *, size: int, vector: ArrayLike | None = None, timeout: float | None = None
    ) -> Hits:
        """See `Engine.search_complete`."""
        body = self._search_body(query, size, vector, PLAIN)
        return self._parse_hits(self._send_complete(GLOBAL_STATISTICS, body, timeout or self.timeout))

    def log(
        self, query: str, doc_ids: Sequence[str], *, vector: ArrayLike | None = None, timeout: float | None = None
    ) -> LoggedFeatures:
        """See `Engine.log`."""
        builder = self._builder(query, vector)
        self._check_fields(timeout)
        unique = list(dict.fromkeys(doc_ids))
        documents: dict[str, HitValues] = {}
        for first in range(0, len(unique), DOCUMENTS_PER_REQUEST):
            batch = unique[first : first + DOCUMENTS_PER_REQUEST]
            documents |= self._log_batch(
                builder, SearchOptions(self._ids_filter(batch)), len(batch), timeout or self.timeout
            )
        in_index = np.array([doc_id in documents for doc_id in doc_ids], dtype=np.bool_)
        values = np.full((len(doc_ids), len(self.feature_names)), np.nan, dtype=np.float32)
        values[in_index] = feature_matrix([documents[doc_id] for doc_id in doc_ids if doc_id in documents], builder)
        return LoggedFeatures(values, in_index)

    def fetch(
        self,
        query: str,
        doc_ids: Sequence[str],
        *,
        vector: ArrayLike | None = None,
        options: SearchOptions = PLAIN,
        timeout: float | None = None,
    ) -> tuple[Hits, Float32]:
        """See `Engine.fetch`."""
        builder = self._builder(query, vector)
        self._check_fields(timeout)
        wanted = options.also_matching(self._ids_filter(doc_ids))
        documents = self._log_batch(builder, wanted, len(doc_ids), timeout or self.timeout)
        ids = [doc_id for doc_id in dict.fromkeys(doc_ids) if doc_id in documents]
        values = [documents[doc_id] for doc_id in ids]
        fields = [value.source for value in values] if options.fields else ()
        return Hits(np.array(ids, dtype=np.str_), np.zeros(len(ids)), fields=fields), feature_matrix(values, builder)

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
        """See `Engine.apply_request`."""
        documents = None if doc_ids is None else self._ids_filter(doc_ids)
        added = [(self._ids_filter([doc_id]), boost) for doc_id, boost in (boosts or {}).items()]
        builder = self._builder(query, vector)
        return builder.weighted_search(weights, documents, size=size, window=window, options=options, boosts=added)

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
        """See `Engine.apply`."""
        body = self.apply_request(
            query, weights, size=size, vector=vector, doc_ids=doc_ids, window=window, options=options, boosts=boosts
        )
        self._check_fields(timeout)
        return self._search(body, timeout)

    def index(self, documents: Iterable[Document], *, settings: Mapping[str, Any] | None = None) -> int:
        """See `Engine.index`; `settings` is the body of the create index request: settings and mappings."""
        if settings is not None and not self._exists():
            self._send("PUT", self._path(""), {}, dict(settings), ADMIN_TIMEOUT)
        actions = ({"_index": self.index_name, "_id": doc_id, "_source": dict(fields)} for doc_id, fields in documents)
        count = self._bulk(actions).written
        self._send("POST", self._path("/_refresh"), {}, None, ADMIN_TIMEOUT)
        return count

    def delete_index(self) -> None:
        """Delete the index and its documents, if it exists."""
        self._send("DELETE", self._path(""), {"ignore_unavailable": "true"}, None, ADMIN_TIMEOUT)

    def scan(self, query: Mapping[str, Any], sort: str) -> Iterator[list[dict[str, Any]]]:
        """See `Engine.scan`. Reads from a scroll."""
        for page in self._scan(query, sort):
            yield [hit["_source"] for hit in page]

    def _scan(self, query: Mapping[str, Any], sort: str, fields: Any = True) -> Iterator[list[dict[str, Any]]]:
        """Yield all documents that match a query, with some fields."""
        # Not by search_after: it would break ties by _id, and OpenSearch 2 loads all of these into its memory.
        body = {"query": dict(query), "size": DOCUMENTS_PER_PAGE, "sort": [{sort: "asc"}], "_source": fields}
        params = {"scroll": _KEEP_ALIVE, "allow_partial_search_results": "false"}
        response = self._send("POST", self._path("/_search"), params, body, ADMIN_TIMEOUT)
        total, n_read = response["hits"]["total"]["value"], 0
        try:
            check_complete(response, self.name)
            while page := response["hits"]["hits"]:
                yield page
                n_read += len(page)
                following = {"scroll": _KEEP_ALIVE, "scroll_id": response["_scroll_id"]}
                response = self._send("POST", "/_search/scroll", {}, following, ADMIN_TIMEOUT)
                check_complete(response, self.name)
        finally:
            self._send("DELETE", "/_search/scroll", {}, {"scroll_id": response["_scroll_id"]}, ADMIN_TIMEOUT)
        if n_read != total:  # a page whose response is lost is not sent again
            raise EngineBusyError(f"{self.name}: read {n_read} of {total} documents; retry later")

    def write_chosen_for(
        self, texts: Mapping[str, Sequence[str]], field: str, advance: Callable[[int], None] = lambda _: None
    ) -> chosen_for.WrittenTexts:
        """Write for each document the texts of queries for which it was chosen; see `kinrank.engines.chosen_for`.

        What the index has already is not written again, and documents that have no texts any more lose theirs. So an
        interrupted call is repeated, and texts are restored after documents were indexed anew.

        Parameters
        ----------
        texts
            Texts by document. Documents that are not in the index are left out.
        field
            Name of the field, which is created if the index does not have it.
        advance
            Called with the number of documents after each that is done.
        """
        self._map_chosen_for(field)
        folds = chosen_for.folds_field(field)
        counts = chosen_for.WrittenTexts()

        def changes() -> Iterator[tuple[str, str, dict[str, list[str]] | None]]:
            seen: set[str] = set()
            for page in self._scan({"exists": {"field": field}}, "_doc", [folds]):
                for hit in page:
                    doc_id = self._doc_id(hit)
                    seen.add(doc_id)
                    wanted, has = chosen_for.stored(texts.get(doc_id, ())), hit["_source"].get(folds) or {}
                    if wanted == {name: values for name, values in has.items() if values}:
                        counts.unchanged += 1
                        advance(1)
                    elif wanted:
                        yield hit["_index"], hit["_id"], {name: [] for name in has} | wanted
                    else:
                        counts.removed += 1
                        yield hit["_index"], hit["_id"], None
            for doc_id in texts:
                if doc_id not in seen:
                    index, _, name = doc_id.partition("/") if self.ids == "index/id" else (self.index_name, "", doc_id)
                    yield index, name, chosen_for.stored(texts[doc_id])

        updates = (
            {
                "_op_type": "update",
                "_index": index,
                "_id": name,
                "retry_on_conflict": 5,
                "doc": {folds: values},
            }
            for index, name, values in changes()
        )
        done = self._bulk(updates, ignored=(404,), advance=advance)
        counts.written, counts.absent = done.written - counts.removed, done.ignored
        self._send("POST", self._path("/_refresh"), {}, None, ADMIN_TIMEOUT)
        return counts

    def _map_chosen_for(self, field: str) -> None:
        if not field.isidentifier():
            raise ParameterError(f"{field!r} is no name of a field: use letters, digits and _")
        for index, properties in self._properties().items():
            if field in properties and not chosen_for.fields_in({field: properties[field]}):
                raise EngineRefusedError(
                    f"{self.name} index {index!r} has a field {field!r} of its own: choose another name with --field"
                )
        self._send("PUT", self._path("/_mapping"), {}, chosen_for.mapping(field), ADMIN_TIMEOUT)
        self._chosen = -_KNOWN_FOR, []

    def _properties(self) -> dict[str, dict[str, Any]]:
        """Return the mapped fields of each index; there are several for an alias."""
        response = self._send("GET", self._path("/_mapping"), {}, None, ADMIN_TIMEOUT)
        return {index: each["mappings"].get("properties", {}) for index, each in response.items()}

    def without_own_texts(self, query: str) -> LuceneEngine:
        """See `Engine.without_own_texts`."""
        read, fields = self._chosen
        if time.monotonic() - read > _KNOWN_FOR:
            fields = sorted({name for each in self._properties().values() for name in chosen_for.fields_in(each)})
            self._chosen = time.monotonic(), fields
        return self._variant(self.feature_names, tuple(fields), chosen_for.fold_of(query)) if fields else self

    def with_features(self, names: Collection[str]) -> LuceneEngine:
        """See `Engine.with_features`."""
        needed = tuple(name for name in self.feature_names if name in names)
        return self if needed == self.feature_names else self._variant(needed, (), 0)

    def _make_variant(self, names: tuple[str, ...], chosen_fields: tuple[str, ...], fold: int) -> LuceneEngine:
        """Return the same engine with some features, without a fold of the texts that documents were chosen for."""
        engine = copy(self)
        engine._variant = lru_cache(maxsize=8)(engine._make_variant)
        if self.feature_set is not None:
            engine.feature_names = names
            engine.feature_set = chosen_for.without_fold(self.feature_set.only(names), chosen_fields, fold)
        return engine

    def field_bounds(self, field: str) -> tuple[float, float] | None:
        """See `Engine.field_bounds`."""
        bounds = {side: {side: {"field": field}} for side in ("min", "max")}
        response = self._send_complete({}, {"size": 0, "aggs": bounds}, ADMIN_TIMEOUT)
        low, high = (response["aggregations"][side]["value"] for side in ("min", "max"))
        return None if low is None else (float(low), float(high))

    def health(self) -> Health:
        """See `Engine.health`."""
        version = self._send("GET", "/", {}, None, self.timeout)["version"]["number"]
        # Count first: a missing index is reported at once, whereas _cluster/health waits and responds 408.
        count = self._send("GET", self._path("/_count"), {}, None, self.timeout)["count"]
        cluster = self._send("GET", f"/_cluster/health/{quote(self.index_name)}", {"timeout": "1s"}, None, self.timeout)
        return Health(f"{self.name} {version}", cluster["status"], cluster["number_of_nodes"], count)

    def identity(self) -> dict[str, str]:
        """See `Engine.identity`. An index that was deleted and created again has a new identity."""
        response = self._send("GET", self._path("/_settings/index.uuid"), {}, None, self.timeout)
        uuids = sorted(index["settings"]["index"]["uuid"] for index in response.values())  # several for an alias
        return {"engine": self.name, "index": " ".join([self.index_name, *uuids])}

    def close(self) -> None:
        """See `Engine.close`."""
        self.client.close()

    # --- helpers --------------------------------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """Engine and index, as errors name them."""
        return f"{self.name} index {self.index_name!r}"

    def _builder(self, query: str, vector: ArrayLike | None) -> QueryBuilder:
        if self.feature_set is None:
            raise ParameterError("this engine was opened without features: pass features=FeatureSet.read(file)")
        return QueryBuilder.create(self.feature_set, self.dialect, query, vector)

    def _send(self, method: str, path: str, params: Mapping[str, Any], body: Any, timeout: float) -> Any:
        """Send a request and return the decoded response. Raises `EngineError` for errors of the client."""
        try:
            return self._perform(method, path, params, body, dict(TRACE_HEADERS.get()), timeout)
        except self._client_errors as error:
            raise self._engine_error(error, timeout) from error

    def _bulk(
        self,
        actions: Iterable[Mapping[str, Any]],
        ignored: Sequence[int] = (),
        advance: Callable[[int], None] = lambda _: None,
    ) -> _Written:
        """Write documents with the client's bulk helper; count those that fail with some status, and go on."""
        helpers = import_extra(f"{self._library.__name__}.helpers", "engines")
        client, options = self._bulk_client()
        count = missed = 0
        try:
            for written, item in helpers.streaming_bulk(
                client, actions, max_retries=5, raise_on_error=False, **options
            ):
                [result] = item.values()
                if not written and result["status"] not in ignored:
                    raise EngineRefusedError(f"{self.where}: document {result['_id']!r} was refused: {result['error']}")
                count += written
                missed += not written
                advance(1)
        except self._client_errors as error:
            raise self._engine_error(error, ADMIN_TIMEOUT) from error
        return _Written(count, missed)

    def _engine_error(self, error: Exception, timeout: float) -> EngineError:
        if isinstance(error, self._library.ConnectionTimeout):
            return EngineTimeoutError(f"{self.where}: no response within {timeout:g} s; {MORE_TIME}")
        status, body = self._problem(error)
        if status is not None:
            return response_error(status, body, self.where)
        if isinstance(error, self._library.ConnectionError):
            # Users of a service see this message: keep passwords in the addresses out of it.
            hosts = ", ".join(self.hosts)
            return EngineUnreachableError(redact_passwords(f"{self.where}: cannot reach any of {hosts} ({body})"))
        return EngineRefusedError(f"{self.where}: {error}")

    def _path(self, rest: str) -> str:
        return f"/{quote(self.index_name)}{rest}"

    def _send_complete(self, params: Mapping[str, str], body: dict[str, Any], timeout: float) -> Any:
        """Search and return the response. Raise `EngineBusyError` if it is partial."""
        complete = {**params, "allow_partial_search_results": "false"}
        response = self._send("POST", self._path("/_search"), complete, body, timeout)
        check_complete(response, self.name)
        return response

    def _search_body(self, query: str, size: int, vector: ArrayLike | None, options: SearchOptions) -> dict[str, Any]:
        candidates = self._builder(query, vector).candidate_query(options.filter_clause)
        return {"query": candidates, "size": size, **options.response_body()}

    def _search(self, body: dict[str, Any], timeout: float | None) -> Hits:
        path = self._path("/_search")
        return self._parse_hits(self._send("POST", path, GLOBAL_STATISTICS, body, timeout or self.timeout))

    def _parse_hits(self, response: Mapping[str, Any]) -> Hits:
        """Return the hits of a search response, with what was requested besides."""
        hits = response["hits"]["hits"]
        return Hits(
            np.array([self._doc_id(hit) for hit in hits], dtype=np.str_),
            np.array([hit["_score"] for hit in hits], dtype=np.float64),
            response["hits"].get("total"),
            [hit["_source"] for hit in hits if "_source" in hit],  # in all hits, or in none
            response.get("aggregations", {}),
        )

    def _doc_id(self, hit: Mapping[str, Any]) -> str:
        return f"{hit['_index']}/{hit['_id']}" if self.ids == "index/id" else str(hit["_id"])

    def _by_id(self, hits: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Return hits by document. Raise `EngineRefusedError` if an id stands for several documents."""
        documents = {self._doc_id(hit): hit for hit in hits}
        if len(documents) < len(hits):
            several = next(hit for hit in hits if documents[self._doc_id(hit)] is not hit)
            raise EngineRefusedError(
                f"{self.where} has several documents with the id {several['_id']!r}, in "
                f"{several['_index']!r} and {documents[self._doc_id(several)]['_index']!r}: connect with "
                "ids='index/id' (--set ids=index/id), and write document ids in this form"
            )
        return documents

    def _ids_filter(self, doc_ids: Sequence[str]) -> Clause:
        return ids_filter(doc_ids, with_index=self.ids == "index/id")

    def _exists(self) -> bool:
        try:
            self._send("GET", self._path("/_settings"), {}, None, ADMIN_TIMEOUT)
        except (EngineRefusedError, MissingIndexError):
            return False
        return True

    def _check_fields(self, timeout: float | None) -> None:
        """Check once that the index has the fields of the features."""
        path, seconds = self._path("/_field_caps"), timeout or self.timeout
        self._fields(lambda names: self._send("GET", path, {"fields": names}, None, seconds)["fields"])


# --- Elasticsearch: one request returns all features, as named clauses ------------------------------------------------


_JSON = {"accept": "application/json", "content-type": "application/json"}
_WITH_NAMED_SCORES = {**GLOBAL_STATISTICS, "include_named_queries_score": "true"}


class ElasticsearchEngine(LuceneEngine):
    """An index of Elasticsearch 8, from 8.8 on (8.12 if `[search]` has a vector). Tested with 8.12.2.

    `client` are other options of ``elasticsearch.Elasticsearch``: ``api_key``, ``basic_auth``, ``ca_certs``,
    ``max_retries``. For all others see `LuceneEngine`.
    """

    name = "elasticsearch"
    dialect = Dialect(
        similarities={
            "cosine": "cosineSimilarity(params.vector, {})",
            "l2": "l2norm(params.vector, {})",
        },
        knn_in_field=False,
    )

    def _make_client(self, connections: int, options: dict[str, Any]) -> Any:
        self._library = import_extra("elasticsearch", "engines")
        self._client_errors = (self._library.ApiError, self._library.TransportError)
        defaults = {"connections_per_node": connections, "retry_on_status": (), "request_timeout": self.timeout}
        client = self._library.Elasticsearch(self.hosts, **{**defaults, **options})
        # client.options() creates a new client, which takes longer than building the request.
        self._client_with_timeout = lru_cache(maxsize=16)(lambda timeout: client.options(request_timeout=timeout))
        return client

    def _perform(
        self, method: str, path: str, params: Mapping[str, Any], body: Any, headers: dict[str, str], timeout: float
    ) -> Any:
        client = self._client_with_timeout(timeout)
        return client.perform_request(method, path, params=params, headers={**_JSON, **headers}, body=body).body

    def _problem(self, error: Any) -> tuple[int | None, Any]:
        return (error.meta.status, error.body) if isinstance(error, self._library.ApiError) else (None, error)

    def _bulk_client(self) -> tuple[Any, dict[str, Any]]:
        return self._client_with_timeout(ADMIN_TIMEOUT), {}

    def search_features(
        self,
        query: str,
        *,
        size: int,
        vector: ArrayLike | None = None,
        options: SearchOptions = PLAIN,
        timeout: float | None = None,
    ) -> tuple[Hits, Float32]:
        """See `Engine.search_features`. Sends one request."""
        found = self.search_adding(query, (), size=size, vector=vector, options=options, timeout=timeout)
        return found.hits, found.features

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
        """See `Engine.search_adding`. Sends one request."""
        builder = self._builder(query, vector)
        self._check_fields(timeout)
        search_clause = builder.candidate_query()
        # The engine has scored its own query already: do not ask for its score again, as that of a feature.
        scored = [name for name, clause in builder.feature_clauses().items() if clause == search_clause]
        named = _named_clauses(builder, scored)
        if doc_ids:
            body, matching = adding_search(builder, self._ids_filter(doc_ids), options)
            named.append(matching)
        else:
            body = {"query": builder.candidate_query(options.filter_clause), **options.response_body()}
        body |= {
            "rescore": _named_scores(named),
            "size": size + len(doc_ids),
            "docvalue_fields": builder.docvalue_fields(),
        }
        response = self._send("POST", self._path("/_search"), _WITH_NAMED_SCORES, body, timeout or self.timeout)
        documents = self._by_id(response["hits"]["hits"])
        response, n_found = without_added(response, documents, doc_ids, size) if doc_ids else (response, len(documents))
        values = [
            HitValues.from_hit(hit, {**hit.get("matched_queries", {}), **dict.fromkeys(scored, hit["_score"])})
            for hit in response["hits"]["hits"]
        ]
        return FoundDocuments(self._parse_hits(response), feature_matrix(values, builder), n_found)

    def _log_batch(
        self, builder: QueryBuilder, wanted: SearchOptions, n_documents: int, timeout: float
    ) -> dict[str, HitValues]:
        body = named_search(builder, wanted, n_documents)
        response = self._send_complete(_WITH_NAMED_SCORES, body, timeout)
        hits = self._by_id(response["hits"]["hits"])
        return {doc_id: HitValues.from_hit(hit, hit.get("matched_queries")) for doc_id, hit in hits.items()}


def named_search(builder: QueryBuilder, wanted: SearchOptions, n_documents: int) -> dict[str, Any]:
    """Return a request whose hits have the scores of all named clauses and the values of all fields.

    Its size is one more than the number of documents, so that ids that stand for several documents are noticed.
    """
    return {
        "query": {"bool": {"filter": [wanted.filter_clause]}},
        "rescore": _named_scores(_named_clauses(builder)),
        "size": n_documents + 1,
        "docvalue_fields": builder.docvalue_fields(),
        "_source": list(wanted.fields) or False,
        "track_total_hits": False,
    }


def _named_scores(clauses: list[Clause]) -> dict[str, Any]:
    """Return a rescorer that changes no score, but whose named clauses are returned with every hit.

    Their scores are computed when hits are fetched. A rescorer of one document spares computing them before that, too.
    """
    query = {"rescore_query": {"bool": {"should": clauses}}, "query_weight": 1.0, "rescore_query_weight": 0.0}
    return {"window_size": 1, "query": query}


def _named_clauses(builder: QueryBuilder, left_out: Sequence[str] = ()) -> list[Clause]:
    clauses = builder.feature_clauses().items()
    return [{"bool": {"must": [clause], "_name": name}} for name, clause in clauses if name not in left_out]


# --- OpenSearch: one _msearch returns all features of a query, with a search per clause -------------------------------
#
# OpenSearch 2.5 returns the names of matching clauses, but not their scores.


_HEADER = json.dumps({**GLOBAL_STATISTICS, "allow_partial_search_results": False})


class OpenSearchEngine(LuceneEngine):
    """An index of OpenSearch 2. Tested with 2.5.0.

    `client` are other options of ``opensearchpy.OpenSearch``: ``http_auth``, ``ca_certs``, ``headers``,
    ``max_retries``. For all others see `LuceneEngine`.
    """

    name = "opensearch"
    dialect = Dialect(
        similarities={
            "cosine": "cosineSimilarity(params.vector, doc[{}])",
            "l2": "Math.sqrt(l2Squared(params.vector, doc[{}]))",
        },
        knn_in_field=True,
    )

    def _make_client(self, connections: int, options: dict[str, Any]) -> Any:
        self._library = import_extra("opensearchpy", "engines")
        self._client_errors = (self._library.OpenSearchException,)
        defaults = {"pool_maxsize": connections, "retry_on_status": (), "timeout": self.timeout}
        return self._library.OpenSearch(self.hosts, **{**defaults, **options})

    def _perform(
        self, method: str, path: str, params: Mapping[str, Any], body: Any, headers: dict[str, str], timeout: float
    ) -> Any:
        limited = {**params, "request_timeout": timeout}
        return self.client.transport.perform_request(method, path, params=limited, body=body, headers=headers)

    def _problem(self, error: Any) -> tuple[int | None, Any]:
        if isinstance(error, self._library.ConnectionError):
            return None, error.error
        return (
            (int(error.status_code), error.info) if isinstance(error, self._library.TransportError) else (None, error)
        )

    def _bulk_client(self) -> tuple[Any, dict[str, Any]]:
        return self.client, {"request_timeout": ADMIN_TIMEOUT}

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
        """See `Engine.search_adding`. Added documents are in the request for the features of the others."""
        start = time.monotonic()
        hits = self.search(query, size=size, vector=vector, options=options, timeout=timeout)
        ids, missing = hits.doc_id.tolist(), missing_ids(hits, doc_ids)
        left = remaining(timeout, start)
        if not missing:
            return FoundDocuments(hits, self.features(query, ids, vector=vector, timeout=left), len(ids))
        documents, rows = self.fetch(query, [*ids, *missing], vector=vector, options=options, timeout=left)
        row_of = {doc_id: row for row, doc_id in enumerate(documents.doc_id.tolist())}
        kept = [place for place, doc_id in enumerate(ids) if doc_id in row_of]  # unless deleted since
        added = [row_of[doc_id] for doc_id in missing if doc_id in row_of]
        order = [row_of[ids[place]] for place in kept] + added
        return FoundDocuments(hits.take(kept).followed_by(documents.take(added)), rows[order], len(kept))

    def _log_batch(
        self, builder: QueryBuilder, wanted: SearchOptions, n_documents: int, timeout: float
    ) -> dict[str, HitValues]:
        names, searches = feature_searches(builder, wanted, n_documents)
        text = "".join(f"{_HEADER}\n{json.dumps(search)}\n" for search in searches)
        # Start all searches at once: OpenSearch 2.5 can crash if a client times out and disconnects while searches of
        # its _msearch are queued (opensearch-project/OpenSearch issue 3962).
        params = {"max_concurrent_searches": len(searches)}
        response = self._send("POST", self._path("/_msearch"), params, text, timeout)
        existing, *scored = [self._checked_hits(part) for part in response["responses"]]
        documents = {doc_id: HitValues.from_hit(hit) for doc_id, hit in self._by_id(existing).items()}
        for name, hits in zip(names, scored, strict=True):
            for doc_id, hit in self._by_id(hits).items():
                if doc_id in documents:  # else it was indexed between two of the searches
                    documents[doc_id].scores[name] = hit["_score"]
        return documents

    def _checked_hits(self, response: Mapping[str, Any]) -> list[dict[str, Any]]:
        if "error" in response:
            raise response_error(int(response.get("status", 500)), response, self.where)
        check_complete(response, self.name)
        hits: list[dict[str, Any]] = response["hits"]["hits"]
        return hits


def feature_searches(
    builder: QueryBuilder, wanted: SearchOptions, n_documents: int
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return feature names and the searches of one ``_msearch``: one for existing documents, then one per feature.

    Their size is one more than the number of documents, so that ids that stand for several documents are noticed.
    """
    common = {"size": n_documents + 1, "_source": False, "track_total_hits": False}
    matching = {"filter": [wanted.filter_clause]}
    returned = {"docvalue_fields": builder.docvalue_fields(), "_source": list(wanted.fields) or False}
    clauses = builder.feature_clauses()
    searches: list[dict[str, Any]] = [{"query": {"bool": matching}, **common, **returned}]
    searches += [{"query": {"bool": {"must": [clause], **matching}}, **common} for clause in clauses.values()]
    return list(clauses), searches
