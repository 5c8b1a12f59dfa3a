"""What is made of the answers of engines."""

from __future__ import annotations

import pytest

from kinrank.engines import FeatureSet, connect
from kinrank.errors import EngineBusyError
from tests.engines.stub import answering


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
def test_an_index_made_anew_is_another_one(name: str):
    uuid = ["first"]

    def settings(path: str) -> object:
        assert path.startswith("/movies/_settings/index.uuid")
        return {"movies-1": {"settings": {"index": {"uuid": uuid[0]}}}}

    with answering(settings) as url, connect(f"{name}+{url}/movies") as engine:
        assert engine.identity() == {"engine": name, "index": "movies first"}
        uuid[0] = "second"
        assert engine.identity()["index"] == "movies second"


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
@pytest.mark.parametrize(("failed", "timed_out"), [(1, False), (0, True)])
def test_half_a_list_is_shown_but_not_logged(name: str, failed: int, timed_out: bool):
    asked = []

    def half(path: str) -> object:
        asked.append(path)
        shards = {"total": 2, "successful": 2 - failed, "skipped": 0, "failed": failed}
        return {"took": 1, "timed_out": timed_out, "_shards": shards, "hits": {"hits": [{"_id": "d1", "_score": 1.0}]}}

    features = FeatureSet.parse('[search]\nmatch = "title"\n[features]\ntitle = { match = "title" }')
    with answering(half) as url, connect(f"{name}+{url}/movies", features) as engine:
        assert engine.apply_params == {"search_type": "dfs_query_then_fetch"}
        assert engine.search("red", size=3).doc_id.tolist() == ["d1"]
        with pytest.raises(EngineBusyError, match="only a part of the index has answered"):
            engine.search_complete("red", size=3)
    assert all("search_type=dfs_query_then_fetch" in path for path in asked)
    assert "allow_partial_search_results=false" in asked[-1]
    assert "allow_partial" not in asked[0]


def test_a_node_that_dies_during_one_search_of_many_is_worth_asking_again():
    lost = {"type": "node_disconnected_exception", "reason": "[node-2] disconnected"}
    error = {"type": "search_phase_execution_exception", "reason": "Partial shards failure", "root_cause": [lost]}
    found = {"timed_out": False, "_shards": {"failed": 0}, "hits": {"hits": [{"_id": "d1", "_score": 1.0}]}}

    def answer(path: str) -> object:
        if "_field_caps" in path:
            return {"fields": {"title": {"text": {"type": "text"}}}}
        assert path.startswith("/movies/_msearch")
        return {"responses": [found, {"error": error, "status": 500}]}

    features = FeatureSet.parse('[features]\ntitle = { match = "title" }')
    with (
        answering(answer) as url,
        connect(f"opensearch+{url}/movies", features) as engine,
        pytest.raises(EngineBusyError, match="lost a node"),
    ):
        engine.features("red", ["d1"])
