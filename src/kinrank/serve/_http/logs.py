"""JSON logs, one object per line, and the trace that a request belongs to.

If the reader is slow or the disk is full, lines are dropped and requests are not delayed; the number of dropped lines
is logged as soon as lines can be written again. Query texts, features and keys are never logged.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib.metadata import entry_points
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TextIO

import msgspec
from starlette.types import Scope

import kinrank
from kinrank.engines.base import TRACE_HEADERS
from kinrank.errors import KinrankError, ParameterError
from kinrank.registry import import_extra

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span


REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request being handled; it is added to every log line."""

TRACE_ID: ContextVar[str | None] = ContextVar("trace_id", default=None)
"""The trace that the request belongs to, if any; it is added to every log line, too."""

REQUEST_FIELDS: ContextVar[dict[str, Any] | None] = ContextVar("request_fields", default=None)
"""Fields of the line that will be logged for the request being handled; see `add_log_fields`."""

_MAX_WAITING = 20_000  # lines
_logger = logging.getLogger("kinrank.serve")


def log_event(event: str, *, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event with its fields and, for an error, the traceback."""
    _logger.log(logging.INFO if error is None else logging.ERROR, event, exc_info=error, extra={"fields": fields})


def add_log_fields(**fields: Any) -> None:
    """Add fields to the line that will be logged for the request being handled, if any."""
    found = REQUEST_FIELDS.get()
    if found is not None:
        found |= fields


class JsonLog:
    """Writes log records as JSON lines in the background. The defaults are stderr and the root logger."""

    def __init__(self, stream: TextIO | None = None, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger()
        self._handler = _DroppingQueueHandler(SimpleQueue())
        self._listener = QueueListener(self._handler.queue, _JsonHandler(stream or sys.stderr, self._handler))

    def start(self) -> JsonLog:
        """Start to write records."""
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self._handler)
        self._listener.start()
        return self

    def close(self) -> None:
        """Stop after the waiting lines are written, or after two seconds."""
        self._logger.removeHandler(self._handler)
        stop = threading.Thread(target=self._listener.stop, daemon=True)
        stop.start()
        stop.join(timeout=2.0)


class _DroppingQueueHandler(QueueHandler):
    """Queues records, and drops them while too many are waiting.

    A `SimpleQueue` is reentrant, so that signal handlers can log.
    """

    def __init__(self, queue: SimpleQueue[Any]) -> None:
        super().__init__(queue)
        self._waiting = queue
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        # Unlike the base class, keep the traceback apart from the message.
        record.msg, record.args = record.getMessage(), None
        record.request_id, record.trace_id = REQUEST_ID.get(), TRACE_ID.get()
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() < _MAX_WAITING:
            self._waiting.put_nowait(record)
        else:
            self.dropped += 1


class _JsonHandler(logging.StreamHandler[TextIO]):
    """Writes records as JSON lines, and reports how many were dropped."""

    def __init__(self, stream: TextIO, source: _DroppingQueueHandler) -> None:
        super().__init__(stream)
        self.setFormatter(_JsonFormatter())
        self._source = source
        self._failed = 0
        self._reported = 0

    def emit(self, record: logging.LogRecord) -> None:
        dropped = self._source.dropped + self._failed
        try:
            text = self.format(record) + "\n"
            if dropped > self._reported:
                lines = dropped - self._reported
                text += _encode(time=datetime.now(UTC), pid=record.process, event="dropped", lines=lines) + "\n"
            self.stream.write(text)
            self.flush()
        except Exception:  # a full disk or a closed pipe: the next line may succeed
            self._failed += 1
        else:
            self._reported = dropped


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        extra = vars(record)
        fields: dict[str, Any] = {"time": datetime.fromtimestamp(record.created, UTC), "pid": record.process}
        if "fields" in extra:
            fields |= {"event": record.msg, **extra["fields"]}
        else:  # logged by a library
            fields |= {"event": "server", "level": record.levelname.lower(), "message": record.msg}
        fields |= {name: extra[name] for name in ("request_id", "trace_id") if extra.get(name) is not None}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return _encode(**fields)


def _encode(**fields: Any) -> str:
    return msgspec.json.encode(fields).decode()


# --- the trace that a request belongs to: in its log lines, in requests to the engine and, if recorded, as spans ------
#
# `Traces` passes a trace on and records nothing. `OtelTraces` records spans through OpenTelemetry, one per request and
# one per stage of it, if the standard environment variables ask for it. opentelemetry-instrumentation-asgi could
# replace only the spans of requests, and takes twice as long for them.


_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", re.A)
_TRACESTATE = re.compile(r"[\x20-\x7e]{1,512}", re.A)

_CLOSE_SECONDS = 2.0  # a collector that is away must not hold up the shutdown
_GROUP = "opentelemetry_traces_exporter"  # the entry points by which exporters are found
_OTLP = {"otlp": "otlp_proto_http"}  # the protocol of the extra
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_ATTRIBUTES = ("request_id", "key", "model", "version", "fallback")  # of a log line; the stages have spans


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


class OtelTraces(Traces):
    """Records spans."""

    def __init__(self, provider: TracerProvider) -> None:
        self._context = import_extra("opentelemetry.context", "otel")
        self._trace = import_extra("opentelemetry.trace", "otel")
        self._provider = provider
        self._tracer = provider.get_tracer("kinrank", kinrank.__version__)
        self._propagator = import_extra("opentelemetry.propagate", "otel").get_global_textmap()

    @classmethod
    def exporting_to(cls, exporters: list[str]) -> OtelTraces:
        """Return traces that are exported by name, configured by the environment variables of OpenTelemetry.

        Raise `ParameterError` if one is not installed.
        """
        resources = import_extra("opentelemetry.sdk.resources", "otel")
        sdk = import_extra("opentelemetry.sdk.trace", "otel")
        export = import_extra("opentelemetry.sdk.trace.export", "otel")
        own = resources.Resource.create({"service.name": "kinrank", "service.version": kinrank.__version__})
        # What the environment names wins; `create` prefers its arguments.
        named = resources.OTELResourceDetector().detect()
        provider = sdk.TracerProvider(resource=own.merge(named), shutdown_on_exit=False)
        for name in exporters:
            found = entry_points(group=_GROUP, name=_OTLP.get(name, name))
            if not found:
                raise ParameterError(f"OTEL_TRACES_EXPORTER: no exporter {name!r} is installed")
            provider.add_span_processor(export.BatchSpanProcessor(next(iter(found)).load()()))
        return cls(provider)

    @contextmanager
    def request(self, scope: Scope, endpoint: str) -> Iterator[dict[str, Any]]:
        """Record the request as a server span, a child of the caller's span if it sent one."""
        parent = self._propagator.extract(trace_fields(scope["headers"], self._propagator.fields))
        span = self._tracer.start_span(
            f"{scope['method']} {endpoint}",
            parent,
            self._trace.SpanKind.SERVER,
            {"http.request.method": scope["method"], "http.route": endpoint, "url.scheme": scope["scheme"]},
        )
        outcome: dict[str, Any] = {}
        token = self._context.attach(self._trace.set_span_in_context(span, parent))
        try:
            with self._passed_on(span):
                yield outcome
        finally:
            self._context.detach(token)
            self._finish(span, outcome)

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Record the stage as a client span, the parent of what the other services record."""
        # An error's message may quote a query, so only its type is recorded.
        with self._tracer.start_as_current_span(
            stage, kind=self._trace.SpanKind.CLIENT, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                with self._passed_on(span):
                    yield
            except Exception as error:
                span.set_status(self._trace.StatusCode.ERROR, type(error).__name__)
                raise

    def stage(self, stage: str, seconds: float, queries: int) -> None:
        """Record a stage that has just ended as a child of the request's span."""
        if not self._trace.get_current_span().is_recording():  # outside of a request, or not sampled
            return
        end = time.time_ns()
        attributes = {"kinrank.batch_size": queries} if stage == "rank" else None
        span = self._tracer.start_span(stage, attributes=attributes, start_time=end - round(seconds * 1e9))
        span.end(end)

    def close(self) -> None:
        """Export the spans that wait, within two seconds."""
        export = threading.Thread(target=self._provider.shutdown, daemon=True)
        export.start()
        export.join(_CLOSE_SECONDS)

    @contextmanager
    def _passed_on(self, span: Span) -> Iterator[None]:
        headers: dict[str, str] = {}
        self._propagator.inject(headers)
        with passed_on(headers, self._trace.format_trace_id(span.get_span_context().trace_id)):
            yield

    def _finish(self, span: Span, outcome: dict[str, Any]) -> None:
        if span.is_recording():
            status = outcome.pop("status", 500)
            named = {f"kinrank.{name}": str(value) for name, value in outcome.items() if name in _ATTRIBUTES}
            span.set_attributes({"http.response.status_code": status, **named})
            if status >= 500:
                span.set_status(self._trace.StatusCode.ERROR)
        span.end()


def start_traces(environ: Mapping[str, str] = os.environ) -> Traces:
    """Return what the ``OTEL_*`` variables ask for: spans if they name an exporter or an OTLP endpoint.

    A service must not stay down because of its traces. If they cannot be recorded, the log has the reason.
    """
    if not (exporters := _exporters(environ)):
        return Traces()
    try:
        traces = OtelTraces.exporting_to(exporters)
    except (KinrankError, ImportError, ValueError) as error:  # ValueError: a variable that the SDK cannot read
        log_event("tracing", exporters=exporters, message=f"traces are not recorded: {error}")
        return Traces()
    log_event("tracing", exporters=exporters)
    return traces


def _exporters(environ: Mapping[str, str]) -> list[str]:
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return []
    default = "otlp" if any(environ.get(name) for name in _ENDPOINTS) else "none"
    named = (environ.get("OTEL_TRACES_EXPORTER") or default).split(",")
    return [name.strip() for name in named if name.strip() not in ("", "none")]
