"""OpenSearch, through its official client. One ``_msearch`` returns all features of a query, with a search per clause.

OpenSearch 2.5 returns the names of matching clauses, but not their scores.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from kinrank.engines.base import remaining
from kinrank.engines.hit_values import HitValues
from kinrank.engines.lucene import ADMIN_TIMEOUT, GLOBAL_STATISTICS, LuceneEngine
from kinrank.engines.query_dsl import Dialect, QueryBuilder
from kinrank.engines.response_errors import check_complete, response_error
from kinrank.engines.responses import FoundDocuments, missing_ids
from kinrank.engines.search_options import PLAIN, SearchOptions
from kinrank.engines.trace_headers import TRACE_HEADERS
from kinrank.errors import EngineError, EngineRefusedError, EngineTimeoutError
from kinrank.registry import import_extra

_HEADER = json.dumps({**GLOBAL_STATISTICS, "allow_partial_search_results": False})


class OpenSearchEngine(LuceneEngine):
    """An index of OpenSearch 2. Tested with 2.5.0.

    Parameters
    ----------
    hosts, index, features, timeout, connections
        See `LuceneEngine`.
    client
        Other options of ``opensearchpy.OpenSearch``: ``http_auth``, ``ca_certs``, ``headers``, ``max_retries``.
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
        defaults = {"pool_maxsize": connections, "retry_on_status": (), "timeout": self.timeout}
        return self._library.OpenSearch(self.hosts, **{**defaults, **options})

    def _send(self, method: str, path: str, params: Mapping[str, Any], body: Any, timeout: float) -> Any:
        try:
            return self.client.transport.perform_request(
                method,
                path,
                params={**params, "request_timeout": timeout},
                body=body,
                headers=dict(TRACE_HEADERS.get()),
            )
        except self._library.OpenSearchException as error:
            raise self._engine_error(error, timeout) from error

    def _engine_error(self, error: Exception, timeout: float) -> EngineError:
        if isinstance(error, self._library.ConnectionTimeout):
            return EngineTimeoutError(f"{self.where}: no response within {timeout:g} s; increase timeout")
        if isinstance(error, self._library.ConnectionError):
            return self._unreachable_error(error.error)
        if isinstance(error, self._library.TransportError):
            return response_error(int(error.status_code), error.info, self.where)
        return EngineRefusedError(f"{self.where}: {error}")

    def _bulk(self, actions: Iterable[Mapping[str, Any]]) -> int:
        helpers = import_extra("opensearchpy.helpers", "engines")
        try:
            count, _ = helpers.bulk(self.client, actions, max_retries=5, request_timeout=ADMIN_TIMEOUT)
        except helpers.BulkIndexError as error:
            raise EngineRefusedError(f"{self.name}: {error.args[0]}; first error: {error.errors[0]}") from error
        except self._library.OpenSearchException as error:
            raise self._engine_error(error, ADMIN_TIMEOUT) from error
        return int(count)

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
        names, searches = log_request(builder, wanted, n_documents)
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


def log_request(
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
