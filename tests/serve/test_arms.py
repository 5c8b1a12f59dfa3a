"""The arm of an A/B test that a caller chose, in answers, in the log, and in what `kinrank clicks` compares."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec  # noqa: F401 - skips this file if it is not installed
import pytest
from typer.testing import CliRunner

from kinrank.cli import app
from tests.serve.asgi import Client
from tests.serve.conftest import LogReader
from tests.serve.engine import InMemoryEngine
from tests.serve.test_endpoints import PACKED, UP, packed

ENGINE_ORDER = ["d2", "d0", "d3", "d1"]
VALUES = (0.3, 0.9, 0.1, 0.5)


@pytest.fixture
def searching(make_client: Callable[..., Client]) -> Client:
    return make_client(engine=InMemoryEngine(VALUES))


def test_a_model_header_can_ask_for_the_engine(searching: Client):
    found = searching.post("/v1/search", {"query": "up"}, x_kinrank_model="engine").json
    assert (found["ids"], found["model"], found["fallback"]) == (ENGINE_ORDER, "engine", None)
    assert searching.post("/v1/rank", UP, x_kinrank_model="engine").json["ids"] == UP["ids"]


def test_an_arm_is_returned_and_logged(searching: Client, log: LogReader):
    answers = [
        searching.post("/v1/rank", {**UP, "arm": "a"}).json,
        searching.post("/v1/rank", packed(UP, arm="b"), content_type=PACKED).json,
        searching.post("/v1/search", {"query": "up", "arm": "c"}).json,
        searching.post("/v1/rank", UP).json,
    ]
    assert [answer["arm"] for answer in answers] == ["a", "b", "c", None]
    lines = log.wait_for("request", 4)
    named = [(answer["arm"], answer["query_id"]) for answer in answers[:3]]
    assert [(line.get("arm"), line.get("query_id")) for line in lines] == [*named, (None, None)]
    for arm in ("", "x" * 101, 7):
        assert searching.post("/v1/rank", {**UP, "arm": arm}).status == 422


def test_the_arms_that_a_caller_chose_are_compared(searching: Client, log: LogReader, tmp_path: Path):
    events: list[dict[str, Any]] = []
    sessions: dict[str, str] = {}
    for number in range(240):
        session, arm = f"s{number}", ("engine", "model")[number % 2]
        named = {"x_kinrank_model": "engine"} if arm == "engine" else {}
        found = searching.post("/v1/search", {"query": "up", "arm": arm}, **named).json
        assert (found["ids"] == ENGINE_ORDER) == (arm == "engine")
        sessions[found["query_id"]] = session
        if number % 20 < (6 if arm == "engine" else 18):
            about = {"object": {"object_id": found["ids"][0]}}
            events.append({"action_name": "click", "query_id": found["query_id"], "event_attributes": about})
    queries = [
        {
            "query_id": line["query_id"],
            "client_id": sessions[line["query_id"]],
            "query_attributes": {"arm": line["arm"]},
        }
        for line in log.wait_for("request", 240)
    ]
    paths = [tmp_path / "queries.ndjson", tmp_path / "events.ndjson"]
    for path, lines in zip(paths, (queries, events), strict=True):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = CliRunner().invoke(app, ["clicks", *map(str, paths), "--compare", "arm"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.stderr
    assert done.stdout.split("\n")[1].split() == ["sessions", "120", "120"]
    assert "model is better in clicks per search" in done.stderr
