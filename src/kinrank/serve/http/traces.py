"""The trace that a request belongs to: in its log lines, in requests to the engine and, if recorded, as spans.

The base class passes a trace on and records nothing. `kinrank.serve.http.otel` records spans through OpenTelemetry; it
is imported only if the standard environment variables ask for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.types import Scope

from kinrank.engines.base import TRACE_HEADERS
from kinrank.serve.http.logs import TRACE_ID

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", re.A)
_TRACESTATE = re.compile(r"[\x20-\x7e]{1,512}", re.A)


class Traces:
    """Passes the trace of a request on to the log and the engine."""

    @contextmanager
    def request(self, scope: Scope, endpoint: str) -> Iterator[dict[str, Any]]:  # noqa: ARG002
        """Handle a request as a part of its trace. The block adds what is known at the end to the dict."""
        headers = read_trace(scope["headers"])
        trace_id = headers["traceparent"][3:35] if headers else None
        with passed_on(headers, trace_id):
            yield {}

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:  # noqa: ARG002
        """Run a stage that sends requests to other services."""
        yield

    def stage(self, stage: str, seconds: float, queries: int) -> None:
        """Record a stage that has just ended; `queries` shared it."""

    def close(self) -> None:
        """Export what is recorded."""


@contextmanager
def passed_on(headers: Mapping[str, str], trace_id: str | None) -> Iterator[None]:
    """Send headers with requests to the engine, and log the trace id, within the block."""
    tokens = TRACE_HEADERS.set(headers), TRACE_ID.set(trace_id)
    try:
        yield
    finally:
        TRACE_HEADERS.reset(tokens[0])
        TRACE_ID.reset(tokens[1])


def trace_fields(headers: Iterable[tuple[bytes, bytes]], names: Iterable[str]) -> dict[str, str]:
    """Return the named headers of a request. The values of one that is repeated are joined, as HTTP defines."""
    found: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        if key in names:
            found[key] = f"{found[key]},{text}" if key in found else text
    return found


def read_trace(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the valid W3C trace headers of a request; none without a valid ``traceparent``.

    Examples
    --------
    >>> parent = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    >>> read_trace([(b"traceparent", parent), (b"tracestate", b"a=1"), (b"tracestate", b"b=2")])["tracestate"]
    'a=1,b=2'
    >>> read_trace([(b"traceparent", parent), (b"traceparent", parent)])
    {}
    """
    fields = trace_fields(headers, ("traceparent", "tracestate"))
    match = _TRACEPARENT.fullmatch(fields.get("traceparent", ""))
    if match is None or (match[2] is not None and match[0].startswith("00")):  # later versions may have more fields
        return {}
    if not _TRACESTATE.fullmatch(fields.get("tracestate", "")):
        fields.pop("tracestate", None)
    return fields
