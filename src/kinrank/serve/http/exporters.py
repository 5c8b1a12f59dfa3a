"""Whether spans are recorded, and where they are sent: by the ``OTEL_*`` environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kinrank.errors import KinrankError
from kinrank.registry import import_extra
from kinrank.serve.http.logs import log_event
from kinrank.serve.http.traces import Traces

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def start_traces(environ: Mapping[str, str] = os.environ) -> Traces:
    """Return what the ``OTEL_*`` variables ask for: spans if they name an exporter or an OTLP endpoint.

    A service must not stay down because of its traces. If they cannot be recorded, the log has the reason.
    """
    if not (exporters := _exporters(environ)):
        return Traces()
    try:
        import_extra("opentelemetry.sdk.trace", "otel")
        from kinrank.serve.http.otel import OtelTraces

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
