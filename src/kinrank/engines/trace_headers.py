"""Headers that connect requests to an engine with the trace of the request that caused them."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

TRACE_HEADERS: ContextVar[Mapping[str, str]] = ContextVar("trace_headers", default=MappingProxyType({}))
"""Headers added to every request to an engine: ``traceparent`` and ``tracestate`` of the W3C, if there is a trace."""
