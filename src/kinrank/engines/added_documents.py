"""One search of Elasticsearch that also returns documents by id, whether or not it finds them. Nothing here sends it.

The added documents get scores above all others, so that they are always among the hits: 2^20 if the search does not
find them, else 2^60 times their score in the search. Both are powers of two. So the sum of the three clauses is rounded
to exactly this multiple, and dividing by it gives the score with all its digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kinrank.engines.features import Clause
from kinrank.engines.query_dsl import QueryBuilder
from kinrank.engines.search_options import SearchOptions

_FOUND = 2.0**60
_NOT_FOUND = 2.0**20
_MATCHING = "matching"


def adding_search(builder: QueryBuilder, documents: Clause, options: SearchOptions) -> dict[str, Any]:
    """Return the body of a search that adds documents.

    Parameters
    ----------
    builder
        Builds the clauses of the query.
    documents
        Matches the documents to add.
    options
        What they and the candidates must match, and what is returned with them.
    """
    candidates = builder.candidate_query(options.filter_clause)
    wanted = options.also_matching(documents).filter_clause
    found = {"bool": {"must": [builder.candidate_query()], "filter": [wanted], "boost": _FOUND}}
    added = {"constant_score": {"filter": wanted, "boost": _NOT_FOUND}}
    body = {"query": {"bool": {"should": [candidates, found, added]}}, **options.response_body()}
    if options.facets:  # of the candidates alone
        body["aggs"] = {_MATCHING: {"filter": candidates, "aggs": body["aggs"]}}
    return body


def without_added(
    response: Mapping[str, Any], documents: Mapping[str, Mapping[str, Any]], doc_ids: Sequence[str], size: int
) -> tuple[dict[str, Any], int]:
    """Return the response of the search alone, followed by the added documents, and the number of its hits.

    Of documents with the same score, added ones come last. Those that the search does not find have the score None.

    Parameters
    ----------
    response
        The response to `adding_search`, whose size was `size` and the number of added documents.
    documents
        Its hits by document.
    doc_ids
        The added documents.
    size
        The number of hits of the search.
    """
    requested = [doc_id for doc_id in dict.fromkeys(doc_ids) if doc_id in documents]
    scores = {doc_id: _single(hit["_score"]) for doc_id, hit in documents.items() if doc_id not in set(requested)}
    scores |= {doc_id: _single(documents[doc_id]["_score"]) / _FOUND for doc_id in requested}
    not_found = {doc_id for doc_id in requested if scores[doc_id] <= _NOT_FOUND / _FOUND}
    found = sorted((each for each in scores if each not in not_found), key=scores.__getitem__, reverse=True)[:size]
    added = [doc_id for doc_id in requested if doc_id not in set(found)]
    hits = [
        {**documents[doc_id], "_score": None if doc_id in not_found else scores[doc_id]} for doc_id in [*found, *added]
    ]
    total = response["hits"].get("total")
    if total is not None and total["relation"] == "eq":
        total = {**total, "value": total["value"] - len(not_found)}
    facets = dict(response.get("aggregations", {}).get(_MATCHING, {}))
    facets.pop("doc_count", None)
    return {"hits": {"hits": hits, "total": total}, "aggregations": facets}, len(found)


def _single(score: float) -> float:
    """Return a score in single precision, as the engine computed it: its decimals in a response are rounded."""
    return float(np.float32(score))
