"""What people are shown and choose: the lists that the service answers with, and the events that clients send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar
from uuid import uuid4

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from kinrank.errors import NotStoredError, UnsupportedByModelError
from kinrank.serve.events.log import RAW_DAYS, Shown
from kinrank.serve.exploring import DRAW, draw_for
from kinrank.serve.http.executor import Lane
from kinrank.serve.http.requests import CLIENT_HEADER, KEY, QUERY_HEADER, RequestReader, model_of
from kinrank.serve.http.responses import EventsResponse, json_response
from kinrank.serve.http.ubi import parse_events
from kinrank.serve.keys import Key, Role
from kinrank.serve.messages import Ranking
from kinrank.serve.service import Service

_QUERY_ID = "kinrank.query_id"  # key of the scope
_LONGEST_ID = 100
_UNKNOWN = f"unknown list (counts if its query comes in within {RAW_DAYS} days)"
R = TypeVar("R", bound=Ranking)


class Feedback:
    """Handles /v1/events, and remembers what was shown.

    Parameters
    ----------
    service
        Stores events and ranks by them.
    reader
        Reads requests.
    """

    def __init__(self, service: Service, reader: RequestReader) -> None:
        self._service = service
        self._reader = reader
        self._lane = Lane("the event store", 4)

    def close(self) -> None:
        """Start no more work."""
        self._lane.close()

    async def events(self, request: Request) -> Response:
        """Take in UBI queries and events. They are durable when the response is sent, and may be sent again."""
        log = self._service.events
        if log is None:
            raise UnsupportedByModelError("this service does not accept events: start it with --judgments")
        model = self._service.existing(model_of(request))
        batch = await self._reader.parse(request, partial(parse_events, model=model, now=log.now()))
        caller = self._caller(request)
        seconds = self._service.settings.judgment_seconds
        message = f"the event store did not respond within {seconds:g} seconds: try again, that is safe"

        def record() -> tuple[dict[str, int], int, int]:
            lists, unsigned = log.attributed(batch.lists, caller)
            return log.record(lists, batch.clicks), log.unknown(batch.clicks, lists), unsigned

        ignored, unknown, unsigned = await self._lane.run(record, seconds, partial(NotStoredError, message))
        queries = len(batch.lists) - sum(ignored.values())
        if unknown:
            ignored[_UNKNOWN] = unknown
        ignored = {**batch.ignored, **ignored}
        return json_response(EventsResponse(queries, len(batch.clicks) - unknown, ignored, unsigned or UNSET))

    def _caller(self, request: Request) -> str | None:
        """Return who reports lists: a key and an address; None if it may name clients."""
        key: Key | None = request.scope[KEY]
        if key is None or key.role is not Role.EVENTS or key.name in self._service.settings.trusted:
            return None
        return f"{key.name} {request.client.host if request.client else ''}"

    def begin(self, request: Request, *, may_explore: bool = True) -> None:
        """Give the list of a request its id, which decides whether it explores, and how.

        A further page with the id of the first one has the same order.
        """
        key: Key | None = request.scope[KEY]
        settings = self._service.settings
        query_id = request.headers.get(QUERY_HEADER, "")[:_LONGEST_ID]
        if not query_id:
            query_id, client, log = uuid4().hex, request.headers.get(CLIENT_HEADER), self._service.events
            if client and log is not None:
                query_id = log.clients.sign(query_id, client, log.today)
        request.scope[_QUERY_ID] = query_id
        is_open = may_explore and (key is None or key.name not in settings.unexplored)
        DRAW.set(draw_for(query_id, settings.explore) if is_open else None)

    def answer(self, request: Request, ranking: R, text: str | None, documents: Sequence[str]) -> R:
        """Return a ranking with the id that events about it name, and remember the documents that are shown.

        Parameters
        ----------
        request
            The request, whose header names the client.
        ranking
            The answer.
        text
            The text of the query; None if what is shown should not count.
        documents
            The documents in the order in which they are shown.
        """
        query_id: str = request.scope[_QUERY_ID]
        depth, log = self._service.settings.log_shown, self._service.events
        if depth and log is not None and text and documents:
            client = request.headers.get(CLIENT_HEADER)
            model = self._service.name_of(model_of(request))
            log.show(Shown(query_id, model, text, documents[:depth], client or None, log.now(), ranking.explored))
        return replace(ranking, query_id=query_id)
