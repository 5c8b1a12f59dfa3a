"""One slow part of the service does not hold up the others, and the error names it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from kinrank.errors import NotStoredError
from kinrank.serve import Service
from kinrank.serve._database import PostgresDatabase
from kinrank.serve._http.middleware import Lane
from tests.processes import PATIENCE
from tests.serve.asgi import Client, Response
from tests.serve.conftest import PATIENT
from tests.serve.engine import InMemoryEngine

UP = {"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]]}
JUDGED = {"queries": [{"qid": 900, **UP, "grades": [0, 1, 2]}]}


class Hold:
    """Holds calls until `release`."""

    def __init__(self) -> None:
        self.calls = 0
        self._released = threading.Event()

    def __call__(self, *_: object, **__: object) -> None:
        self.calls += 1
        assert self._released.wait(PATIENCE)

    def release(self) -> None:
        self._released.set()


@pytest.fixture
def hold() -> Iterator[Hold]:
    hold = Hold()
    yield hold
    hold.release()


async def post(client: Client, path: str, body: object) -> Response:
    return await client.request("POST", path, json.dumps(body).encode())


async def gather_beside(
    held: list[Coroutine[Any, Any, Response]],
    others: list[Coroutine[Any, Any, Response]],
    *,
    start: Callable[[], bool],
    release: Callable[[], None],
) -> tuple[list[Response], list[Response]]:
    """Send `others` when `start` is true of the calls that hang, which end after the last of the others."""
    hanging = asyncio.gather(*held)
    while not start():
        assert not hanging.done()
        await asyncio.sleep(0.01)
    responses = await asyncio.wait_for(asyncio.gather(*others), PATIENCE)
    release()
    return await hanging, responses


def test_database_that_does_not_respond_holds_up_nothing_else(
    make_client: Callable[..., Client], secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    started: list[str] = []
    for name in ("judge", "withdraw"):
        call = getattr(Service, name)
        monkeypatch.setattr(Service, name, lambda *args, call=call, **more: started.append("") or call(*args, **more))
    monkeypatch.setattr(PostgresDatabase.__init__, "__defaults__", (PATIENCE,))  # calls do not end by themselves
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        client = make_client(
            settings=replace(PATIENT, judgment_seconds=PATIENCE),
            keys=True,
            key=secrets["admin"],
            engine=InMemoryEngine([0.3, 0.9]),
            judgments=f"postgresql://kinrank@127.0.0.1:{listener.getsockname()[1]}/kinrank",
        )
        listener.listen(128)  # from now on, the machine of the database takes connections and never responds
        others = [("/v1/search", {"query": "up"}), ("/v1/explain", UP), ("/v1/weights", UP), ("/v1/rank", UP)]
        held, found = client.runner.run(
            gather_beside(
                [post(client, "/v1/judgments", JUDGED) for _ in range(12)]
                + [post(client, "/v1/judgments/withdraw", {"qid": 900})],
                [post(client, path, body) for path, body in others],
                start=lambda: len(started) >= 4,
                release=listener.close,
            )
        )
    for response in held:
        assert (response.status, response.code) == (503, "not-kept")
        assert "judgment store" in response.json["error"]["message"]
    for response in found:
        assert (response.status, response.json.get("fallback")) == (200, None)


def test_judgments_do_not_wait_for_a_database_that_does_not_respond(
    make_client: Callable[..., Client], secrets: dict[str, str], hold: Hold, monkeypatch: pytest.MonkeyPatch
):
    client = make_client(settings=replace(PATIENT, judgment_seconds=0.2), keys=True, key=secrets["admin"])
    monkeypatch.setattr(Service, "judge", hold)
    late = client.post("/v1/judgments", JUDGED)
    assert (late.status, late.code) == (503, "not-kept")
    assert "the judgment store did not respond within 0.2 seconds" in late.json["error"]["message"]


def test_engine_that_hangs_holds_up_no_explanation(make_client: Callable[..., Client], hold: Hold, monkeypatch):
    engine = InMemoryEngine([0.3, 0.9])
    monkeypatch.setattr(engine, "search_features", hold)
    client = make_client(settings=replace(PATIENT, engine_seconds=0.2, deadline=0.5), engine=engine)
    searches = [post(client, "/v1/search", {"query": "up"}) for _ in range(40)]
    explanation = [post(client, "/v1/explain", UP)]
    # The searches do not wait for their calls: they end before these are released.
    responses = client.gather(*searches, *explanation)
    assert hold.calls >= 32
    assert {(response.status, response.code) for response in responses[:-1]} == {(503, "engine-down")}
    assert responses[-1].status == 200


def test_explanations_that_hang_hold_up_no_search(make_client: Callable[..., Client], hold: Hold, monkeypatch):
    client = make_client(engine=InMemoryEngine([0.3, 0.9]))
    monkeypatch.setattr(Service, "explain", hold)
    _, found = client.runner.run(
        gather_beside(
            [post(client, "/v1/explain", UP) for _ in range(9)],
            [post(client, "/v1/search", {"query": "up"})],
            start=lambda: hold.calls >= 4,
            release=hold.release,
        )
    )
    assert found[0].status == 200


@pytest.mark.parametrize("error", [None, NotStoredError("the judgment store cannot be used")])
def test_call_that_ends_as_its_time_is_up_has_its_own_result(error: Exception | None, monkeypatch):
    """A database that does not respond ends its call after ten seconds, when the patience of the request ends, too."""
    lane, started = Lane("the judgment store", 1), threading.Event()

    def call() -> str:
        assert started.wait(PATIENCE)
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
