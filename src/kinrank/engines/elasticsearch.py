"""Elasticsearch, through its official client. Features of a query are one request: named clauses with their scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from numpy.typing import ArrayLike

from kinrank.arrays import Float32
from kinrank.engines.base import Hits
from kinrank.engines.features import Clause
from kinrank.engines.lucene import (
    ADMIN_TIMEOUT,
    GLOBAL_STATISTICS,
    HitValues,
    LuceneEngine,
    feature_matrix,
    parse_hits,
    whole,
)
from kinrank.engines.query_dsl import Dialect, QueryBuilder, only
from kinrank.engines.response_errors import response_error
from kinrank.errors import EngineError, EngineRefusedError, EngineTimeoutError
from kinrank.registry import import_extra

_JSON = {"accept": "application/json", "content-type": "application/json"}
_NAMED = {**GLOBAL_STATISTICS, "include_named_queries_score": "true"}
_WHOLE = {**_NAMED, "allow_partial_search_results": "false"}


class ElasticsearchEngine(LuceneEngine):
    """An index of Elasticsearch, 8.8 or later of version 8 (8.12 where `[search]` has a vector); tested with 8.12.2.

    Parameters
    ----------
    hosts, index, features, timeout, connections
        See `LuceneEngine`.
    client
        Whatever else ``elasticsearch.Elasticsearch`` takes: ``api_key``, ``basic_auth``, ``ca_certs``, ``max_retries``.
    """

    name = "elasticsearch"
    dialect = Dialect(
        similarities={
            "cosine": "cosineSimilarity(params.vector, {})",
            "l2": "l2norm(params.vector, {})",
        },
        knn_in_field=False,
    )

    def _make_client(self, connections: int, settings: dict[str, Any]) -> Any:
        self._library = import_extra("elasticsearch", "engines")
        own = {"connections_per_node": connections, "retry_on_status": (), "request_timeout": self.timeout}
        client = self._library.Elasticsearch(self.hosts, **{**own, **settings})
        # The client is built anew for every timeout, which takes longer than to write the request.
        self._waiting = lru_cache(maxsize=16)(lambda timeout: client.options(request_timeout=timeout))
        return client

    def _send(self, method: str, path: str, params: Mapping[str, Any], body: Any, timeout: float) -> Any:
        try:
            client = self._waiting(timeout)
            return client.perform_request(method, path, params=params, headers=_JSON, body=body).body
        except (self._library.ApiError, self._library.TransportError) as error:
            raise self._ours(error, timeout) from error

    def _ours(self, error: Exception, timeout: float) -> EngineError:
        where = f"{self.name} index {self.index_name!r}"
        if isinstance(error, self._library.ApiError):
            return response_error(error.meta.status, error.body, where)
        if isinstance(error, self._library.ConnectionTimeout):
            return EngineTimeoutError(f"{where}: no answer within {timeout:g} s; ask less at a time, or allow more")
        if isinstance(error, self._library.ConnectionError):
            return self._unreachable(error)
        return EngineRefusedError(f"{where}: {error}")

    def _bulk(self, actions: Iterable[Mapping[str, Any]]) -> int:
        helpers = import_extra("elasticsearch.helpers", "engines")
        try:
            count, _ = helpers.bulk(self._waiting(ADMIN_TIMEOUT), actions, max_retries=5)
        except (self._library.ApiError, self._library.TransportError) as error:
            raise self._ours(error, ADMIN_TIMEOUT) from error
        except helpers.BulkIndexError as error:
            raise EngineRefusedError(f"{self.name}: {error}; the first: {error.errors[0]}") from error
        return int(count)

    def search_features(
        self, query: str, *, size: int, vector: ArrayLike | None = None, timeout: float | None = None
    ) -> tuple[Hits, Float32]:
        """As `Engine.search_features`, in one request: clauses of a rescorer that adds nothing are named, too."""
        question = self._question(query, vector)
        self._check_fields(timeout)
        named = {
            "rescore_query": {"bool": {"should": _named(question)}},
            "query_weight": 1.0,
            "rescore_query_weight": 0.0,
        }
        body = {
            "query": question.candidates(),
            "rescore": {"window_size": size, "query": named},
            "size": size,
            "docvalue_fields": question.stored(),
            "_source": False,
        }
        answer = self._send("POST", self._path("/_search"), _NAMED, body, timeout or self.timeout)
        said = [HitValues.of(hit, hit.get("matched_queries")) for hit in answer["hits"]["hits"]]
        return parse_hits(answer), feature_matrix(said, question)

    def _log_some(self, question: QueryBuilder, doc_ids: list[str], timeout: float) -> dict[str, HitValues]:
        body = log_request(question, doc_ids)
        answer = self._send("POST", self._path("/_search"), _WHOLE, body, timeout)
        hits = whole(answer, self.name)["hits"]["hits"]
        return {hit["_id"]: HitValues.of(hit, hit.get("matched_queries")) for hit in hits}


def log_request(question: QueryBuilder, doc_ids: list[str]) -> dict[str, Any]:
    """One request whose hits carry the score of every clause by name, and stored values beside them."""
    return {
        "query": {"bool": {"filter": [only(doc_ids)], "should": _named(question)}},
        "size": len(doc_ids),
        "docvalue_fields": question.stored(),
        "_source": False,
        "track_total_hits": False,
    }


def _named(question: QueryBuilder) -> list[Clause]:
    return [{"bool": {"must": [clause], "_name": name}} for name, clause in question.scored().items()]
