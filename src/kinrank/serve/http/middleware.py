"""Middleware around every request: request id, load limit, access log, metrics."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kinrank.serve.http.errors import HttpError, error_response
from kinrank.serve.http.hosts import is_loopback
from kinrank.serve.http.logs import REQUEST_FIELDS, REQUEST_ID, log_event
from kinrank.serve.http.metrics import Metrics
from kinrank.serve.http.slots import Slots
from kinrank.serve.http.traces import Traces

UNLIMITED = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that are served under any load, and not logged."""

STARTED = "kinrank.started"
"""Key of the scope: when the request came in, by `time.perf_counter`. The protocol knows best: a task starts later."""

_UNTRACED = Traces()
_NOT_LOCAL = (
    "without keys, the service takes only requests to localhost: start it with --keys, or with --open behind a proxy"
)
_OVERLOADED = "too many requests at once: try again in a moment"
_ID_HEADER = b"x-request-id"
_VALID_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,64}\Z")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]


class RequestMiddleware:
    """The outermost ASGI application, so that rejecting a request is cheap.

    Parameters
    ----------
    app
        The application.
    endpoints
        Paths to count separately; all others are counted as ``other``.
    slots
        Counts the requests that are handled at a time.
    is_overloaded
        Returns whether a request would only wait until its deadline.
    metrics
        Receives counts, times and errors.
    local_only
        Refuse requests whose ``Host`` is not this machine.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        endpoints: frozenset[str],
        slots: Slots,
        is_overloaded: Callable[[Scope], bool],
        metrics: Metrics,
        local_only: bool = False,
    ) -> None:
        self.app = app
        self.draining = False
        self._endpoints = endpoints
        self._slots = slots
        self._is_overloaded = is_overloaded
        self._metrics = metrics
        self._local_only = local_only
        rejection = error_response(HttpError(503, "overloaded", _OVERLOADED))
        headers = [*rejection.raw_headers, *_HEADERS, (_ID_HEADER, b"")]
        self._rejection_head = b"\r\n".join(b"%b: %b" % pair for pair in headers)
        self._rejection_body = bytes(rejection.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = scope.setdefault(STARTED, time.perf_counter())
        path = scope["path"]
        endpoint = path if path in self._endpoints else "other"
        request_id = _request_id(scope)
        fields: dict[str, Any] = {}
        tokens = REQUEST_ID.set(request_id.decode()), REQUEST_FIELDS.set(fields)
        status = 500
        shed = self.is_overloaded(scope)
        # A span or a log line costs more than a rejection, and probes are of no interest.
        traces = _UNTRACED if shed or path in UNLIMITED else self._metrics.traces

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"]
                headers.append((_ID_HEADER, request_id))
                headers.extend(_HEADERS)
                if self.draining:  # the client's next request goes to another replica
                    headers.append((b"connection", b"close"))
            await send(message)

        self._slots.in_flight += 1
        self._metrics.in_flight(self._slots.in_flight)
        with traces.request(scope, endpoint) as outcome:
            try:
                await self._choose_app(scope, shed=shed)(scope, receive, send_with_headers)
            except Exception as error:
                # Starlette has sent the 500 and raised the error again.
                self._metrics.error(endpoint, error)
            finally:
                fields["in_flight"] = self._slots.in_flight
                self._slots.in_flight -= 1
                self._metrics.in_flight(self._slots.in_flight)
                seconds = time.perf_counter() - start
                self._metrics.request(endpoint, status, seconds)
                outcome |= {"status": status, "request_id": REQUEST_ID.get(), **fields}
                if path not in UNLIMITED and not shed:
                    milliseconds = round(seconds * 1000, 3)
                    log_event(
                        "request", method=scope["method"], path=endpoint, status=status, ms=milliseconds, **fields
                    )
                REQUEST_ID.reset(tokens[0])
                REQUEST_FIELDS.reset(tokens[1])

    def is_overloaded(self, scope: Scope) -> bool:
        """Return whether to reject a request because of load. The scope needs a path and headers."""
        return scope["path"] not in UNLIMITED and (self._slots.is_full or self._is_overloaded(scope))

    def reject(self, scope: Scope) -> tuple[bytes, bytes]:
        """Count a request as rejected because of load. Return the headers of its response and the body."""
        self._metrics.shed()
        path = scope["path"]
        self._metrics.request(path if path in self._endpoints else "other", 503, 0.0)
        return self._rejection_head + _request_id(scope) + b"\r\n", self._rejection_body

    def _choose_app(self, scope: Scope, *, shed: bool) -> ASGIApp:
        if shed:
            self._metrics.shed()
            return error_response(HttpError(503, "overloaded", _OVERLOADED))
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        # HTTP/1.0 permits none; two are read differently by proxies.
        if len(hosts) > 1 or (not hosts and str(scope["http_version"]) != "1.0"):
            return error_response(HttpError(400, "host", "a request needs one Host header: send it once"))
        if self._local_only and hosts and not is_loopback(hosts[0].decode("latin-1")):
            return error_response(HttpError(421, "host", _NOT_LOCAL))
        return self.app


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == _ID_HEADER and _VALID_ID.match(value):
            given: bytes = value
            return given
    return uuid4().hex.encode()
