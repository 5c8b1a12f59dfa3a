"""What Elasticsearch and OpenSearch answer when they do not do what they were asked, as errors of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kinrank.errors import EngineBusyError, EngineError, EngineRefusedError, MissingIndexError

BUSY = (429, 502, 503, 504)
# A node went, or what it kept of a search went with it. The status is 500 or 404, as of a request that is wrong.
NODE_GONE = frozenset(
    {
        "connect_transport_exception",
        "node_closed_exception",
        "node_disconnected_exception",
        "node_not_connected_exception",
        "search_context_missing_exception",
    }
)


def response_error(status: int, body: Any, where: str) -> EngineError:
    """The error for an answer that is not a success.

    Examples
    --------
    >>> missing = {"error": {"type": "index_not_found_exception", "reason": "no such index [movies]"}}
    >>> response_error(404, missing, "engine")
    MissingIndexError('engine: no such index [movies]; check the name, or index the documents first')
    >>> response_error(429, {"error": {"type": "rejected", "reason": "queue is full"}}, "engine")
    EngineBusyError('engine: has too much to do (429, queue is full); ask again later, or ask less at a time')
    """
    kind, reason = root_cause(body)
    if kind == "index_not_found_exception":
        return MissingIndexError(f"{where}: {reason}; check the name, or index the documents first")
    if status in BUSY:
        return EngineBusyError(
            f"{where}: has too much to do ({status}, {reason}); ask again later, or ask less at a time"
        )
    if not NODE_GONE.isdisjoint(_kinds(body)):
        return EngineBusyError(f"{where}: has lost a node on the way ({status}, {reason}); ask again later")
    if status in (401, 403):
        return EngineRefusedError(
            f"{where}: not allowed ({status}, {reason}); check the user, the password or the API key"
        )
    return EngineRefusedError(f"{where}: refused ({status}, {kind}): {reason}")


def root_cause(body: Any) -> tuple[str, str]:
    """The type of the innermost error, and what each error on the way to it says.

    The innermost is often the one that helps, and sometimes a parser's "null".

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


def _kinds(body: Any) -> Iterator[str]:
    """The types of all errors in an answer: root causes, those of shards, causes of causes."""
    if isinstance(body, Mapping):
        if "type" in body:
            yield str(body["type"])
        body = list(body.values())
    if isinstance(body, list):
        for inner in body:
            yield from _kinds(inner)
