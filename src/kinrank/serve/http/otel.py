"""Spans through OpenTelemetry: one per request, and one per stage of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any

from opentelemetry.context import attach, detach
from opentelemetry.propagate import get_global_textmap
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, format_trace_id, get_current_span, set_span_in_context
from starlette.types import Scope

import kinrank
from kinrank.errors import ParameterError
from kinrank.serve.http.traces import Traces, passed_on, trace_fields

_CLOSE_SECONDS = 2.0  # a collector that is away must not hold up the shutdown
_GROUP = "opentelemetry_traces_exporter"  # the entry points by which exporters are found
_OTLP = {"otlp": "otlp_proto_http"}  # the protocol of the extra


_ATTRIBUTES = ("request_id", "key", "model", "version", "fallback")  # of a log line; the stages have spans


class OtelTraces(Traces):
    """Records spans.

    Parameters
    ----------
    provider
        Makes and exports the spans.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("kinrank", kinrank.__version__)
        self._propagator = get_global_textmap()

    @classmethod
    def exporting_to(cls, exporters: list[str]) -> OtelTraces:
        """Return traces that are exported by name, configured by the environment variables of OpenTelemetry.

        Raises
        ------
        ParameterError
            An exporter is not installed.
        """
        own = Resource.create({"service.name": "kinrank", "service.version": kinrank.__version__})
        # What the environment names wins; `create` prefers its arguments.
        provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
        for name in exporters:
            found = entry_points(group=_GROUP, name=_OTLP.get(name, name))
            if not found:
                raise ParameterError(f"OTEL_TRACES_EXPORTER: no exporter {name!r} is installed")
            provider.add_span_processor(BatchSpanProcessor(next(iter(found)).load()()))
        return cls(provider)

    @contextmanager
    def request(self, scope: Scope, endpoint: str) -> Iterator[dict[str, Any]]:
        """Record the request as a server span, a child of the caller's span if it sent one."""
        parent = self._propagator.extract(trace_fields(scope["headers"], self._propagator.fields))
        span = self._tracer.start_span(
            f"{scope['method']} {endpoint}",
            parent,
            SpanKind.SERVER,
            {"http.request.method": scope["method"], "http.route": endpoint, "url.scheme": scope["scheme"]},
        )
        outcome: dict[str, Any] = {}
        token = attach(set_span_in_context(span, parent))
        try:
            with self._passed_on(span):
                yield outcome
        finally:
            detach(token)
            _finish(span, outcome)

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Record the stage as a client span, the parent of what the other services record."""
        # An error's message may quote a query, so only its type is recorded.
        with self._tracer.start_as_current_span(
            stage, kind=SpanKind.CLIENT, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                with self._passed_on(span):
                    yield
            except Exception as error:
                span.set_status(StatusCode.ERROR, type(error).__name__)
                raise

    def stage(self, stage: str, seconds: float, queries: int) -> None:
        """Record a stage that has just ended as a child of the request's span."""
        if not get_current_span().is_recording():  # outside of a request, or not sampled
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
        with passed_on(headers, format_trace_id(span.get_span_context().trace_id)):
            yield


def _finish(span: Span, outcome: dict[str, Any]) -> None:
    if span.is_recording():
        status = outcome.pop("status", 500)
        named = {f"kinrank.{name}": str(value) for name, value in outcome.items() if name in _ATTRIBUTES}
        span.set_attributes({"http.response.status_code": status, **named})
        if status >= 500:
            span.set_status(StatusCode.ERROR)
    span.end()
