"""Elasticsearch, through its official client. One request returns all features, as named clauses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from numpy.typing import ArrayLike

from kinrank.arrays import Float32
from kinrank.engines.added_documents import adding_search, without_added
from kinrank.engines.features import Clause
from kinrank.engines.hit_values import HitValues, feature_matrix
from kinrank.engines.lucene import ADMIN_TIMEOUT, GLOBAL_STATISTICS, LuceneEngine
from kinrank.engines.query_dsl import Dialect, QueryBuilder
from kinrank.engines.response_errors import response_error
from kinrank.engines.responses import FoundDocuments, Hits
from kinrank.engines.search_options import PLAIN, SearchOptions
from kinrank.engines.trace_headers import TRACE_HEADERS
from kinrank.errors import EngineError, EngineRefusedError, EngineTimeoutError
from kinrank.registry import import_extra

_JSON = {"accept": "application/json", "content-type": "application/json"}
_WITH_NAMED_SCORES = {**GLOBAL_STATISTICS, "include_named_queries_score": "true"}


class ElasticsearchEngine(LuceneEngine):
    """An index of Elasticsearch 8, from 8.8 on (8.12 if `[search]` has a vector). Tested with 8.12.2.

    Parameters
    ----------
    hosts, index, features, timeout, connections
        See `LuceneEngine`.
    client
        Other options of ``elasticsearch.Elasticsearch``: ``api_key``, ``basic_auth``, ``ca_certs``, ``max_retries``.
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
        defaults = {"connections_per_node": connections, "retry_on_status": (), "request_timeout": self.timeout}
        client = self._library.Elasticsearch(self.hosts, **{**defaults, **options})
        # client.options() creates a new client, which takes longer than building the request.
        self._client_with_timeout = lru_cache(maxsize=16)(lambda timeout: client.options(request_timeout=timeout))
        return client

    def _send(self, method: str, path: str, params: Mapping[str, Any], body: Any, timeout: float) -> Any:
        try:
            client = self._client_with_timeout(timeout)
            return client.perform_request(
                method, path, params=params, headers={**_JSON, **TRACE_HEADERS.get()}, body=body
            ).body
        except (self._library.ApiError, self._library.TransportError) as error:
            raise self._engine_error(error, timeout) from error

    def _engine_error(self, error: Exception, timeout: float) -> EngineError:
        if isinstance(error, self._library.ApiError):
            return response_error(error.meta.status, error.body, self.where)
        if isinstance(error, self._library.ConnectionTimeout):
            return EngineTimeoutError(f"{self.where}: no response within {timeout:g} s; increase timeout")
        if isinstance(error, self._library.ConnectionError):
            return self._unreachable_error(error)
        return EngineRefusedError(f"{self.where}: {error}")

    def _bulk(self, actions: Iterable[Mapping[str, Any]]) -> int:
        helpers = import_extra("elasticsearch.helpers", "engines")
        try:
            count, _ = helpers.bulk(self._client_with_timeout(ADMIN_TIMEOUT), actions, max_retries=5)
        except (self._library.ApiError, self._library.TransportError) as error:
            raise self._engine_error(error, ADMIN_TIMEOUT) from error
        except helpers.BulkIndexError as error:
            raise EngineRefusedError(f"{self.name}: {error}; first error: {error.errors[0]}") from error
        return int(count)

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
        if doc_ids:
            body = adding_search(builder, self._ids_filter(doc_ids), options)
        else:
            body = {"query": builder.candidate_query(options.filter_clause), **options.response_body()}
        body |= {
            "rescore": _named_scores(_named_clauses(builder, scored)),
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
        body = log_request(builder, wanted, n_documents)
        response = self._send_complete(_WITH_NAMED_SCORES, body, timeout)
        hits = self._by_id(response["hits"]["hits"])
        return {doc_id: HitValues.from_hit(hit, hit.get("matched_queries")) for doc_id, hit in hits.items()}


def log_request(builder: QueryBuilder, wanted: SearchOptions, n_documents: int) -> dict[str, Any]:
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
