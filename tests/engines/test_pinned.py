"""Documents that the engine itself pins: which they are, and that they keep their places when a search adds others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kinrank.engines import FeatureSet, Hits
from kinrank.engines.lucene import ElasticsearchEngine
from tests.engines.conftest import OpenEngine, index_body
from tests.engines.engine_sample import QUERY, VECTOR, sample_documents
from tests.engines.stub import stub_server

PINS = ["d31", "d4"]
PINNING = """
[search]
clause = { pinned = { ids = ["d31", "d4"], organic = { match = { title = "{{text}}" } } } }
%s
[features]
title = { match = "title" }
votes = { field = "votes" }
"""
HYBRID = 'vector = "embedding"\nvector_boost = 2.0'


def test_scores_above_all_organic_ones_are_those_of_pinned_documents():
    # As Elasticsearch 8.12 scores two pins. It caps all other scores at 2^127, 1.7014118E38.
    hits = Hits(np.array(["d4", "d2", "d1", "d3"]), np.array([1.7014124e38, 1.7014122e38, 1.7014118e38, 0.1]))
    assert hits.pinned == {"d4", "d2"}
    assert hits.take([1, 3]).pinned == {"d2"}
    assert Hits(np.array(["d1"]), np.array([np.nan])).pinned == set()


def test_a_simulated_engine_pins_documents_and_adds_one_of_them():
    def hit(doc_id: str, score: float, **named: float) -> dict[str, Any]:
        return {"_index": "movies", "_id": doc_id, "_score": score, "matched_queries": named}

    hits = [
        hit("d31", 1.7014124e38, title=2.0, **{"kinrank.matching": 1.7014124e38}),
        hit("d4", 1.7014122e38),
        hit("d9", 2.0**100),
        hit("d1", 3.5, title=3.5),
    ]
    fields = {"title": {}, "votes": {}}

    def respond(path: str) -> Any:
        return (
            {"fields": fields}
            if "_field_caps" in path
            else {"hits": {"hits": hits, "total": {"value": 4, "relation": "eq"}}}
        )

    with (
        stub_server(respond) as address,
        ElasticsearchEngine(address, "movies", FeatureSet.parse(PINNING % "")) as engine,
    ):
        found = engine.search_adding("iron", ["d9", "d31"], size=3)
    assert found.hits.doc_id.tolist() == ["d31", "d4", "d1", "d9"]
    assert found.hits.pinned == {"d31", "d4"}
    assert found.features[:, 0].tolist() == [2.0, 0.0, 3.5, 0.0]


@pytest.mark.engine
@pytest.mark.parametrize("search", ["", HYBRID], ids=["text", "hybrid"])
def test_elasticsearch_marks_pinned_documents(open_engine: OpenEngine, search: str):
    engine = open_engine("elasticsearch", PINNING % search)
    engine.index(sample_documents(), settings=index_body("elasticsearch", shards=3))
    hits = engine.search(QUERY, size=20, vector=VECTOR)
    ids = hits.doc_id.tolist()
    assert (ids[:2], hits.pinned) == (PINS, set(PINS))
    # The same order when documents are added, also of a pinned one that people chose.
    found = engine.search_adding(QUERY, ["d4", ids[-1], ids[2]], size=5, vector=VECTOR)
    assert found.hits.doc_id.tolist() == [*ids[:5], ids[-1]]
    assert found.hits.pinned == set(PINS)
    assert np.allclose(found.hits.score[:5], hits.score[:5])
