"""Reading a request: its headers, its body, and how long it may take. What it asks for is in `endpoints`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from kinrank.errors import DataError, StaleReplicaError
from kinrank.serve.http import bodies
from kinrank.serve.http.metrics import Metrics
from kinrank.serve.http.middleware import STARTED, Hold, Lane
from kinrank.serve.http.responses import HttpError
from kinrank.serve.service import Service

MODEL_HEADER = "x-kinrank-model"
REVISION_HEADER = "x-kinrank-revision"
SESSION_HEADER = "x-kinrank-session"
CLIENT_HEADER = "x-kinrank-client"
QUERY_HEADER = "x-kinrank-query"
KEY = "kinrank.key"
"""Key of the scope: the `Key` of the request; None without keys."""
HOLD = "kinrank.hold"
"""Key of the scope: what the request holds, a `Hold`."""
_WAITED = "kinrank.waited"
_GRACE = 0.05  # seconds for a body to arrive before it counts as slow
T = TypeVar("T")


class RequestReader:
    """Reads requests within the limits of a service.

    Parameters
    ----------
    service
        The service, with its settings and the judgments that it has learned.
    metrics
        Receives the time of parsing.
    """

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service = service
        self._settings = service.settings
        self._metrics = metrics
        self._parser = Lane("the parser", 2)

    def close(self) -> None:
        """Parse no more bodies."""
        self._parser.close()

    async def body(self, request: Request) -> bytes:
        """Return the body. Raise an `HttpError` if it is too large or takes too long to arrive."""
        limit = self._settings.body_bytes
        hold: Hold = request.scope[HOLD]
        chunks: list[bytes] = []
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._settings.body_seconds) as patience:

                def make_room() -> None:
                    if not hold.wait():
                        patience.reschedule(loop.time())

                timer = loop.call_later(_GRACE, make_room)
                try:
                    async for chunk in request.stream():
                        hold.take(len(chunk))
                        if hold.bytes > limit:
                            raise HttpError(
                                413, "too-large", f"a body has at most {limit} bytes: send fewer candidates"
                            )
                        chunks.append(chunk)
                finally:
                    timer.cancel()
        except TimeoutError:
            raise HttpError(408, "slow-body", "the body took too long to arrive: send it again") from None
        except ClientDisconnect:
            raise HttpError(400, "disconnected", "the client disconnected before the body was complete") from None
        hold.go_on()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def parse(self, request: Request, parse: Callable[[bytes], T]) -> T:
        """Read a body and parse it; a large one in another thread, so that other requests do not wait for it."""
        raw = await self.body(request)
        start = time.perf_counter()
        if len(raw) <= bodies.LARGE_BODY:
            parsed = parse(raw)
        else:
            parsed = await self._parser.run(lambda: parse(raw), None)
        self._metrics.stage("parse", time.perf_counter() - start)
        return parsed

    async def wait_for_revision(self, request: Request) -> None:
        """Wait until the model has learned the judgments that the request asks for; refuse it if that takes long."""
        wanted = request.headers.get(REVISION_HEADER)
        if wanted is None:
            return
        if not (wanted.isascii() and wanted.isdecimal() and len(wanted) <= 18):
            raise DataError(f"{REVISION_HEADER} must be a revision of the judgments, got {wanted[:100]!r}")
        start = time.monotonic()
        hold: Hold = request.scope[HOLD]
        while True:
            try:
                self._service.check_learned(int(wanted), model=model_of(request))
            except StaleReplicaError:
                if time.monotonic() > start + self._settings.revision_seconds or not hold.wait():
                    raise
            else:
                hold.go_on()
                request.scope[_WAITED] = time.monotonic() - start
                return
            await asyncio.sleep(0.01)

    def expires(self, request: Request) -> float:
        """Return the end of the deadline, which starts after the wait for a revision."""
        started: float = request.scope[STARTED]
        waited: float = request.scope.get(_WAITED, 0.0)
        return started + waited + self._settings.deadline

    def seconds_left(self, request: Request) -> float:
        """Return the seconds until the deadline."""
        return max(0.0, self.expires(request) - time.perf_counter())


def model_of(request: Request) -> str | None:
    """Return the name of the model that the request asks for; None for the default."""
    return request.headers.get(MODEL_HEADER)


def model_named(request: Request, named: str | None) -> str | None:
    """Return the name of the model that the header or the body of a request asks for; raise if they differ."""
    header = model_of(request)
    if header is not None and named is not None and header != named:
        raise DataError(
            f"{MODEL_HEADER} names the model {header[:100]!r} and the body {named[:100]!r}: name one of them"
        )
    return header if named is None else named


def is_packed(request: Request) -> bool:
    """Return whether the body is MessagePack."""
    return _media_type(request) == bodies.MSGPACK


def check_media_type(request: Request, *, packed: bool) -> None:
    """Raise an `HttpError` unless the body is JSON or, if `packed`, MessagePack. Without a header it is JSON."""
    kind = _media_type(request)
    accepted = (bodies.JSON, bodies.MSGPACK) if packed else (bodies.JSON,)
    if kind not in accepted:
        raise HttpError(415, "media-type", f"the body must be {' or '.join(accepted)}, got {kind[:100]!r}")


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", bodies.JSON).partition(";")[0].strip().lower()
