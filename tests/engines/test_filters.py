from __future__ import annotations

from typing import Any

import pytest

from kinrank.engines import FeatureSet
from kinrank.engines._query_dsl import LEAVES, QueryBuilder, check_filter
from kinrank.engines.lucene import ElasticsearchEngine
from kinrank.errors import ParameterError

RED = {"term": {"color": "red"}}


def nested(levels: int) -> dict[str, Any]:
    return RED if levels == 1 else {"bool": {"must": [nested(levels - 1)]}}


@pytest.mark.parametrize("kind", LEAVES)
def test_allowed_clauses(kind: str):
    leaf = {kind: {"field": "color"}}
    check_filter(leaf)
    check_filter({"bool": {"must": leaf, "must_not": [RED, nested(4)]}})
    check_filter({"bool": {"should": [RED, leaf], "minimum_should_match": 1}})


@pytest.mark.parametrize(
    ("clause", "problem"),
    [
        ({}, "expected a clause with one key"),
        ({**RED, "exists": {"field": "color"}}, "expected a clause with one key"),
        ({"bool": {"should": ["red"]}}, "expected a clause with one key"),
        ({"script": {"script": "while (true) {}"}}, "'script' is not allowed"),
        ({"bool": {"filter": [{"regexp": {"color": ".*"}}]}}, "'regexp' is not allowed"),
        ({"terms": {"color": {"index": "secret", "id": "1", "path": "color"}}}, "lookup is not allowed"),
        ({"bool": {"boost": 2}}, "got 'boost'"),
        ({"term": "red"}, "'term' must be an object"),
        ({"terms": {"color": ["red"] * 1001}}, "1,001 values, but at most 1,000"),
        (nested(6), "nested more than 5 levels"),
    ],
)
def test_other_clauses_are_refused(clause: dict[str, Any], problem: str):
    with pytest.raises(ParameterError, match=problem):
        check_filter(clause)


def test_a_filter_does_not_score():
    features = FeatureSet.parse('[search]\nmatch = "title"\n[features]\na = { match = "title" }')
    builder = QueryBuilder.create(features, ElasticsearchEngine.dialect, "car", None)
    filtered = builder.candidate_query(RED)
    assert filtered == {"bool": {"must": [builder.candidate_query()], "filter": [RED]}}
