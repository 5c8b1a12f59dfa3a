"""Around every request: an id, a bound on how many there are at once, a line of log, a count."""

from __future__ import annotations

import re
import time
from typing import Any
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kinrank.serve.http.logs import JsonLog
from kinrank.serve.http.metrics import Metrics
from kinrank.serve.http.problems import Problem, response_of

REQUEST_ID = b"x-request-id"
ALWAYS = frozenset({"/healthz", "/readyz", "/metrics"})  # answered however many requests there are
_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,64}\Z")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]


class Guard:
    """ASGI middleware; outermost, so that a request that is turned away costs next to nothing.

    Parameters
    ----------
    app
        What answers.
    endpoints
        Paths to count by; any other is counted as ``other``.
    in_flight
        Requests that are answered at a time.
    """

    def __init__(
        self, app: ASGIApp, *, endpoints: frozenset[str], in_flight: int, metrics: Metrics, log: JsonLog
    ) -> None:
        self._app = app
        self._endpoints = endpoints
        self._most = in_flight
        self._metrics = metrics
        self._log = log
        self._now = 0
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        path = scope["path"]
        endpoint = path if path in self._endpoints else "other"
        request_id = _request_id(scope)
        told: dict[str, Any] = {}  # what the endpoint wants logged
        scope["kinrank"] = told
        told["request_id"] = request_id.decode()
        status = 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"]
                headers.append((REQUEST_ID, request_id))
                headers.extend(_HEADERS)
                if self.draining:  # the client's next request goes to another replica
                    headers.append((b"connection", b"close"))
            await send(message)

        self._now += 1
        self._metrics.in_flight(self._now)
        try:
            if self._now > self._most and path not in ALWAYS:
                self._metrics.shed()
                problem = Problem(503, "overloaded", "too many requests at once: ask again in a moment")
                await response_of(problem)(scope, receive, sending)
            else:
                await self._app(scope, receive, sending)
        except Exception as error:
            # Starlette has answered 500 already and raises once more; here it is logged and ends.
            self._metrics.error(endpoint, error)
        finally:
            self._now -= 1
            self._metrics.in_flight(self._now)
            seconds = time.perf_counter() - start
            self._metrics.request(endpoint, status, seconds)
            if path not in ALWAYS:
                self._log.write(
                    "request", method=scope["method"], path=endpoint, status=status, ms=round(seconds * 1000, 3), **told
                )


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == REQUEST_ID and _ID.match(value):
            given: bytes = value
            return given
    return uuid4().hex.encode()
