"""Convert error responses of Elasticsearch and OpenSearch to kinrank errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kinrank.errors import EngineBusyError, EngineError, EngineFailedError, EngineRefusedError, MissingIndexError

BUSY = (429, 502, 503, 504)
# A node left, or its search context was lost. The status is 500 or 404, as for an invalid request.
NODE_LOST = frozenset(
    {
        "connect_transport_exception",
        "node_closed_exception",
        "node_disconnected_exception",
        "node_not_connected_exception",
        "search_context_missing_exception",
    }
)


def response_error(status: int, body: Any, where: str) -> EngineError:
    """Return the error for an unsuccessful response.

    Examples
    --------
    >>> missing = {"error": {"type": "index_not_found_exception", "reason": "no such index [movies]"}}
    >>> response_error(404, missing, "engine")
    MissingIndexError('engine: no such index [movies]; check the name, or index the documents first')
    >>> response_error(429, {"error": {"type": "rejected", "reason": "queue is full"}}, "engine")
    EngineBusyError('engine: overloaded (429, queue is full); retry later, or send fewer requests at a time')
    """
    kind, reason = root_cause(body)
    if kind == "index_not_found_exception":
        return MissingIndexError(f"{where}: {reason}; check the name, or index the documents first")
    if status in BUSY:
        return EngineBusyError(
            f"{where}: overloaded ({status}, {reason}); retry later, or send fewer requests at a time"
        )
    if not NODE_LOST.isdisjoint(_error_types(body)):
        return EngineBusyError(f"{where}: lost a node during the request ({status}, {reason}); retry later")
    if status in (401, 403):
        return EngineRefusedError(f"{where}: access denied ({status}, {reason}); check the user, password or API key")
    if status >= 500:
        return EngineFailedError(f"{where}: failed ({status}, {kind}): {reason}; look at the engine's log")
    return EngineRefusedError(f"{where}: request rejected ({status}, {kind}): {reason}")


def check_complete(response: Mapping[str, Any], where: str) -> None:
    """Raise `EngineBusyError` if shards failed or the search timed out: partial results must not be logged."""
    failed = response["_shards"]["failed"]
    if failed or response["timed_out"]:
        failures = response["_shards"].get("failures") or [{"reason": "timed out"}]
        _, reason = root_cause({"error": failures[0]["reason"]})
        raise EngineBusyError(f"{where}: partial response ({failed} shards failed: {reason}); retry later")


def root_cause(body: Any) -> tuple[str, str]:
    """Return the type of the innermost error and the reasons of all errors that led to it.

    The innermost reason is usually the most helpful one, but it can be a parser's "null".

    Examples
    --------
    >>> root_cause({"error": {"type": "a", "reason": "all failed", "failed_shards": [
    ...     {"reason": {"type": "b", "reason": "runtime", "caused_by": {"type": "c", "reason": "wrong length"}}}]}})
    ('c', 'runtime: wrong length')
    """
    error = body.get("error") if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return "error", str(error)
    for shard in error.get("failed_shards", ())[:1]:
        error = shard.get("reason", error)
    reasons = [str(error.get("reason", error))]
    while isinstance(error.get("caused_by"), Mapping) and error["caused_by"].get("reason"):
        error = error["caused_by"]
        reasons.append(str(error["reason"]))
    return str(error.get("type", "error")), ": ".join(dict.fromkeys(reasons))


def _error_types(body: Any) -> Iterator[str]:
    """Yield the types of all errors in a response, at any depth."""
    if isinstance(body, Mapping):
        if "type" in body:
            yield str(body["type"])
        body = list(body.values())
    if isinstance(body, list):
        for inner in body:
            yield from _error_types(inner)
