"""What Elasticsearch and OpenSearch have in common as engines; they differ in their clients and in how they log."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike

from kinrank.arrays import Float32
from kinrank.engines.address import redact_passwords
from kinrank.engines.base import Document, Engine, Health, Hits, LoggedFeatures
from kinrank.engines.feature_set import FeatureSet
from kinrank.engines.features import FieldValue, QueryLength, VectorSimilarity
from kinrank.engines.fields import check_fields, required_fields
from kinrank.engines.query_dsl import Dialect, QueryBuilder, only, score_shift
from kinrank.engines.response_errors import root_cause
from kinrank.errors import EngineBusyError, EngineRefusedError, EngineUnreachableError, ParameterError

DOCUMENTS_AT_ONCE = 1000
"""How many documents one request asks the features of."""

ADMIN_TIMEOUT = 60.0
"""Seconds that making, filling and deleting an index may take."""

# Term statistics of the whole index: without them the score of a document depends on its shard.
GLOBAL_STATISTICS = {"search_type": "dfs_query_then_fetch"}


class HitValues(NamedTuple):
    """What an engine says of a document: scores by the names of features, values by the names of fields."""

    scores: dict[str, float]
    stored: dict[str, float]

    @classmethod
    def of(cls, hit: Mapping[str, Any], scores: dict[str, float] | None = None) -> HitValues:
        """From a hit with ``docvalue_fields``; of several values of a field the first, as scripts see it."""
        return cls(scores or {}, {field: float(values[0]) for field, values in hit.get("fields", {}).items()})


def feature_matrix(documents: Sequence[HitValues], question: QueryBuilder) -> Float32:
    """The features of documents, a row each; made column by column, since there are many more documents than kinds."""
    columns = np.empty((len(question.features.features), len(documents)), dtype=np.float32)
    for column, feature in zip(columns, question.features.features, strict=True):
        if isinstance(feature, QueryLength):
            column[:] = feature.value(question.query)
        elif isinstance(feature, FieldValue):
            column[:] = feature.values([said.stored.get(feature.field, np.nan) for said in documents])
        else:
            scores = np.array([said.scores.get(feature.name, np.nan) for said in documents], dtype=np.float64)
            column[:] = scores - score_shift(feature) if isinstance(feature, VectorSimilarity) else scores
        if feature.missing == "zero":
            column[np.isnan(column)] = 0.0
    return np.ascontiguousarray(columns.T)


class LuceneEngine(Engine):
    """Base of `ElasticsearchEngine` and `OpenSearchEngine`.

    Parameters
    ----------
    hosts
        The addresses of its nodes, ``"http://127.0.0.1:9200"``; a request goes to another one where one is gone.
    index
        The name of the index.
    features
        What is asked of it; None where only `index` and `health` are wanted.
    timeout
        Seconds that an answer may take where a call does not say.
    connections
        How many connections are kept per node; threads beyond that wait.
    client
        Whatever else the official client takes: ``api_key``, ``basic_auth`` or ``http_auth``, ``ca_certs``...
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
        connections: int = 16,
        **client: Any,
    ) -> None:
        if not index:
            raise ParameterError(
                f"no index named: the address of an engine ends in it, as in {self.name}+http://host/movies"
            )
        self.hosts = [hosts] if isinstance(hosts, str) else list(hosts)
        self.index_name = index
        self.feature_set = features
        self.feature_names = () if features is None else features.names
        self.timeout = timeout
        self._checking = threading.Lock()
        self._checked = False
        self.client = self._make_client(connections, client)

    # --- what the two implement -------------------------------------------------------------------------------------

    @abstractmethod
    def _make_client(self, connections: int, settings: dict[str, Any]) -> Any:
        """The official client. It must not repeat a request but on another node: pauses are the caller's to make."""

    @abstractmethod
    def _send(self, method: str, path: str, params: Mapping[str, Any], body: Any, timeout: float) -> Any:
        """Send a request and return the decoded answer; errors of the client are raised as ours."""

    @abstractmethod
    def _bulk(self, actions: Iterable[Mapping[str, Any]]) -> int:
        """Write documents by the client's helper."""

    @abstractmethod
    def _log_some(self, question: QueryBuilder, doc_ids: list[str], timeout: float) -> dict[str, HitValues]:
        """What the engine says of each document there is."""

    # --- the verbs --------------------------------------------------------------------------------------------------

    def search(self, query: str, *, size: int, vector: ArrayLike | None = None, timeout: float | None = None) -> Hits:
        """As `Engine.search`."""
        return self._hits(self._search_body(query, size, vector), timeout)

    def search_complete(
        self, query: str, *, size: int, vector: ArrayLike | None = None, timeout: float | None = None
    ) -> Hits:
        """As `Engine.search_complete`."""
        params = {**GLOBAL_STATISTICS, "allow_partial_search_results": "false"}
        body = self._search_body(query, size, vector)
        answer = self._send("POST", self._path("/_search"), params, body, timeout or self.timeout)
        return parse_hits(whole(answer, self.name))

    def log(
        self, query: str, doc_ids: Sequence[str], *, vector: ArrayLike | None = None, timeout: float | None = None
    ) -> LoggedFeatures:
        """As `Engine.log`."""
        question = self._question(query, vector)
        self._check_fields(timeout)
        wanted = list(dict.fromkeys(doc_ids))
        found: dict[str, HitValues] = {}
        for first in range(0, len(wanted), DOCUMENTS_AT_ONCE):
            found |= self._log_some(question, wanted[first : first + DOCUMENTS_AT_ONCE], timeout or self.timeout)
        there = np.array([doc_id in found for doc_id in doc_ids], dtype=np.bool_)
        values = np.full((len(doc_ids), len(self.feature_names)), np.nan, dtype=np.float32)
        values[there] = feature_matrix([found[doc_id] for doc_id in doc_ids if doc_id in found], question)
        return LoggedFeatures(values, there)

    def apply_request(
        self,
        query: str,
        weights: ArrayLike,
        *,
        size: int,
        vector: ArrayLike | None = None,
        doc_ids: Sequence[str] | None = None,
        window: int | None = None,
    ) -> dict[str, Any]:
        """As `Engine.apply_request`."""
        question = self._question(query, vector)
        among = question.candidates() if doc_ids is None else only(doc_ids)
        if window is None:
            return {"query": question.weighted(weights, among), "size": size, "_source": False}
        again = {
            "rescore_query": question.weighted(weights, {"match_all": {}}),
            "query_weight": 0.0,
            "rescore_query_weight": 1.0,
        }
        rescore = {"window_size": window, "query": again}
        return {"query": among, "rescore": rescore, "size": min(size, window), "_source": False}

    def apply(
        self,
        query: str,
        weights: ArrayLike,
        *,
        size: int,
        vector: ArrayLike | None = None,
        doc_ids: Sequence[str] | None = None,
        window: int | None = None,
        timeout: float | None = None,
    ) -> Hits:
        """As `Engine.apply`."""
        body = self.apply_request(query, weights, size=size, vector=vector, doc_ids=doc_ids, window=window)
        self._check_fields(timeout)
        return self._hits(body, timeout)

    def index(self, documents: Iterable[Document], *, settings: Mapping[str, Any] | None = None) -> int:
        """As `Engine.index`; `settings` is the body of the request that makes an index: settings and mappings."""
        if settings is not None and not self._exists():
            self._send("PUT", self._path(""), {}, dict(settings), ADMIN_TIMEOUT)
        actions = ({"_index": self.index_name, "_id": doc_id, "_source": dict(fields)} for doc_id, fields in documents)
        count = self._bulk(actions)
        self._send("POST", self._path("/_refresh"), {}, None, ADMIN_TIMEOUT)
        return count

    def delete_index(self) -> None:
        """Delete the index with all its documents, if it is there."""
        self._send("DELETE", self._path(""), {"ignore_unavailable": "true"}, None, ADMIN_TIMEOUT)

    def health(self) -> Health:
        """As `Engine.health`."""
        version = self._send("GET", "/", {}, None, self.timeout)["version"]["number"]
        # First: it says at once that an index is not there, where _cluster/health waits and answers 408.
        count = self._send("GET", self._path("/_count"), {}, None, self.timeout)["count"]
        cluster = self._send("GET", f"/_cluster/health/{quote(self.index_name)}", {"timeout": "1s"}, None, self.timeout)
        return Health(f"{self.name} {version}", cluster["status"], cluster["number_of_nodes"], count)

    def identity(self) -> dict[str, str]:
        """As `Engine.identity`: an index that was deleted and made again is another one."""
        answer = self._send("GET", self._path("/_settings/index.uuid"), {}, None, self.timeout)
        made = sorted(one["settings"]["index"]["uuid"] for one in answer.values())  # several behind an alias
        return {"engine": self.name, "index": " ".join([self.index_name, *made])}

    def close(self) -> None:
        """As `Engine.close`."""
        self.client.close()

    # --- how --------------------------------------------------------------------------------------------------------

    def _question(self, query: str, vector: ArrayLike | None) -> QueryBuilder:
        if self.feature_set is None:
            raise ParameterError("this engine was opened without features: pass features=FeatureSet.read(file)")
        return QueryBuilder.of(self.feature_set, self.dialect, query, vector)

    def _unreachable(self, why: object) -> EngineUnreachableError:
        # Whoever searches through a service is told of it: users and passwords of the addresses are not for him.
        hosts = ", ".join(self.hosts)
        where = f"{self.name} index {self.index_name!r}"
        return EngineUnreachableError(redact_passwords(f"{where}: none of {hosts} can be reached ({why})"))

    def _path(self, rest: str) -> str:
        return f"/{quote(self.index_name)}{rest}"

    def _search_body(self, query: str, size: int, vector: ArrayLike | None) -> dict[str, Any]:
        return {"query": self._question(query, vector).candidates(), "size": size, "_source": False}

    def _hits(self, body: dict[str, Any], timeout: float | None) -> Hits:
        answer = self._send("POST", self._path("/_search"), GLOBAL_STATISTICS, body, timeout or self.timeout)
        return parse_hits(answer)

    def _exists(self) -> bool:
        try:
            self._send("GET", self._path("/_settings"), {}, None, ADMIN_TIMEOUT)
        except EngineRefusedError:
            return False
        return True

    def _check_fields(self, timeout: float | None) -> None:
        """Once: every field that is asked for is there. A clause on an unknown field would quietly match nothing."""
        if self._checked or self.feature_set is None:
            return
        with self._checking:
            wanted = required_fields(self.feature_set)
            if wanted and not self._checked:
                names = ",".join(sorted({field.name for field in wanted}))
                answer = self._send("GET", self._path("/_field_caps"), {"fields": names}, None, timeout or self.timeout)
                check_fields(wanted, answer["fields"], self.index_name)
            self._checked = True


def parse_hits(answer: Mapping[str, Any]) -> Hits:
    """The documents of an answer."""
    hits = answer["hits"]["hits"]
    return Hits(
        np.array([hit["_id"] for hit in hits], dtype=np.str_),
        np.array([hit["_score"] for hit in hits], dtype=np.float64),
    )


def whole(answer: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The answer to a search, or an error where a shard or the time did not suffice: half a list must not be logged."""
    failed = answer["_shards"]["failed"]
    if failed or answer["timed_out"]:
        failures = answer["_shards"].get("failures") or [{"reason": "out of time"}]
        _, reason = root_cause({"error": failures[0]["reason"]})
        raise EngineBusyError(f"{where}: only a part of the index has answered ({failed} shards failed: {reason})")
    return answer
