"""Lists and clicks, as clients report them and as they are stored."""

from __future__ import annotations

from typing import NamedTuple


class ListRecord(NamedTuple):
    """A list that someone was shown. Queries and clients are hashes."""

    list: str
    """The UBI ``query_id``."""
    model: str
    query: int
    day: int
    """Days since 1970."""
    client: int
    documents: str
    """JSON array of document ids, best first."""


class ClickRecord(NamedTuple):
    """A document that someone chose from a list."""

    event: str
    """Identifies the event: the same one again is not counted."""
    list: str
    document: str
    value: float
    day: int
    """When it was received."""
