"""The response of a search that adds documents, without a server; `kinrank.checks` has the whole with one."""

from __future__ import annotations

from kinrank.engines._query_dsl import without_added


def hits_of(scores: dict[str, float], matching: dict[str, float]) -> dict[str, dict[str, object]]:
    """Return hits with scores and, of added documents that the search finds, those of the search."""
    named = {doc_id: {"matched_queries": {"kinrank.matching": score}} for doc_id, score in matching.items()}
    return {doc_id: {"_score": score, **named.get(doc_id, {})} for doc_id, score in scores.items()}


def test_added_documents_that_are_found_keep_their_place_and_score():
    scores = {"b": 2.0**100, "x": 2.0**100, "y": 2.0**100, "a": 5.0, "c": 2.0, "d": 1.0}
    documents = hits_of(scores, {"b": 3.0, "x": 0.1})
    response = {
        "hits": {"total": {"value": 6, "relation": "eq"}},
        "aggregations": {"kinrank.matching": {"doc_count": 5, "f": 1}},
    }
    found, n_found = without_added(response, documents, ["y", "b", "gone", "x"], size=3)
    assert n_found == 3
    scores = [hit["_score"] for hit in found["hits"]["hits"]]
    assert scores == [5.0, 3.0, 2.0, None, 0.1]  # a, b, c, then y and x in the order of the request
    assert found["hits"]["total"] == {"value": 5, "relation": "eq"}  # y does not match
    assert found["aggregations"] == {"f": 1}


def test_totals_that_are_bounds_and_ties_stay():
    documents = hits_of({"b": 2.0**100, "a": 2.0}, {"b": 2.0})
    total = {"value": 10000, "relation": "gte"}
    found, n_found = without_added({"hits": {"total": total}}, documents, ["b"], size=1)
    assert (n_found, found["hits"]["total"], found["hits"]["hits"][0]) == (1, total, {"_score": 2.0})
