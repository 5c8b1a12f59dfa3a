from __future__ import annotations

from typing import Any

import pytest

from kinrank.engines._query_dsl import BUCKETS, METRICS, check_facets
from kinrank.errors import ParameterError

GENRES = {"terms": {"field": "genres", "size": 20}}


def nested(levels: int) -> dict[str, Any]:
    return {"genres": GENRES if levels == 1 else {**GENRES, "aggs": nested(levels - 1)}}


@pytest.mark.parametrize("kind", [*BUCKETS, *METRICS])
def test_allowed_facets(kind: str):
    body = {"term": {"sold": True}} if kind == "filter" else {"field": "year"}
    check_facets({"a": {kind: body}, "b": {**GENRES, "aggs": {"inside": {kind: body}}}})
    check_facets(nested(3))


@pytest.mark.parametrize(
    ("facets", "problem"),
    [
        ({"a": {"top_hits": {"size": 3}}}, "'top_hits' is not allowed"),
        ({"a": {"terms": {"script": "while (true) {}"}}}, "'script' is not allowed"),
        ({"a": {"terms": {"field": "x", "include": ".*.*"}}}, "with a pattern are not allowed"),
        ({"a": {"terms": {"field": "x", "size": 1001}}}, "at most 1,000 buckets, got size 1001"),
        ({"a": {"terms": {"field": "x", "size": "all"}}}, "got size 'all'"),
        ({"a": {"filter": {"script": {}}}}, "filter: 'script' is not allowed"),
        ({"a": {**GENRES, "aggs": {"b": {"scripted_metric": {}}}}}, "'scripted_metric' is not allowed"),
        ({"a": {}}, "expected one aggregation"),
        ({"a": {**GENRES, "min": {"field": "year"}}}, "expected one aggregation"),
        ({"a": "genres"}, "must be an object, got str"),
        ({"a": {"min": "year"}}, "must be an object, got str"),
        (nested(4), "nested more than 3 levels"),
        ({str(i): GENRES for i in range(51)}, "51 aggregations, but at most 50"),
    ],
)
def test_other_facets_are_refused(facets: dict[str, Any], problem: str):
    with pytest.raises(ParameterError, match=problem):
        check_facets(facets)
