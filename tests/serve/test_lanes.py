"""One slow part of the service does not hold up the others, and the error names it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from kinrank.errors import NotStoredError
from kinrank.serve import Service
from kinrank.serve._http.middleware import Lane
from tests.serve.asgi import Client, Response
from tests.serve.conftest import PATIENT
from tests.serve.engine import InMemoryEngine

UP = {"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]]}
JUDGED = {"queries": [{"qid": 900, **UP, "grades": [0, 1, 2]}]}


@pytest.fixture
def blackhole() -> Iterator[str]:
    """The address of a database whose machine takes connections and never responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield f"postgresql://kinrank@127.0.0.1:{listener.getsockname()[1]}/kinrank"


async def timed(client: Client, path: str, body: object, after: float = 0.0) -> tuple[Response, float]:
    await asyncio.sleep(after)
    start = time.perf_counter()
    response = await client.request("POST", path, json.dumps(body).encode())
    return response, time.perf_counter() - start


def test_database_that_does_not_respond_holds_up_nothing_else(
    make_client: Callable[..., Client], blackhole: str, secrets: dict[str, str]
):
    client = make_client(
        settings=replace(PATIENT, judgment_seconds=1.0),
        keys=True,
        key=secrets["admin"],
        engine=InMemoryEngine([0.3, 0.9]),
        judgments=blackhole,
    )
    others = [("/v1/search", {"query": "up"}), ("/v1/explain", UP), ("/v1/weights", UP), ("/v1/rank", UP)]
    results = client.gather(
        *(timed(client, "/v1/judgments", JUDGED) for _ in range(12)),
        timed(client, "/v1/judgments/withdraw", {"qid": 900}),
        *(timed(client, path, body, after=0.2) for path, body in others),
    )
    for response, seconds in results[:13]:
        assert (response.status, response.code) == (503, "not-kept")
        assert "judgment store" in response.json["error"]["message"]
        assert seconds < 3
    for response, seconds in results[13:]:
        assert (response.status, response.json.get("fallback")) == (200, None)
        assert seconds < 0.9


def test_engine_that_hangs_holds_up_no_explanation(make_client: Callable[..., Client], monkeypatch):
    engine = InMemoryEngine([0.3, 0.9])
    monkeypatch.setattr(engine, "search_features", lambda *_, **__: time.sleep(3))
    client = make_client(settings=replace(PATIENT, engine_seconds=0.2, deadline=0.5), engine=engine)
    results = client.gather(
        *(timed(client, "/v1/search", {"query": "up"}) for _ in range(40)), timed(client, "/v1/explain", UP, after=0.2)
    )
    for response, seconds in results[:-1]:
        assert (response.status, response.code) == (503, "engine-down")
        assert seconds < 2.5
    assert (results[-1][0].status, results[-1][1] < 0.9) == (200, True)


def test_explanations_that_hang_hold_up_no_search(make_client: Callable[..., Client], monkeypatch):
    client = make_client(engine=InMemoryEngine([0.3, 0.9]))
    monkeypatch.setattr(Service, "explain", lambda *_, **__: time.sleep(1))
    results = client.gather(
        *(timed(client, "/v1/explain", UP) for _ in range(9)), timed(client, "/v1/search", {"query": "up"}, after=0.2)
    )
    assert (results[-1][0].status, results[-1][1] < 0.9) == (200, True)


@pytest.mark.parametrize("error", [None, NotStoredError("the judgment store cannot be used")])
def test_call_that_ends_as_its_time_is_up_has_its_own_result(error: Exception | None, monkeypatch):
    """A database that does not respond ends its call after ten seconds, when the patience of the request ends, too."""
    lane, started = Lane("the judgment store", 1), threading.Event()

    def call() -> str:
        started.wait(10)
        if error is not None:
            raise error
        return "stored"

    async def end_together(future: asyncio.Future[str], _: float) -> None:
        started.set()
        with suppress(NotStoredError):
            await future
        raise TimeoutError

    monkeypatch.setattr(asyncio, "wait_for", end_together)
    if error is None:
        assert asyncio.run(lane.run(call, 10.0)) == "stored"
    else:
        with pytest.raises(NotStoredError, match="the judgment store cannot be used"):
            asyncio.run(lane.run(call, 10.0))
    lane.close()
