"""The handler of /v1/audit: what changed what is ranked."""

from __future__ import annotations

from dataclasses import astuple
from datetime import UTC, datetime
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from kinrank.errors import DataError, StoreUnavailableError
from kinrank.serve.audit import AuditEntry
from kinrank.serve.http.executor import Lane
from kinrank.serve.http.responses import AuditEntryResponse, AuditResponse, json_response
from kinrank.serve.service import Service

_MOST = 1_000
PARAMETERS: dict[str, tuple[str, dict[str, Any]]] = {
    "limit": (f"How many entries, at most {_MOST}.", {"type": "string", "pattern": "^[1-9][0-9]{0,2}$"}),
    "before": ("Only entries before this time.", {"type": "string", "format": "date-time"}),
}
"""Parameters of the URL by name, with what each means and its schema."""


class AuditEndpoint:
    """Handles /v1/audit.

    Parameters
    ----------
    service
        Has the log.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lane = Lane("the audit log", 1)

    def close(self) -> None:
        """Start no more work."""
        self._lane.close()

    async def list_entries(self, request: Request) -> Response:
        """Return what changed what is ranked, the newest first."""
        limit, before = _limit(request.query_params.get("limit", "100")), request.query_params.get("before")
        until = None if before is None else _seconds(before)
        late = partial(StoreUnavailableError, "the database did not respond in time: try again")
        entries = await self._lane.run(
            lambda: self._service.audit.read(limit=limit, before=until), self._service.settings.judgment_seconds, late
        )
        return json_response(AuditResponse([_to_response(entry) for entry in entries]))


def _to_response(entry: AuditEntry) -> AuditEntryResponse:
    _, *others = astuple(entry)
    return AuditEntryResponse(datetime.fromtimestamp(entry.time, UTC), *others)


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= _MOST):
        raise DataError(f"limit must be from 1 to {_MOST}, got {text[:100]!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise DataError(f"before must be a time such as 2026-11-17T12:00:00Z, got {text[:100]!r}") from None
