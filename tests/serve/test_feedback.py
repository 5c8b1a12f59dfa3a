"""What `/v1/events` answers: what was stored, and what does not count, and why."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinrank.serve._http.bodies import parse_events
from tests.serve.asgi import Client


def click(list_id: str) -> dict[str, Any]:
    about = {"object": {"object_id": "d1"}}
    return {"action_name": "click", "query_id": list_id, "client_id": "c1", "event_attributes": about}


def test_a_click_on_an_unknown_list_is_answered_with_the_reason(
    make_client: Callable[..., Client], secrets: dict[str, str], tmp_path: Path
):
    client = make_client(keys=True, key=secrets["admin"], judgments=f"sqlite:///{tmp_path}/judgments.db")
    shown = {"user_query": "up", "query_id": "q1", "client_id": "c1", "query_response_hit_ids": ["d1", "d2"]}
    first = client.post("/v1/events", [shown, click("q1"), click("q2"), click("q3")])
    reason = "unknown list (counts if its query comes in within 2 days)"
    assert (first.status, first.json) == (200, {"queries": 1, "events": 1, "ignored": {reason: 2}})
    later = client.post("/v1/events", [click("q1"), click("q2")])
    assert later.json == {"queries": 0, "events": 1, "ignored": {reason: 1}}
    client.post("/v1/events", [{**shown, "query_id": "q2"}])
    assert client.post("/v1/events", click("q2")).json == {"queries": 0, "events": 1, "ignored": {}}


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
@pytest.mark.parametrize("kind", [int, str, float])
def test_times_of_queries_are_understood_in_every_unit(unit: int, kind: Callable[[int], Any]):
    sent, now = 1_790_000_000, time.time()
    body = {"user_query": "up", "query_id": "q1", "timestamp": kind(sent * unit), "query_response_hit_ids": ["d1"]}
    [shown] = parse_events(json.dumps(body).encode(), "model", now).lists
    assert shown.time == pytest.approx(sent)
