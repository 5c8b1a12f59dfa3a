from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from kinrank.engines import FeatureSet, lucene
from kinrank.engines._query_dsl import Dialect, QueryBuilder, SearchOptions, ids_filter
from kinrank.engines.lucene import ElasticsearchEngine, OpenSearchEngine, feature_searches, named_search
from kinrank.errors import ParameterError

FEATURES = FeatureSet.parse("""
[search]
match = "title"
vector = "embedding"
nearest = 20
vector_boost = 2.0
[features]
title = { match = "title" }
body = { phrase = "body", slop = 1 }
near = { vector = "embedding" }
votes = { field = "votes", transform = "sqrt" }
words = { query_length = "words" }
""")


def builder(dialect: Dialect = ElasticsearchEngine.dialect, vector: Any = (0.0, 1.0)) -> QueryBuilder:
    return QueryBuilder.create(FEATURES, dialect, "red car", vector)


def test_positive_weights_become_boosts():
    title, body = (feature.clause("red car") for feature in FEATURES.features[:2])  # type: ignore[attr-defined]
    assert builder().weighted_query([2.0, 0.5, 0.0, 0.0, 9.0], {"match_all": {}}) == {
        "bool": {
            "filter": [{"match_all": {}}],
            "should": [
                {"bool": {"must": [title], "boost": 2.0}},
                {"bool": {"must": [body], "boost": 0.5}},
            ],
        }
    }


def test_negative_weights_are_subtracted_from_a_bound():
    query = builder().weighted_query([1.0, -0.5, 0.0, 0.0, 0.0], {"match_all": {}})
    _, subtracted = query["bool"]["should"]
    script = subtracted["script_score"]["script"]
    assert script["params"] == {"bound": 0.5 * 64 * 2}
    assert subtracted["script_score"]["query"]["bool"]["should"][0]["bool"]["boost"] == 0.5


def test_boosts_are_never_negative():
    for seed in range(20):
        weights = np.random.default_rng(seed).normal(size=5)
        text = json.dumps(builder().weighted_query(weights, {"match_all": {}}))
        assert '"boost": -' not in text


def test_script_is_the_same_for_every_query():
    def script(query: QueryBuilder, weights: list[float]) -> Any:
        return query.weighted_query(weights, {"match_all": {}})["script_score"]["script"]

    one = script(builder(), [1.0, -1.0, 0.3, 0.1, 0.0])
    other = script(builder(vector=(1.0, 0.0)), [0.0, 2.0, -7.0, 0.2, 1.0])
    assert one["source"] == other["source"]
    assert one["params"]["weights"] == [0.3, 0.1]
    assert other["params"] == {"vector": [1.0, 0.0], "shift": 0, "weights": [-7.0, 0.2]}


@pytest.mark.parametrize("size", [1e-8, 1e-4, 1.0, 1e12])
def test_script_keeps_the_order_in_single_precision(size: float):
    source = builder().weighted_query([1.0, 0.0, 0.0, 1.0, 0.0], {"match_all": {}})["script_score"]["script"]["source"]
    enlarged = re.search(r"; x \*= (\S+); return x >= 0 \? x \+ 1 : 1 / \(1 - x\);$", source)
    assert enlarged is not None
    x = float(enlarged[1]) * size * np.linspace(-1, 1, 1000)
    scores = np.where(x >= 0, np.abs(x) + 1, 1 / (1 + np.abs(x))).astype(np.float32)
    assert (np.diff(scores) > 0).all()
    assert np.isfinite(scores).all()


def test_candidate_query_by_text_and_vector_in_both_dialects():
    elastic = builder().candidate_query()["bool"]["should"][1]
    assert elastic == {"knn": {"field": "embedding", "query_vector": [0, 1], "num_candidates": 20, "boost": 2.0}}
    opensearch = builder(OpenSearchEngine.dialect).candidate_query()["bool"]["should"][1]
    assert opensearch == {"knn": {"embedding": {"vector": [0, 1], "k": 20, "boost": 2.0}}}
    with pytest.raises(ParameterError, match=r"\[search\] compares vectors"):
        builder(vector=None).candidate_query()
    without = FeatureSet(FEATURES.features)
    with pytest.raises(ParameterError, match=r"no \[search\] table"):
        QueryBuilder.create(without, ElasticsearchEngine.dialect, "x", None).candidate_query()


@pytest.mark.parametrize("vector", [[], [[1.0]], [np.nan]])
def test_invalid_vector_raises(vector: Any):
    with pytest.raises(ParameterError, match="vector must be a list of finite numbers, got shape"):
        builder(vector=vector)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 1.0, 1.0, 1.0, np.inf]])
def test_invalid_weights_raise(weights: list[float]):
    with pytest.raises(ParameterError, match="weights must be 5 finite numbers, one per feature, got shape"):
        builder().weighted_query(weights, {"match_all": {}})


def test_script_feature_is_a_clause_and_part_of_the_weighted_script():
    features = FeatureSet.parse('[features]\na = { script = "params.terms * 2" }')
    query = QueryBuilder.create(features, ElasticsearchEngine.dialect, "red car", None)
    script = {"source": "params.terms * 2", "params": {"terms": 2}}
    assert query.feature_clauses() == {"a": {"script_score": {"query": {"match_all": {}}, "script": script}}}
    weighted = query.weighted_query([3.0], {"match_all": {}})["script_score"]["script"]
    assert "+ params.weights[0] * (params.terms * 2);" in weighted["source"]
    assert weighted["params"] == {"terms": 2, "shift": 0, "weights": [3.0]}


def test_one_request_logs_all_features():
    body = named_search(builder(), SearchOptions(ids_filter(["a", "b"])), 2)
    named = [clause["bool"]["_name"] for clause in body["rescore"]["query"]["rescore_query"]["bool"]["should"]]
    assert named == ["title", "body", "near"]
    assert (body["size"], body["docvalue_fields"]) == (3, ["votes"])
    names, searches = feature_searches(builder(OpenSearchEngine.dialect), SearchOptions(ids_filter(["a", "b"])), 2)
    assert names == named
    assert len(searches) == 1 + 3
    assert json.loads(lucene._HEADER)["search_type"] == "dfs_query_then_fetch"
