"""Shared implementation of the Elasticsearch and OpenSearch engines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike

from kinrank.arrays import Float32
from kinrank.data.filesystems import redact_passwords
from kinrank.engines.base import Engine
from kinrank.engines.feature_set import FeatureSet
from kinrank.engines.features import Clause
from kinrank.engines.fields import FieldCheck
from kinrank.engines.hit_values import HitValues, feature_matrix
from kinrank.engines.query_dsl import Dialect, QueryBuilder, ids_filter
from kinrank.engines.response_errors import check_complete
from kinrank.engines.responses import Document, Health, Hits, LoggedFeatures
from kinrank.engines.search_options import PLAIN, SearchOptions
from kinrank.errors import (
    EngineBusyError,
    EngineRefusedError,
    EngineUnreachableError,
    MissingIndexError,
    ParameterError,
)
from kinrank.registry.choices import check_choice

DocumentIds = Literal["id", "index/id"]

DOCUMENTS_PER_REQUEST = 1000
"""Maximum number of documents whose features one request computes."""

DOCUMENTS_PER_PAGE = 5000
"""Number of documents that one request of a scan returns."""

_KEEP_ALIVE = "5m"  # between two pages

ADMIN_TIMEOUT = 60.0
"""Timeout in seconds for creating, filling and deleting an index."""

# Use the term statistics of the whole index: otherwise the score of a document depends on its shard.
GLOBAL_STATISTICS = {"search_type": "dfs_query_then_fetch"}


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

    # --- implemented by each engine -------------------------------------------------------------------------------

    @abstractmethod
    def _make_client(self, connections: int, options: dict[str, Any]) -> Any:
        """Create the official client. It may retry on another node only: pauses are up to the caller."""

    @abstractmethod
    def _send(self, method: str, path: str, params: Mapping[str, Any], body: Any, timeout: float) -> Any:
        """Send a request and return the decoded response. Raises `EngineError` for errors of the client."""

    @abstractmethod
    def _bulk(self, actions: Iterable[Mapping[str, Any]]) -> int:
        """Write documents with the client's bulk helper and return their number."""

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
        count = self._bulk(actions)
        self._send("POST", self._path("/_refresh"), {}, None, ADMIN_TIMEOUT)
        return count

    def delete_index(self) -> None:
        """Delete the index and its documents, if it exists."""
        self._send("DELETE", self._path(""), {"ignore_unavailable": "true"}, None, ADMIN_TIMEOUT)

    def scan(self, query: Mapping[str, Any], sort: str) -> Iterator[list[dict[str, Any]]]:
        """See `Engine.scan`. Reads from a scroll."""
        # Not by search_after: it would break ties by _id, and OpenSearch 2 loads all of these into its memory.
        body = {"query": dict(query), "size": DOCUMENTS_PER_PAGE, "sort": [{sort: "asc"}]}
        params = {"scroll": _KEEP_ALIVE, "allow_partial_search_results": "false"}
        response = self._send("POST", self._path("/_search"), params, body, ADMIN_TIMEOUT)
        total, n_read = response["hits"]["total"]["value"], 0
        try:
            check_complete(response, self.name)
            while page := [hit["_source"] for hit in response["hits"]["hits"]]:
                yield page
                n_read += len(page)
                following = {"scroll": _KEEP_ALIVE, "scroll_id": response["_scroll_id"]}
                response = self._send("POST", "/_search/scroll", {}, following, ADMIN_TIMEOUT)
                check_complete(response, self.name)
        finally:
            self._send("DELETE", "/_search/scroll", {}, {"scroll_id": response["_scroll_id"]}, ADMIN_TIMEOUT)
        if n_read != total:  # a page whose response is lost is not sent again
            raise EngineBusyError(f"{self.name}: read {n_read} of {total} documents; retry later")

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

    def _unreachable_error(self, reason: object) -> EngineUnreachableError:
        # Users of a service see this message: keep passwords in the addresses out of it.
        hosts = ", ".join(self.hosts)
        return EngineUnreachableError(redact_passwords(f"{self.where}: cannot reach any of {hosts} ({reason})"))

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
