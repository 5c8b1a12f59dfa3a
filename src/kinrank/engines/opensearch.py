"""OpenSearch, through its official client. Features of a query are one ``_msearch``: a search per clause.

OpenSearch 2.5 names the clauses that matched, but not their scores.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kinrank.engines.lucene import ADMIN_TIMEOUT, GLOBAL_STATISTICS, HitValues, LuceneEngine, whole
from kinrank.engines.query_dsl import Dialect, QueryBuilder, only
from kinrank.engines.response_errors import response_error
from kinrank.errors import EngineError, EngineRefusedError, EngineTimeoutError
from kinrank.registry import import_extra

_HEADER = json.dumps({**GLOBAL_STATISTICS, "allow_partial_search_results": False})


class OpenSearchEngine(LuceneEngine):
    """An index of OpenSearch 2; tested with 2.5.0.

    Parameters
    ----------
    hosts, index, features, timeout, connections
        See `LuceneEngine`.
    client
        Whatever else ``opensearchpy.OpenSearch`` takes: ``http_auth``, ``ca_certs``, ``headers``, ``max_retries``.
    """

    name = "opensearch"
    dialect = Dialect(
        similarities={
            "cosine": "cosineSimilarity(params.vector, doc[{}])",
            "l2": "Math.sqrt(l2Squared(params.vector, doc[{}]))",
        },
        knn_in_field=True,
    )

    def _make_client(self, connections: int, settings: dict[str, Any]) -> Any:
        self._library = import_extra("opensearchpy", "engines")
        own = {"pool_maxsize": connections, "retry_on_status": (), "timeout": self.timeout}
        return self._library.OpenSearch(self.hosts, **{**own, **settings})

    def _send(self, method: str, path: str, params: Mapping[str, Any], body: Any, timeout: float) -> Any:
        try:
            return self.client.transport.perform_request(
                method, path, params={**params, "request_timeout": timeout}, body=body
            )
        except self._library.OpenSearchException as error:
            raise self._ours(error, timeout) from error

    def _ours(self, error: Exception, timeout: float) -> EngineError:
        where = f"{self.name} index {self.index_name!r}"
        if isinstance(error, self._library.ConnectionTimeout):
            return EngineTimeoutError(f"{where}: no answer within {timeout:g} s; ask less at a time, or allow more")
        if isinstance(error, self._library.ConnectionError):
            return self._unreachable(error.error)
        if isinstance(error, self._library.TransportError):
            return response_error(int(error.status_code), error.info, where)
        return EngineRefusedError(f"{where}: {error}")

    def _bulk(self, actions: Iterable[Mapping[str, Any]]) -> int:
        helpers = import_extra("opensearchpy.helpers", "engines")
        try:
            count, _ = helpers.bulk(self.client, actions, max_retries=5, request_timeout=ADMIN_TIMEOUT)
        except helpers.BulkIndexError as error:
            raise EngineRefusedError(f"{self.name}: {error.args[0]}; the first: {error.errors[0]}") from error
        except self._library.OpenSearchException as error:
            raise self._ours(error, ADMIN_TIMEOUT) from error
        return int(count)

    def _log_some(self, question: QueryBuilder, doc_ids: list[str], timeout: float) -> dict[str, HitValues]:
        names, searches = log_request(question, doc_ids)
        text = "".join(f"{_HEADER}\n{json.dumps(search)}\n" for search in searches)
        # All searches start at once. OpenSearch 2.5 may die where a client that has waited long enough hangs up while
        # searches of an _msearch are still queued (opensearch-project/OpenSearch issue 3962).
        answer = self._send("POST", self._path("/_msearch"), {"max_concurrent_searches": len(searches)}, text, timeout)
        first, *others = [self._answered(one) for one in answer["responses"]]
        found = {hit["_id"]: HitValues.of(hit) for hit in first}
        for name, hits in zip(names, others, strict=True):
            for hit in hits:
                if hit["_id"] in found:  # not one that came between two searches
                    found[hit["_id"]].scores[name] = hit["_score"]
        return found

    def _answered(self, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
        if "error" in answer:
            raise response_error(int(answer.get("status", 500)), answer, f"{self.name} index {self.index_name!r}")
        hits: list[dict[str, Any]] = whole(answer, self.name)["hits"]["hits"]
        return hits


def log_request(question: QueryBuilder, doc_ids: list[str]) -> tuple[list[str], list[dict[str, Any]]]:
    """The names of the clauses, and the searches of one ``_msearch``: which documents there are, then one each."""
    common = {"size": len(doc_ids), "_source": False, "track_total_hits": False}
    these = only(doc_ids)
    searches: list[dict[str, Any]] = [
        {"query": {"bool": {"filter": [these]}}, "docvalue_fields": question.stored(), **common}
    ]
    scored = question.scored()
    searches += [{"query": {"bool": {"must": [clause], "filter": [these]}}, **common} for clause in scored.values()]
    return list(scored), searches
