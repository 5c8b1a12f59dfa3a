"""The HTTP protocol of uvicorn with limits, so that clients without a key cannot exhaust the process.

uvicorn bounds the size of a request's head only with its slower parser, and nothing ends a connection that never sends
a complete request. Here the head, the trailers and the number of chunks are bounded, a client must finish what it has
begun to send or read, and if there are too many connections, the one that has been idle for longest makes room.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from kinrank.serve.http.middleware import STARTED, RequestMiddleware
from kinrank.serve.http.responses import ErrorDetail, ErrorResponse

HEAD_BYTES = 64 << 10
_PIECE = HEAD_BYTES // 8
PATIENCE = 10.0
"""Seconds for a client to send a complete head or the rest of a body, or to read a response."""
_SMALL_CHUNKS = 1000
_CHUNK_BYTES = 256
"""A body may have so many chunks, and one more for so many bytes: each costs the event loop as much as a large one."""
MAX_CONNECTIONS = 512  # below the usual limit of 1,024 open files


class BoundedProtocol(HttpToolsProtocol):
    """One connection. uvicorn creates it with its own arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._outside_body = 0  # bytes since the last piece of a body
        self._chunks_left = _SMALL_CHUNKS
        self._in_head = True
        self._active_at = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._rejected = False  # the request whose body may still arrive
        self._unanswered: deque[RequestResponseCycle] = deque()  # more than one if the client pipelines requests

    # --- connections ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, and close the one that has been idle for longest if there are too many."""
        super().connection_made(transport)
        self._expect_progress()
        if len(self.connections) > MAX_CONNECTIONS:
            idle = [each for each in self.connections if isinstance(each, BoundedProtocol) and each.is_idle]
            oldest = min(idle, key=lambda each: each._active_at, default=self)
            oldest.transport.abort()
            self.connections.discard(oldest)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and all requests on it: uvicorn ends only the last one."""
        self._progressed()
        for cycle in self._unanswered:
            cycle.disconnected = True
        self.pipeline.clear()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being handled."""
        return self.cycle is None or self.cycle.response_complete

    # --- requests ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse what the client sends; refuse a head that is too long."""
        self._active_at = time.monotonic()
        if self._in_head:
            self._expect_progress()
        while data and not self.transport.is_closing():
            piece, data = data[:_PIECE], data[_PIECE:]
            self._outside_body += len(piece)
            super().data_received(piece)
            if self._chunks_left < 0:
                self._refuse(400, "small-chunks", f"send chunks of at least {_CHUNK_BYTES} bytes")
            if self._outside_body > HEAD_BYTES:
                self._refuse(431, "head-too-large", f"a request has at most {HEAD_BYTES} bytes besides its body")

    def on_message_begin(self) -> None:
        """Start a request."""
        super().on_message_begin()
        self._expect_progress()

    def on_headers_complete(self) -> None:
        """Handle the request, whose body may follow."""
        self._progressed()
        self._in_head, self._outside_body, self._chunks_left = False, 0, _SMALL_CHUNKS
        self.scope[STARTED] = time.perf_counter()  # type: ignore[literal-required]
        if isinstance(self.app, RequestMiddleware) and self.is_idle:
            scope = {"path": self.url.partition(b"?")[0].decode("latin-1"), "headers": self.headers}
            if self.app.is_overloaded(scope):
                self._reject(*self.app.reject(scope), close=self.app.draining)
                return
        super().on_headers_complete()
        self._unanswered.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        """Pass a piece of the body on."""
        self._outside_body = 0
        self._chunks_left += len(body) // _CHUNK_BYTES - 1
        if not self._rejected:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request; the next head may follow."""
        self._progressed()
        self._in_head, self._outside_body = True, 0
        if not self._rejected:
            super().on_message_complete()
            return
        self._rejected = False
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def on_response_complete(self) -> None:
        """Keep the connection; a rest of the body, which nobody reads, must end soon."""
        self._unanswered.popleft()
        super().on_response_complete()
        if not self._in_head:
            self._expect_progress()

    def pause_writing(self) -> None:
        """Wait for a client that does not read."""
        self._expect_progress()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Go on, as the client reads."""
        self._progressed()
        super().resume_writing()

    # --- limits -----------------------------------------------------------------------------------------------------

    def _expect_progress(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(PATIENCE, self._give_up)

    def _progressed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self._in_head and self.is_idle and not self.transport.get_write_buffer_size():
            self._refuse(408, "slow-head", f"a request must begin and its head end within {PATIENCE:g} seconds")
        else:
            self.transport.abort()

    def _reject(self, headers: bytes, body: bytes, *, close: bool) -> None:
        """Respond with 503 as soon as the head is there: no task, and nothing keeps the body."""
        self._rejected = True
        if close or self.parser.get_http_version() == "1.0" or not self.parser.should_keep_alive():
            self.transport.write(STATUS_LINE[503] + headers + b"connection: close\r\n\r\n" + body)
            self.transport.close()
        else:
            self.transport.write(STATUS_LINE[503] + headers + b"\r\n" + body)
            self._expect_progress()

    def _refuse(self, status: int, code: str, message: str) -> None:
        if self.is_idle:
            body = msgspec.json.encode(ErrorResponse(ErrorDetail(code, message)))
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
