"""What every request passes: limits of connections, bytes and threads, request ids, the access log and metrics."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from ipaddress import ip_address
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from kinrank.serve._http.logs import REQUEST_FIELDS, REQUEST_ID, Traces, log_event
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._http.responses import ErrorDetail, ErrorResponse, HttpError, error_response

# --- which names of hosts mean this machine ---------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    """Return whether a host, as in a URL with or without port, is this machine.

    Examples
    --------
    >>> is_loopback("localhost:8080"), is_loopback("[::1]"), is_loopback("example.org")
    (True, True, False)
    """
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") and "]" in host else host
    if not host.startswith("[") and host.count(":") == 1:
        name = host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


# --- what requests hold while they are handled: slots and bytes of the process, and a share of them per key -----------


KEY_SHARE = 0.75
"""Share of the slots that one key may hold."""
WAITING_SHARE = 0.5
"""How many requests of one key may wait for their body or for a revision, as a share of the slots."""
_OVERLOADED = "too many requests at once: try again in a moment"


class Slots:
    """Counts what requests hold. All methods run in the event loop.

    Parameters
    ----------
    limit
        Requests that are handled at a time. One that waits for its client or for judgments is not handled.
    max_bytes
        Bytes of bodies that are held at a time.
    """

    def __init__(self, limit: int, max_bytes: int) -> None:
        self.limit = limit
        self.max_bytes = max_bytes
        self.in_flight = 0
        self.bytes = 0
        self.by_key: Counter[str | None] = Counter()
        self.waiting: Counter[str | None] = Counter()

    @property
    def is_full(self) -> bool:
        """Whether a further request is rejected."""
        return self.in_flight >= self.limit

    @contextmanager
    def hold(self, key: str | None) -> Iterator[Hold]:
        """Count a request for its key until the block ends. None, without keys, has no share."""
        if key is not None and self.by_key[key] >= KEY_SHARE * self.limit:
            raise HttpError(503, "overloaded", f"too many requests with the key {key!r} at once: try again in a moment")
        held = Hold(self, key)
        self.by_key[key] += 1
        try:
            yield held
        finally:
            self.by_key[key] -= 1
            self.bytes -= held.bytes
            held.resume()


class Hold:
    """What one request holds; see `Slots.hold`."""

    def __init__(self, slots: Slots, key: str | None) -> None:
        self._slots = slots
        self._key = key
        self._waits = False
        self.bytes = 0
        self.on_wait: Callable[[], None] = lambda: None
        """Called when the request begins to wait."""

    def take(self, n_bytes: int) -> None:
        """Take bytes until the request ends. Raise an `HttpError` if the process holds too many."""
        if self._slots.bytes + n_bytes > self._slots.max_bytes:
            raise HttpError(503, "overloaded", "too many bytes of requests at once: try again in a moment")
        self._slots.bytes += n_bytes
        self.bytes += n_bytes

    def wait(self) -> bool:
        """Give the slot to others while the request waits. Return False if too many of its key wait already."""
        slots = self._slots
        if not self._waits:
            if slots.waiting[self._key] >= WAITING_SHARE * slots.limit:
                return False
            slots.waiting[self._key] += 1
            slots.in_flight -= 1
            self._waits = True
            self.on_wait()
        return True

    def resume(self) -> None:
        """Take a slot again."""
        if self._waits:
            self._slots.waiting[self._key] -= 1
            self._slots.in_flight += 1
            self._waits = False

    def go_on(self) -> None:
        """Take a slot again after a wait. Raise an `HttpError` if there is none left."""
        waited = self._waits
        self.resume()
        if waited and self._slots.in_flight > self._slots.limit:
            raise HttpError(503, "overloaded", _OVERLOADED)


# --- lanes for blocking calls: each has its own threads, so that one that is full never blocks another ----------------


T = TypeVar("T")


class Lane:
    """Runs blocking calls of one kind, so that the event loop stays free.

    Up to `threads` run at a time, and `waiting` further ones may wait; beyond that, calls are rejected.
    """

    def __init__(self, name: str, threads: int, waiting: int = 64) -> None:
        self._name = name
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name.replace(" ", "-"))
        self._limit = threads + waiting
        self._pending = 0

    async def run(
        self, call: Callable[[], T], seconds: float | None, late: Callable[[], Exception] = TimeoutError
    ) -> T:
        """Return the result of a call. After `seconds`, raise what `late` makes, and leave a call that runs alone.

        A call that has not started by then never does.
        """
        if self._pending >= self._limit:
            raise HttpError(503, "overloaded", f"too many requests wait for {self._name}: try again in a moment")
        if seconds is not None and seconds <= 0:
            raise late()
        self._pending += 1
        loop = asyncio.get_running_loop()
        future = self._pool.submit(copy_context().run, call)
        future.add_done_callback(partial(self._done, loop))
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), seconds)
        except TimeoutError:
            if future.done() and not future.cancelled():  # it ended in this very moment, or raised it itself
                return future.result()
            future.cancel()
            raise late() from None

    def close(self) -> None:
        """Accept no more calls."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self, loop: asyncio.AbstractEventLoop, _: Future[T]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._count_down)

    def _count_down(self) -> None:
        self._pending -= 1


UNLIMITED = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that are served under any load, and not logged."""

STARTED = "kinrank.started"
"""Key of the scope: when the request came in, by `time.perf_counter`. The protocol knows best: a task starts later."""

_UNTRACED = Traces()
_NOT_LOCAL = (
    "without keys, the service takes only requests to localhost: start it with --keys, or with --open behind a proxy"
)
_ID_HEADER = b"x-request-id"
_VALID_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,64}\Z")
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


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


# --- the HTTP protocol of uvicorn, which rejects a request under load as soon as its head is there --------------------
#
# uvicorn bounds the size of a request's head only with its slower parser. Slow clients, and how many may connect, are
# up to the proxy in front.


HEAD_BYTES = 64 << 10
_PIECE = HEAD_BYTES // 8


class EarlyProtocol(HttpToolsProtocol):
    """One connection. uvicorn creates it with its own arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._outside_body = 0  # bytes since the last piece of a body
        self._rejected = False  # the request whose body may still arrive

    def data_received(self, data: bytes) -> None:
        """Parse what the client sends; refuse a head that is too long."""
        while data and not self.transport.is_closing():
            piece, data = data[:_PIECE], data[_PIECE:]
            self._outside_body += len(piece)
            super().data_received(piece)
            if self._outside_body > HEAD_BYTES:
                self._refuse_head()

    def on_headers_complete(self) -> None:
        """Handle the request, whose body may follow."""
        self._outside_body = 0
        self.scope[STARTED] = time.perf_counter()  # type: ignore[literal-required]
        if isinstance(self.app, RequestMiddleware) and self._is_idle:
            scope = {"path": self.url.partition(b"?")[0].decode("latin-1"), "headers": self.headers}
            if self.app.is_overloaded(scope):
                self._reject(*self.app.reject(scope), close=self.app.draining)
                return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass a piece of the body on."""
        self._outside_body = 0
        if not self._rejected:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request; the next head may follow."""
        self._outside_body = 0
        if not self._rejected:
            super().on_message_complete()
            return
        self._rejected = False
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _reject(self, headers: bytes, body: bytes, *, close: bool) -> None:
        """Respond with 503 as soon as the head is there: no task, and nothing keeps the body."""
        self._rejected = True
        if close or self.parser.get_http_version() == "1.0" or not self.parser.should_keep_alive():
            self.transport.write(STATUS_LINE[503] + headers + b"connection: close\r\n\r\n" + body)
            self.transport.close()
        else:
            self.transport.write(STATUS_LINE[503] + headers + b"\r\n" + body)

    def _refuse_head(self) -> None:
        if self._is_idle:
            message = f"a request has at most {HEAD_BYTES} bytes besides its body"
            body = msgspec.json.encode(ErrorResponse(ErrorDetail("head-too-large", message)))
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[431] + head + body)
        self.transport.close()
