"""Requests that wait, are large or come from one key leave room for others."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common import memory_mb
from kinrank.serve._http.middleware import Slots
from kinrank.serve._http.responses import HttpError
from tests.processes import PATIENCE
from tests.serve.asgi import Client, Response
from tests.serve.conftest import PATIENT
from tests.serve.servers import one_thread, serving

UP = {"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]]}
HEAD = {"type": "http.request", "body": b"{", "more_body": True}


MANY = PATIENT.in_flight + 12


async def answers_beside(
    client: Client, waiting: list[Coroutine[Any, Any, Response]]
) -> tuple[list[Response], list[Response]]:
    """Send requests that wait until the end of the test, if they are not rejected, and others meanwhile."""
    tasks = [asyncio.create_task(each) for each in waiting]
    async with asyncio.timeout(PATIENCE):
        await asyncio.sleep(0)  # all of them start
        # Until all slots are free, but for that of this request.
        while b"\nkinrank_in_flight 1.0\n" not in (await client.request("GET", "/metrics", b"")).body:
            await asyncio.sleep(0.01)
        others = await asyncio.gather(*(client.request("POST", "/v1/rank", json.dumps(UP).encode()) for _ in range(50)))
    rejected = [task.result() for task in tasks if task.done()]
    assert MANY - PATIENT.in_flight <= len(rejected) <= MANY - 50  # the others still wait
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return rejected, others


def test_slow_bodies_turn_nobody_else_away(make_client: Callable[..., Client]):
    client = make_client(settings=replace(PATIENT, body_seconds=2 * PATIENCE))
    slow = [client.request_messages("POST", "/v1/rank", [HEAD]) for _ in range(MANY)]
    rejected, others = client.runner.run(answers_beside(client, slow))
    assert Counter(answer.status for answer in others) == {200: 50}
    assert {answer.code for answer in rejected} <= {"slow-body", "overloaded"}


def test_waiting_for_a_revision_turns_nobody_else_away(make_client: Callable[..., Client]):
    client = make_client(settings=replace(PATIENT, revision_seconds=2 * PATIENCE))
    raw = json.dumps(UP).encode()
    waiting = [client.request("POST", "/v1/rank", raw, x_kinrank_revision="999999") for _ in range(MANY)]
    rejected, others = client.runner.run(answers_beside(client, waiting))
    assert Counter(answer.status for answer in others) == {200: 50}
    assert {answer.code for answer in rejected} <= {"stale", "overloaded"}


def test_one_key_leaves_slots_for_others():
    slots = Slots(limit=8, max_bytes=100)
    held = [slots.hold("web") for _ in range(6)]
    for each in held:
        each.__enter__()
    with pytest.raises(HttpError, match="too many requests with the key 'web'"), slots.hold("web"):
        pass
    with slots.hold("ops") as other, slots.hold(None):
        other.take(60)
        with pytest.raises(HttpError, match="too many bytes"):
            other.take(60)
    for each in held:
        each.__exit__(None, None, None)
    assert (slots.bytes, slots.in_flight, sum(slots.by_key.values())) == (0, 0, 0)


@pytest.mark.slow
def test_large_bodies_do_not_exhaust_memory(models: Path, tmp_path: Path):
    rows = [[0.123456789] * 2_000] * 160
    raw = json.dumps({"ids": [str(number) for number in range(len(rows))], "features": rows}).encode()
    assert 3e6 < len(raw) < 8e6
    statuses: Counter[int] = Counter()

    def attack(port: int) -> None:
        for _ in range(2):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            try:
                connection.request("POST", "/v1/explain", raw, {"Content-Type": "application/json"})
                statuses[connection.getresponse().status] += 1
            except OSError:  # rejected while the body was being sent
                statuses[0] += 1
            finally:
                connection.close()

    with serving(tmp_path / "log", str(models / "knn"), "--set", "drain_seconds=0.1", env=one_thread()) as server:
        idle = memory_mb("VmHWM", server.process.pid)
        threads = [threading.Thread(target=attack, args=(server.port,)) for _ in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.request("GET", "/healthz")[0] == 200
        assert sum(statuses.values()) == 120
        assert statuses[422] > 0  # the model has other features
        assert memory_mb("VmHWM", server.process.pid) < 2 * idle + 300
