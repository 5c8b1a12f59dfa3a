"""Bodies of /v1/events: queries and events of User Behavior Insights (UBI) 1.3, as its collectors send them."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from kinrank.data.ubi import changes_list, epoch_seconds
from kinrank.errors import DataError
from kinrank.serve.events.log import Click, Shown
from kinrank.serve.http.bodies import INVALID, MAX_CANDIDATES, AnyId

ACTIONS = {"click": 1.0}
"""The value of each action that counts."""
MAX_RECORDS = 1_000
_LATEST = 1e11  # seconds since 1970; a larger number is no time

Word = Annotated[str, Meta(max_length=512)]
Timestamp = Annotated[str, Meta(max_length=100)] | int | float


class UbiObject(Struct):
    """The document that an event is about."""

    object_id: AnyId | None = None


class UbiAttributes(Struct):
    """What an event is about; further attributes are ignored."""

    object: UbiObject | None = None


class UbiRecord(Struct, kw_only=True):
    """A query with the documents that were shown or, with `action_name`, an event. Further fields are ignored."""

    query_id: Word | None = None
    client_id: Word | None = None
    timestamp: Timestamp | None = None
    user_query: Annotated[str, Meta(max_length=2_000)] | None = None
    query_response_hit_ids: Annotated[list[AnyId], Meta(max_length=MAX_CANDIDATES)] | None = None
    query_attributes: Any = None
    action_name: Word | None = None
    event_id: Word | None = None
    event_attributes: UbiAttributes | None = None


Records = Annotated[list[UbiRecord], Meta(max_length=MAX_RECORDS)]


class EventsBody(UbiRecord, kw_only=True):
    """Queries and events of UBI 1.3. A single one, and an array of both, are taken as well."""

    queries: Records = []
    events: Records = []


_DECODER = msgspec.json.Decoder(Records | EventsBody)


@dataclass
class Batch:
    """What a body reports."""

    lists: list[Shown] = field(default_factory=list)
    clicks: list[Click] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    """How many records do not count, by reason."""

    def add(self, record: UbiRecord, model: str, now: float) -> None:
        """Add a record, or count why it does not count."""
        if not record.query_id:
            self.ignored["no query id"] += 1
        elif record.action_name is None:
            self._add_query(record, record.query_id, model, now)
        else:
            self._add_event(record, record.query_id, ACTIONS.get(record.action_name))

    def _add_query(self, record: UbiRecord, query_id: str, model: str, now: float) -> None:
        if isinstance(record.query_attributes, dict) and changes_list(record.query_attributes):
            self.ignored["filtered, sorted or a later page"] += 1
            return
        documents = [str(document) for document in record.query_response_hit_ids or ()]
        time = _to_seconds(record.timestamp, now)
        client = record.client_id or None
        self.lists.append(Shown(query_id, model, record.user_query or "", documents, client, time))

    def _add_event(self, record: UbiRecord, query_id: str, value: float | None) -> None:
        about = record.event_attributes and record.event_attributes.object
        if value is None:
            self.ignored["action does not count"] += 1
        elif not about or about.object_id is None:
            self.ignored["no document"] += 1
        else:
            self.clicks.append(Click(_event_id(record), query_id, str(about.object_id), value))


def parse_events(raw: bytes, model: str, now: float) -> Batch:
    """Parse a body with queries and events. Raise a `DataError` that points to the first invalid value.

    Parameters
    ----------
    raw
        The body.
    model
        The model that ranked the lists.
    now
        The time of queries without one, in seconds since 1970.
    """
    try:
        body = _DECODER.decode(raw)
    except INVALID as error:
        raise DataError(str(error)) from None
    if b"\\u0000" in raw:
        raise DataError("ids and texts must not contain NUL characters")
    batch = Batch()
    if isinstance(body, EventsBody):
        is_single = body.query_id is not None or body.action_name is not None
        body = [*body.queries, *body.events, *([body] if is_single else [])]
    for record in body:
        batch.add(record, model, now)
    return batch


def _event_id(record: UbiRecord) -> str:
    """Return the id of an event; without one, a hash of what it says: sent again, it is the same event."""
    if record.event_id:
        return record.event_id
    return hashlib.blake2b(msgspec.json.encode(record), digest_size=16).hexdigest()


def _to_seconds(timestamp: Timestamp | None, now: float) -> float:
    """Return a time in seconds since 1970, given as ISO 8601 or as a number in any unit; now if it is neither."""
    if timestamp is None:
        return now
    try:
        seconds = epoch_seconds(float(timestamp))
    except (ValueError, OverflowError):
        try:
            parsed = datetime.fromisoformat(str(timestamp).strip())
            seconds = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return now
    return seconds if math.isfinite(seconds) and 0 <= seconds < _LATEST else now
