"""The engine's own order as a team of an interleaved list, as an arm of an A/B test, and for everybody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec  # noqa: F401 - skips this file if it is not installed
import pytest

from kinrank.errors import ParameterError
from kinrank.serve import Settings
from tests.serve.engine import InMemoryEngine
from tests.serve.test_endpoints import UP

ENGINE_ORDER = ["d2", "d0", "d3", "d1"]
VALUES = (0.3, 0.9, 0.1, 0.5)


@pytest.fixture
def searching(make_client: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **settings: make_client(engine=InMemoryEngine(VALUES), settings=Settings(deadline=5.0, **settings))


def test_the_engine_is_a_team(searching):
    client = searching()
    body = {"query": "up", "interleave": ["engine", "knn"], "size": 3}
    found = client.post("/v1/search", body, x_request_id="r1").json
    assert found["model"] == "engine+knn"
    assert (len(found["teams"]), set(found["teams"])) == (3, {"engine", "knn"})
    assert found["engine_ids"] == ENGINE_ORDER[:3]
    placed = [each for each, team in zip(found["ids"], found["teams"], strict=True) if team == "engine"]
    assert placed == sorted(placed, key=ENGINE_ORDER.index)
    again = client.post("/v1/search", body, x_request_id="r1").json
    assert (again["ids"], again["teams"]) == (found["ids"], found["teams"])
    pages = [
        client.post("/v1/search", {**body, "from": start, "size": 2}, x_kinrank_query="q1").json for start in (0, 2)
    ]
    assert sorted(pages[0]["ids"] + pages[1]["ids"]) == sorted(ENGINE_ORDER)
    ranked = client.post("/v1/rank", {**UP, "interleave": ["knn", "engine"]}).json
    assert set(ranked["teams"]) == {"engine", "knn"}


def test_a_model_header_can_ask_for_the_engine(searching):
    found = searching().post("/v1/search", {"query": "up"}, x_kinrank_model="engine").json
    assert (found["ids"], found["model"], found["fallback"], found["arm"]) == (ENGINE_ORDER, "engine", None, None)


def test_sessions_are_in_one_arm(searching):
    client = searching(engine_share=0.5)
    arms = {}
    for number in range(40):
        session = f"s{number}"
        found = [client.post("/v1/search", {"query": "up"}, x_kinrank_session=session).json for _ in range(2)]
        assert found[0]["arm"] == found[1]["arm"]
        arms[session] = found[0]["arm"]
        assert (found[0]["ids"] == ENGINE_ORDER) == (found[0]["arm"] == "engine")
        assert client.post("/v1/rank", UP, x_kinrank_session=session).json["arm"] == found[0]["arm"]
    assert 10 < list(arms.values()).count("engine") < 30
    named = client.post("/v1/search", {"query": "up"}, x_kinrank_session="s1", x_kinrank_model="knn").json
    assert (named["arm"], named["model"]) == (None, "knn")


def test_one_switch_sends_everybody_to_the_engine(searching):
    client = searching(engine_share=1.0)
    for headers in ({}, {"x_kinrank_session": "s"}, {"x_kinrank_model": "knn"}):
        found = client.post("/v1/search", {"query": "up"}, **headers).json
        assert (found["ids"], found["model"], found["arm"]) == (ENGINE_ORDER, "engine", "engine")
    assert client.post("/v1/search", {"query": "up", "interleave": ["knn", "engine"]}).json["ids"] == ENGINE_ORDER
    assert client.post("/v1/rank", UP).json["ids"] == UP["ids"]


def test_a_share_is_from_0_to_1():
    with pytest.raises(ParameterError, match="engine_share must be a share from 0 to 1, got 2"):
        Settings(engine_share=2)
