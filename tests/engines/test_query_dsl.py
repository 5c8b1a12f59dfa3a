from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from kinrank.engines import FeatureSet, opensearch
from kinrank.engines.elasticsearch import ElasticsearchEngine, log_request
from kinrank.engines.opensearch import OpenSearchEngine
from kinrank.engines.opensearch import log_request as opensearch_log_request
from kinrank.engines.query_dsl import Dialect, QueryBuilder
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


def ask(dialect: Dialect = ElasticsearchEngine.dialect, vector: Any = (0.0, 1.0)) -> QueryBuilder:
    return QueryBuilder.of(FEATURES, dialect, "red car", vector)


def test_positive_weights_of_clauses_are_boosts_and_nothing_else():
    title, body = (feature.clause("red car") for feature in FEATURES.features[:2])  # type: ignore[attr-defined]
    assert ask().weighted([2.0, 0.5, 0.0, 0.0, 9.0], {"match_all": {}}) == {
        "bool": {
            "filter": [{"match_all": {}}],
            "should": [
                {"bool": {"must": [title], "boost": 2.0}},
                {"bool": {"must": [body], "boost": 0.5}},
            ],
        }
    }


def test_negative_weights_are_subtracted_from_a_bound():
    query = ask().weighted([1.0, -0.5, 0.0, 0.0, 0.0], {"match_all": {}})
    _, against = query["bool"]["should"]
    script = against["script_score"]["script"]
    assert script["params"] == {"bound": 0.5 * 64 * 2}
    assert against["script_score"]["query"]["bool"]["should"][0]["bool"]["boost"] == 0.5


def test_no_boost_is_negative_whatever_the_weights():
    for seed in range(20):
        weights = np.random.default_rng(seed).normal(size=5)
        text = json.dumps(ask().weighted(weights, {"match_all": {}}))
        assert '"boost": -' not in text


def test_the_script_is_the_same_text_for_every_query():
    one = ask().weighted([1.0, -1.0, 0.3, 0.1, 0.0], {"match_all": {}})["script_score"]["script"]
    other = ask(vector=(1.0, 0.0)).weighted([0.0, 2.0, -7.0, 0.2, 1.0], {"match_all": {}})["script_score"]["script"]
    assert one["source"] == other["source"]
    assert one["params"]["weights"] == [0.3, 0.1]
    assert other["params"] == {"vector": [1.0, 0.0], "shift": 0, "weights": [-7.0, 0.2]}


@pytest.mark.parametrize("size", [1e-8, 1e-4, 1.0, 1e12])
def test_the_last_step_of_the_script_keeps_the_order_in_single_precision(size: float):
    source = ask().weighted([1.0, 0.0, 0.0, 1.0, 0.0], {"match_all": {}})["script_score"]["script"]["source"]
    enlarged = re.search(r"; x \*= (\S+); return x >= 0 \? x \+ 1 : 1 / \(1 - x\);$", source)
    assert enlarged is not None
    x = float(enlarged[1]) * size * np.linspace(-1, 1, 1000)
    scores = np.where(x >= 0, np.abs(x) + 1, 1 / (1 + np.abs(x))).astype(np.float32)
    assert (np.diff(scores) > 0).all()
    assert np.isfinite(scores).all()


def test_candidates_by_text_and_by_vector_in_both_dialects():
    elastic = ask().candidates()["bool"]["should"][1]
    assert elastic == {"knn": {"field": "embedding", "query_vector": [0, 1], "num_candidates": 20, "boost": 2.0}}
    opensearch = ask(OpenSearchEngine.dialect).candidates()["bool"]["should"][1]
    assert opensearch == {"knn": {"embedding": {"vector": [0, 1], "k": 20, "boost": 2.0}}}
    with pytest.raises(ParameterError, match=r"\[search\] compares vectors"):
        ask(vector=None).candidates()
    without = FeatureSet(FEATURES.features)
    with pytest.raises(ParameterError, match=r"no table \[search\]"):
        QueryBuilder.of(without, ElasticsearchEngine.dialect, "x", None).candidates()


def test_one_request_logs_all_features_of_a_query():
    body = log_request(ask(), ["a", "b"])
    named = [clause["bool"]["_name"] for clause in body["query"]["bool"]["should"]]
    assert named == ["title", "body", "near"]
    assert (body["size"], body["docvalue_fields"]) == (2, ["votes"])
    names, searches = opensearch_log_request(ask(OpenSearchEngine.dialect), ["a", "b"])
    assert names == named
    assert len(searches) == 1 + 3
    assert json.loads(opensearch._HEADER)["search_type"] == "dfs_query_then_fetch"
