"""Handlers of /v1/rules: what editors want for a query."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from kinrank.errors import DataError, NotStoredError
from kinrank.serve.http import bodies
from kinrank.serve.http.errors import HttpError
from kinrank.serve.http.executor import Lane
from kinrank.serve.http.requests import KEY, RequestReader
from kinrank.serve.http.responses import RulesResponse, json_response, to_rule_response
from kinrank.serve.keys import Key
from kinrank.serve.rules.preview import MOST_KNOWN
from kinrank.serve.rules.rule import Rule
from kinrank.serve.service import Service

T = TypeVar("T")
LIST_PARAMETERS: dict[str, tuple[str, dict[str, Any]]] = {
    "history": ("true lists also rules that ended.", {"type": "string", "enum": ["true", "false"]})
}
REMOVE_PARAMETERS: dict[str, tuple[str, dict[str, Any]]] = {
    "rule": ("The number of the rule.", {"type": "string", "pattern": "^[0-9]{1,18}$"})
}


class RuleEndpoints:
    """Handles /v1/rules.

    Parameters
    ----------
    service
        Keeps rules and ranks by them.
    reader
        Reads requests.
    """

    def __init__(self, service: Service, reader: RequestReader) -> None:
        self._service = service
        self._reader = reader
        self._lane = Lane("the rules", 2)

    def close(self) -> None:
        """Start no more work."""
        self._lane.close()

    async def add_rule(self, request: Request) -> Response:
        """Add a rule for a query. It is durable when the response is sent, and holds on all replicas within 2 s."""
        body = await self._reader.parse(request, partial(bodies.parse, body=bodies.RuleBody))
        rule = Rule.new(
            body.query,
            body.action,
            body.document,
            places=body.places,
            also_similar=body.also_similar,
            author=_author(request),
            note=body.note,
            days=body.days,
        )
        return json_response(to_rule_response(await self._run(lambda: self._service.rules.add(rule))))

    async def list_rules(self, request: Request) -> Response:
        """Return the rules that hold and, with history=true, those that ended."""
        given = request.query_params.get("history", "false")
        if given not in ("true", "false"):
            raise DataError(f"history must be true or false, got {given[:100]!r}")
        rules = await self._run(lambda: self._service.rules.store.rules(history=given == "true"))
        return json_response(RulesResponse([to_rule_response(rule) for rule in rules]))

    async def remove_rule(self, request: Request) -> Response:
        """End a rule. It stays in the history."""
        given = request.query_params.get("rule", "")
        if not (given.isascii() and given.isdecimal() and len(given) <= 18):
            raise DataError(f"rule must be the number of a rule, as in DELETE /v1/rules?rule=7, got {given[:100]!r}")
        removed = await self._run(lambda: self._service.rules.remove(int(given), _author(request)))
        if removed is None:
            raise HttpError(404, "unknown-rule", f"there is no rule {given} that holds: see GET /v1/rules")
        return json_response(to_rule_response(removed))

    async def preview_rule(self, request: Request) -> Response:
        """Return the known queries that a rule would be for, and their share of the traffic."""
        body = await self._reader.parse(request, partial(bodies.parse, body=bodies.PreviewBody))
        others = self._judged_texts()
        found = await self._run(
            lambda: self._service.rules.preview(body.query, also_similar=body.also_similar, others=others)
        )
        return json_response(found)

    def _judged_texts(self) -> list[str]:
        """Return the texts of judged queries that the models know."""
        served = [slot.current for slot in self._service.slots.values()]
        texts = (text for model in served if model is not None for text in model.ranker.names_.texts.all())
        return list(islice(texts, MOST_KNOWN))

    async def _run(self, call: Callable[[], T]) -> T:
        seconds = self._service.settings.judgment_seconds
        message = f"the database did not respond within {seconds:g} seconds: try again, that is safe"
        return await self._lane.run(call, seconds, partial(NotStoredError, message))


def _author(request: Request) -> str:
    key: Key | None = request.scope[KEY]
    return "" if key is None else key.name
