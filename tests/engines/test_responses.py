from __future__ import annotations

import pytest

from kinrank.engines import FeatureSet, connect
from kinrank.errors import EngineBusyError
from tests.engines.stub import stub_server


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
def test_recreated_index_has_a_new_identity(name: str):
    uuid = ["first"]

    def settings(path: str) -> object:
        assert path.startswith("/movies/_settings/index.uuid")
        return {"movies-1": {"settings": {"index": {"uuid": uuid[0]}}}}

    with stub_server(settings) as url, connect(f"{name}+{url}/movies") as engine:
        assert engine.identity() == {"engine": name, "index": "movies first"}
        uuid[0] = "second"
        assert engine.identity()["index"] == "movies second"


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
@pytest.mark.parametrize(("failed", "timed_out"), [(1, False), (0, True)])
def test_partial_results_are_returned_by_search_but_not_logged(name: str, failed: int, timed_out: bool):
    paths = []

    def partial(path: str) -> object:
        paths.append(path)
        shards = {"total": 2, "successful": 2 - failed, "skipped": 0, "failed": failed}
        return {"took": 1, "timed_out": timed_out, "_shards": shards, "hits": {"hits": [{"_id": "d1", "_score": 1.0}]}}

    features = FeatureSet.parse('[search]\nmatch = "title"\n[features]\ntitle = { match = "title" }')
    with stub_server(partial) as url, connect(f"{name}+{url}/movies", features) as engine:
        assert engine.apply_params == {"search_type": "dfs_query_then_fetch"}
        assert engine.search("red", size=3).doc_id.tolist() == ["d1"]
        with pytest.raises(EngineBusyError, match=r"partial response \(. shards failed"):
            engine.search_complete("red", size=3)
    assert all("search_type=dfs_query_then_fetch" in path for path in paths)
    assert "allow_partial_search_results=false" in paths[-1]
    assert "allow_partial" not in paths[0]


def test_lost_node_in_one_search_of_msearch_is_a_busy_error():
    lost = {"type": "node_disconnected_exception", "reason": "[node-2] disconnected"}
    error = {"type": "search_phase_execution_exception", "reason": "Partial shards failure", "root_cause": [lost]}
    found = {"timed_out": False, "_shards": {"failed": 0}, "hits": {"hits": [{"_id": "d1", "_score": 1.0}]}}

    def respond(path: str) -> object:
        if "_field_caps" in path:
            return {"fields": {"title": {"text": {"type": "text"}}}}
        assert path.startswith("/movies/_msearch")
        return {"responses": [found, {"error": error, "status": 500}]}

    features = FeatureSet.parse('[features]\ntitle = { match = "title" }')
    with (
        stub_server(respond) as url,
        connect(f"opensearch+{url}/movies", features) as engine,
        pytest.raises(EngineBusyError, match="lost a node"),
    ):
        engine.features("red", ["d1"])
