"""Heads that are too long, and requests that are rejected after their head, over real sockets."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvicorn

from kinrank.serve._http.metrics import Metrics
from kinrank.serve._http.middleware import STARTED, EarlyProtocol, RequestMiddleware, Slots
from tests.processes import PATIENCE, wait_until

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Read the body only of a PUT."""
    if scope["method"] == "PUT":
        while (await receive()).get("more_body"):
            pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def serving(app: Any, protocol: type[EarlyProtocol] = EarlyProtocol) -> Iterator[uvicorn.Server]:
    config = uvicorn.Config(
        app, http=protocol, port=0, lifespan="off", log_config=None, ws="none", timeout_keep_alive=600
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    wait_until(lambda: server.started)
    yield server
    server.force_exit = server.should_exit = True
    thread.join(PATIENCE)


@pytest.fixture
def server() -> Iterator[uvicorn.Server]:
    with serving(app) as server:
        yield server


def connect(server: uvicorn.Server) -> socket.socket:
    connection = socket.create_connection(server.servers[0].sockets[0].getsockname())
    connection.settimeout(PATIENCE)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """Return what the server sends until it closes the connection."""
    received = b""
    with suppress(ConnectionError):
        while piece := connection.recv(1 << 20):
            received += piece
    return received


def flood(connection: socket.socket, start: bytes, piece: bytes, size: int = 32 << 20) -> int:
    """Send pieces until the server closes the connection. Return how many bytes it took."""
    sent = 0
    with suppress(ConnectionError):
        connection.sendall(start)
        while sent < size:
            sent += connection.send(piece)
    return sent


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n", b"x-flood: " + b"y" * 8000 + b"\r\n"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nx-flood: ", b"y" * 8000),
        (b"GET /", b"y" * 8000),
        (
            b"PUT / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
            b"x-trailer: " + b"y" * 8000 + b"\r\n",
        ),
        (b"PUT / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: chunked\r\n\r\n1;", b"y" * 8000),
    ],
    ids=["headers", "header", "url", "trailers", "chunk extension"],
)
def test_endless_heads_are_refused(server: uvicorn.Server, start: bytes, piece: bytes):
    with connect(server) as connection:
        # The buffers of both sockets take a few megabytes.
        assert flood(connection, start, piece) < 32 << 20
    wait_until(lambda: not server.server_state.connections)


def test_head_of_64_kilobytes_is_accepted_and_a_longer_one_refused(server: uvicorn.Server):
    for size, status in ((60_000, b"200"), (80_000, b"431")):
        with connect(server) as connection:
            connection.sendall(GET[:-2] + b"x-long: " + b"y" * size + b"\r\nconnection: close\r\n\r\n")
            assert read_all(connection)[9:12] == status


def test_connection_is_kept_for_further_requests(server: uvicorn.Server):
    with connect(server) as connection:
        for count in (1, 1, 2):  # the last two are pipelined
            connection.sendall(count * GET)
            received = b""
            while received.count(b"\r\n\r\nok") < count:
                received += connection.recv(1000)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def overloaded(metrics: Metrics) -> Iterator[uvicorn.Server]:
    """A server that ranks nothing: each request for /v1/rank would only wait."""
    middleware = RequestMiddleware(
        app,
        endpoints=frozenset({"/v1/rank"}),
        slots=Slots(128, 1 << 20),
        is_overloaded=lambda scope: scope["path"] == "/v1/rank",
        metrics=metrics,
    )
    with serving(middleware) as server:
        yield server


def read_response(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1 << 16)
    length = int(received.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(received.partition(b"\r\n\r\n")[2]) < length:
        received += connection.recv(1 << 16)
    return received


def test_request_that_would_only_wait_is_rejected_after_its_head(overloaded: uvicorn.Server, metrics: Metrics):
    head = b"POST /v1/rank?a=1 HTTP/1.1\r\nHost: a\r\nX-Request-ID: mine\r\nContent-Length: 100000\r\n\r\n"
    with connect(overloaded) as connection:
        for _ in range(3):  # the connection can be used again once the body is there
            connection.sendall(head)
            response = read_response(connection)
            assert response.startswith(b"HTTP/1.1 503 ")
            assert b'"code":"overloaded"' in response
            assert {b"retry-after: 1", b"x-request-id: mine"} <= set(response.split(b"\r\n"))
            connection.sendall(b"x" * 100_000)
        connection.sendall(GET)
        assert read_response(connection).endswith(b"ok")
    page = metrics.page().decode()
    assert "kinrank_shed_total 3.0" in page
    assert 'kinrank_requests_total{endpoint="/v1/rank",status="503"} 3.0' in page


@pytest.mark.parametrize(("version", "header"), [("1.0", ""), ("1.1", "Connection: close\r\n")])
def test_rejection_closes_a_connection_that_is_not_kept(overloaded: uvicorn.Server, version: str, header: str):
    with connect(overloaded) as connection:
        connection.sendall(f"POST /v1/rank HTTP/{version}\r\nHost: a\r\n{header}\r\n".encode())
        response = read_all(connection)
    assert response.startswith(b"HTTP/1.1 503 ")
    assert b"connection: close\r\n" in response


def test_clock_starts_with_the_head_and_not_with_the_task(monkeypatch: pytest.MonkeyPatch):
    clock = [0.0]
    times: list[tuple[float, float]] = []

    class Busy(EarlyProtocol):
        """Much happens between a head and its task."""

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            clock[0] += 1.0

    async def note_time(scope: Any, receive: Any, send: Any) -> None:
        times.append((scope[STARTED], time.perf_counter()))
        await app(scope, receive, send)

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    with serving(note_time, Busy) as server, connect(server) as connection:
        connection.sendall(GET)
        read_response(connection)
    assert times == [(0.0, 1.0)]
