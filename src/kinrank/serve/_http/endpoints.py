"""Request handlers, and how they read a request; `app` maps them to paths and roles."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
from msgspec import UNSET
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from kinrank.engines._query_dsl import SearchOptions
from kinrank.errors import (
    DataError,
    EngineError,
    NotStoredError,
    ParameterError,
    StaleReplicaError,
    StoreError,
    StoreUnavailableError,
    UnsupportedByModelError,
)
from kinrank.serve._audit import AuditEntry
from kinrank.serve._events.log import RAW_DAYS, Shown
from kinrank.serve._experiments import DRAW, ENGINE, arm_of, draw_for
from kinrank.serve._http import bodies
from kinrank.serve._http.bodies import parse_events
from kinrank.serve._http.logs import REQUEST_ID, add_log_fields
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._http.middleware import STARTED, Hold, Lane
from kinrank.serve._http.responses import (
    AuditEntryResponse,
    AuditResponse,
    EventsResponse,
    HttpError,
    JudgmentsResponse,
    ModelsResponse,
    ReadyResponse,
    ReloadResponse,
    RulesResponse,
    StatusResponse,
    WithdrawResponse,
    json_response,
    to_examples_response,
    to_model_status,
    to_rerank_response,
    to_rule_response,
    to_search_response,
)
from kinrank.serve._keys import Key, Role
from kinrank.serve._rules import MOST_KNOWN, Action, Rule, ended_words
from kinrank.serve._search import Searcher
from kinrank.serve.messages import CandidateSet, Fallback, JudgedQuery, QueryWeights, Ranking
from kinrank.serve.service import Service

# --- reading a request: its headers, its body, and how long it may take. What it asks for is in `endpoints` -----------


MODEL_HEADER = "x-kinrank-model"
REVISION_HEADER = "x-kinrank-revision"
SESSION_HEADER = "x-kinrank-session"
CLIENT_HEADER = "x-kinrank-client"
QUERY_HEADER = "x-kinrank-query"
KEY = "kinrank.key"
"""Key of the scope: the `Key` of the request; None without keys."""
HOLD = "kinrank.hold"
"""Key of the scope: what the request holds, a `Hold`."""
_WAITED = "kinrank.waited"
_GRACE = 0.05  # seconds for a body to arrive before it counts as slow
T = TypeVar("T")


class RequestReader:
    """Reads requests within the limits of a service."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service = service
        self._settings = service.settings
        self._metrics = metrics
        self._parser = Lane("the parser", 2)

    def close(self) -> None:
        """Parse no more bodies."""
        self._parser.close()

    async def body(self, request: Request) -> bytes:
        """Return the body. Raise an `HttpError` if it is too large or takes too long to arrive."""
        limit = self._settings.body_bytes
        hold: Hold = request.scope[HOLD]
        chunks: list[bytes] = []
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._settings.body_seconds) as patience:

                def make_room() -> None:
                    if not hold.wait():
                        patience.reschedule(loop.time())

                timer = loop.call_later(_GRACE, make_room)
                try:
                    async for chunk in request.stream():
                        hold.take(len(chunk))
                        if hold.bytes > limit:
                            raise HttpError(
                                413, "too-large", f"a body has at most {limit} bytes: send fewer candidates"
                            )
                        chunks.append(chunk)
                finally:
                    timer.cancel()
        except TimeoutError:
            raise HttpError(408, "slow-body", "the body took too long to arrive: send it again") from None
        except ClientDisconnect:
            raise HttpError(400, "disconnected", "the client disconnected before the body was complete") from None
        hold.go_on()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def parse(self, request: Request, parse: Callable[[bytes], T]) -> T:
        """Read a body and parse it; a large one in another thread, so that other requests do not wait for it."""
        raw = await self.body(request)
        start = time.perf_counter()
        if len(raw) <= bodies.LARGE_BODY:
            parsed = parse(raw)
        else:
            parsed = await self._parser.run(lambda: parse(raw), None)
        self._metrics.stage("parse", time.perf_counter() - start)
        return parsed

    async def wait_for_revision(self, request: Request) -> None:
        """Wait until the model has learned the judgments that the request asks for; refuse it if that takes long."""
        wanted = request.headers.get(REVISION_HEADER)
        if wanted is None:
            return
        if not (wanted.isascii() and wanted.isdecimal() and len(wanted) <= 18):
            raise DataError(f"{REVISION_HEADER} must be a revision of the judgments, got {wanted[:100]!r}")
        start = time.monotonic()
        hold: Hold = request.scope[HOLD]
        while True:
            try:
                self._service.check_learned(int(wanted), model=model_of(request))
            except StaleReplicaError:
                if time.monotonic() > start + self._settings.revision_seconds or not hold.wait():
                    raise
            else:
                hold.go_on()
                request.scope[_WAITED] = time.monotonic() - start
                return
            await asyncio.sleep(0.01)

    def expires(self, request: Request) -> float:
        """Return the end of the deadline, which starts after the wait for a revision."""
        started: float = request.scope[STARTED]
        waited: float = request.scope.get(_WAITED, 0.0)
        return started + waited + self._settings.deadline

    def seconds_left(self, request: Request) -> float:
        """Return the seconds until the deadline."""
        return max(0.0, self.expires(request) - time.perf_counter())


def model_of(request: Request) -> str | None:
    """Return the name of the model that the request asks for; None for the default."""
    return request.headers.get(MODEL_HEADER)


def model_named(request: Request, named: str | None) -> str | None:
    """Return the name of the model that the header or the body of a request asks for; raise if they differ."""
    header = model_of(request)
    if header is not None and named is not None and header != named:
        raise DataError(
            f"{MODEL_HEADER} names the model {header[:100]!r} and the body {named[:100]!r}: name one of them"
        )
    return header if named is None else named


def seed_of(request: Request) -> str:
    """Return what decides how a list is made up, the same for all its pages: its id, or that of the request."""
    return request.headers.get(QUERY_HEADER) or REQUEST_ID.get() or ""


def is_packed(request: Request) -> bool:
    """Return whether the body is MessagePack."""
    return _media_type(request) == bodies.MSGPACK


def check_media_type(request: Request, *, packed: bool) -> None:
    """Raise an `HttpError` unless the body is JSON or, if `packed`, MessagePack. Without a header it is JSON."""
    kind = _media_type(request)
    accepted = (bodies.JSON, bodies.MSGPACK) if packed else (bodies.JSON,)
    if kind not in accepted:
        raise HttpError(415, "media-type", f"the body must be {' or '.join(accepted)}, got {kind[:100]!r}")


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", bodies.JSON).partition(";")[0].strip().lower()


# --- what people are shown and choose: the lists that the service answers with, and the events that clients send ------


_QUERY_ID = "kinrank.query_id"  # key of the scope
_LONGEST_ID = 100
_UNKNOWN = f"unknown list (counts if its query comes in within {RAW_DAYS} days)"
_NO_LOG = "no database: start the service with --judgments"
_NO_MEMORY = "no memory: start the service with --memory"
R = TypeVar("R", bound=Ranking)


class _Feedback:
    """Handles /v1/events, and remembers what was shown."""

    def __init__(self, service: Service, reader: RequestReader) -> None:
        self._service = service
        self._reader = reader
        self._lane = Lane("the event store", 4)
        self._memory_lane = Lane("the votes", 1)

    def close(self) -> None:
        """Start no more work."""
        self._lane.close()
        self._memory_lane.close()

    async def events(self, request: Request) -> Response:
        """Take in UBI queries and events. They are durable when the response is sent, and may be sent again.

        Events on a list of /v1/rerank are votes: chosen (or click), cited, liked, disliked, and undo.
        """
        log, reranker = self._service.events, self._service.reranker
        if log is None and reranker is None:
            raise UnsupportedByModelError("this service does not accept events: start it with --judgments or --memory")
        model = "" if log is None else self._service.existing(model_of(request))
        now = None if log is None else log.moment
        batch = await self._reader.parse(request, partial(parse_events, model=model, now=now))
        caller = self._caller(request)
        seconds = self._service.settings.judgment_seconds
        message = f"the event store did not respond within {seconds:g} seconds: try again, that is safe"

        def record() -> tuple[dict[str, int], int, int]:
            if log is None:
                return ({_NO_LOG: len(batch.lists)} if batch.lists else {}), len(batch.clicks), 0
            lists, unsigned = log.attributed(batch.lists, caller)
            return log.record(lists, batch.clicks), log.unknown(batch.clicks, lists), unsigned

        def learn() -> Counter[str]:
            if reranker is None:
                return Counter({_NO_MEMORY: len(batch.votes)})
            return reranker.learn(batch.votes, names_clients=caller is None)

        late = partial(NotStoredError, message)
        refused = await self._memory_lane.run(learn, seconds, late) if batch.votes else Counter[str]()
        ignored, unknown, unsigned = await self._lane.run(record, seconds, late)
        queries = len(batch.lists) - sum(ignored.values())
        if unknown:
            ignored[_UNKNOWN] = unknown
        ignored = {**batch.ignored, **ignored, **refused}
        events = len(batch.clicks) - unknown + len(batch.votes) - refused.total()
        return json_response(EventsResponse(queries, events, ignored, unsigned or UNSET))

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

        Without a text, what is shown does not count.
        """
        query_id: str = request.scope[_QUERY_ID]
        depth, log = self._service.settings.log_shown, self._service.events
        if depth and log is not None and text and documents:
            client = request.headers.get(CLIENT_HEADER)
            model = self._service.name_of(model_of(request))
            log.show(Shown(query_id, model, text, documents[:depth], client or None, log.moment, ranking.explored))
        return replace(ranking, query_id=query_id)


# --- /v1/rerank: documents of any retriever ---------------------------------------------------------------------------


class _RerankEndpoints:
    """Handles /v1/rerank."""

    def __init__(self, service: Service, reader: RequestReader) -> None:
        self._service = service
        self._reader = reader
        self._upstream_lane = Lane("the upstream reranker", _ENGINE_CALLS)
        self._lane = Lane("the memory", 4)

    def close(self) -> None:
        """Start no more work."""
        self._upstream_lane.close()
        self._lane.close()

    async def rerank(self, request: Request) -> Response:
        """Reorder documents of any retriever by what people chose for similar questions.

        If anything goes wrong, they come back in the order of their scores or, without scores, as they were sent.
        """
        reranker, settings = self._service.reranker, self._service.settings
        if reranker is None:
            raise HttpError(409, "no-memory", "there is no memory: start the service with --memory FILE")
        body = await self._reader.parse(request, bodies.parse_rerank)
        documents = [(None, each) if isinstance(each, str) else (each.id, each.text) for each in body.documents]
        n = body.top_n or len(documents)
        user = body.user or request.headers.get(CLIENT_HEADER) or None
        scores, fallback = body.scores, None
        if scores is None and reranker.upstream is not None:
            try:
                scores = await self._upstream_lane.run(
                    lambda: reranker.prior(body.query, [text for _, text in documents], body.model),
                    settings.rerank_seconds,
                )
            except (EngineError, TimeoutError, HttpError) as error:
                fallback = self._fell_back(Fallback.UPSTREAM_DOWN, error)
        try:
            name, hits = await self._lane.run(
                lambda: reranker.rerank(body.query, documents, scores, n, user), settings.deadline
            )
        except (TimeoutError, HttpError) as error:
            fallback = self._fell_back(Fallback.LATE, error)
            name, hits = reranker.in_given_order(scores, len(documents), n)
        except StoreError as error:
            fallback = self._fell_back(Fallback.MODEL_ERROR, error)
            name, hits = reranker.in_given_order(scores, len(documents), n)
        return json_response(to_rerank_response(name, hits, body, fallback))

    def _fell_back(self, fallback: Fallback, error: Exception) -> Fallback:
        self._service.observer.fallback("memory", fallback)
        add_log_fields(fallback=fallback, detail=str(error) or type(error).__name__)
        return fallback


# --- handlers of /v1/rules: what editors want for a query -------------------------------------------------------------


LIST_PARAMETERS: dict[str, tuple[str, dict[str, Any]]] = {
    "history": ("true lists also rules that ended.", {"type": "string", "enum": ["true", "false"]}),
    "effects": (
        "true adds what people chose before the rules that hold and since.",
        {"type": "string", "enum": ["true", "false"]},
    ),
}
REMOVE_PARAMETERS: dict[str, tuple[str, dict[str, Any]]] = {
    "rule": ("The number of the rule.", {"type": "string", "pattern": "^[0-9]{1,18}$"})
}


class _RuleEndpoints:
    """Handles /v1/rules."""

    def __init__(self, service: Service, reader: RequestReader, searcher: Searcher | None) -> None:
        self._service = service
        self._reader = reader
        self._searcher = searcher
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
        await self._check_document(rule)
        return json_response(to_rule_response(await self._run(lambda: self._service.rules.add(rule))))

    async def _check_document(self, rule: Rule) -> None:
        """Raise `DataError` if the attached engine does not know the document of a rule; if it is away, do nothing."""
        if self._searcher is None or rule.action not in (Action.PIN, Action.BOOST):
            return
        engine, seconds = self._searcher.engine, self._service.settings.engine_seconds
        with suppress(EngineError, ParameterError, HttpError):  # without its answer, the rule is taken as it is
            logged = await self._lane.run(
                lambda: engine.log(rule.query, [rule.document], timeout=seconds), seconds + 1, _ENGINE_LATE
            )
            if not logged.found[0]:
                raise DataError(f"the engine has no document {rule.document!r}: check the id of the document")

    async def list_rules(self, request: Request) -> Response:
        """Return the rules that hold and, with history=true, those that ended; with effects=true what they changed."""
        wanted = {name: _is_true(request, name) for name in LIST_PARAMETERS}

        def listed() -> RulesResponse:
            rules = self._service.rules.store.rules(history=wanted["history"])
            effects = self._service.rules.effects(rules) if wanted["effects"] else {}
            return RulesResponse([to_rule_response(rule, effects.get(rule.number)) for rule in rules])

        return json_response(await self._run(listed))

    async def remove_rule(self, request: Request) -> Response:
        """End a rule. It stays in the history."""
        given = request.query_params.get("rule", "")
        if not (given.isascii() and given.isdecimal() and len(given) <= 18):
            raise DataError(f"rule must be the number of a rule, as in DELETE /v1/rules?rule=7, got {given[:100]!r}")
        removed = await self._run(lambda: self._service.rules.remove(int(given), _author(request)))
        if removed is None:
            known = await self._run(lambda: self._service.rules.store.rules(history=True))
            ended = next((ended_words(rule) for rule in known if rule.number == int(given)), "see GET /v1/rules")
            raise HttpError(404, "unknown-rule", f"there is no rule {given} that holds: {ended}")
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


def _is_true(request: Request, name: str) -> bool:
    given = request.query_params.get(name, "false")
    if given not in ("true", "false"):
        raise DataError(f"{name} must be true or false, got {given[:100]!r}")
    return given == "true"


def _author(request: Request) -> str:
    key: Key | None = request.scope[KEY]
    return "" if key is None else key.name


_MOST = 1_000
PARAMETERS: dict[str, tuple[str, dict[str, Any]]] = {
    "limit": (f"How many entries, at most {_MOST}.", {"type": "string", "pattern": "^[1-9][0-9]{0,2}$"}),
    "before": ("Only entries before this time.", {"type": "string", "format": "date-time"}),
}
"""Parameters of the URL by name, with what each means and its schema."""


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


_RELOAD_SECONDS = 60.0
# Threads that only wait. With 0.3 s per call, 100 searches a second need 30.
_ENGINE_CALLS = 32
_EXPLAIN_SECONDS = 10.0  # for people, not for traffic
_ENGINE_LATE = partial(HttpError, 503, "engine-down", "the engine did not respond in time: try again")
_MODEL_LATE = partial(HttpError, 503, "slow-model", "the model is still being loaded: check GET /v1/model")
_EXPLANATION_LATE = partial(
    HttpError, 503, "slow-explanation", "the explanation took too long: try again, with fewer candidates"
)


class Endpoints:
    """Request handlers of a service."""

    def __init__(self, service: Service, metrics: Metrics, searcher: Searcher | None) -> None:
        self._service = service
        self._settings = service.settings
        self._metrics = metrics
        self._searcher = searcher
        self._rankings = dict.fromkeys(service.slots, 0)  # in progress, by model
        service.expected = self._rankings.__getitem__
        self.reader = RequestReader(service, metrics)
        self.feedback = _Feedback(service, self.reader)
        self.rules = _RuleEndpoints(service, self.reader, searcher)
        self.rerank = _RerankEndpoints(service, self.reader)
        self.has_models = bool(service.slots)
        # Only lists that this service has handed out can be voted on, so that it is safe without keys.
        self.open_roles = {Role.QUERY} if service.reranker is None else {Role.QUERY, Role.EVENTS}
        self._audit_lane = Lane("the audit log", 1)
        self._engine_lane = Lane("the engine", _ENGINE_CALLS)
        self._store_lane = Lane("the judgment store", 4)
        self._insight_lane = Lane("weights and explanations", 4)
        self._model_lane = Lane("loading models", 2)
        self.is_draining: Callable[[], bool] = lambda: False

    def close(self) -> None:
        """Start no more work."""
        for lane in (self._engine_lane, self._store_lane, self._insight_lane, self._model_lane, self._audit_lane):
            lane.close()
        self.feedback.close()
        self.rules.close()
        self.rerank.close()
        self.reader.close()

    def is_overloaded(self, scope: Scope) -> bool:
        """Return whether a ranking that starts now would only wait until its deadline."""
        return scope["path"] == "/v1/rank" and self._service.is_overloaded(Headers(scope=scope).get(MODEL_HEADER))

    # --- queries --------------------------------------------------------------------------------------------------

    async def rank(self, request: Request) -> Response:
        """Rank candidates by their features. If anything goes wrong, they come back in the order they were sent."""
        with self._counted(request):
            candidates, models = await self.reader.parse(request, partial(bodies.parse_rank, packed=is_packed(request)))
            self.feedback.begin(request, may_explore=models is None)
            arm, model, models = self._arm(request, models)
            ranking = await self._rank(request, candidates, model, models, self.reader.expires(request))
        ranking = replace(ranking, arm=arm)
        self._service.count(ranking)
        _log_result(ranking)
        ranking = self._service.rules.book.apply(ranking, candidates.text)
        ranking = self.feedback.answer(request, ranking, candidates.text, ranking.ids)
        if request.headers.get("accept") == bodies.MSGPACK:
            return Response(msgspec.msgpack.encode(ranking), media_type=bodies.MSGPACK)
        return json_response(ranking)

    async def weights(self, request: Request) -> Response:
        """Return the weights of the query's local model, and the engine request that ranks with them."""
        body, candidates = await self.reader.parse(request, bodies.parse_weights)
        model = model_of(request)
        if candidates is not None:
            try:
                left = self.reader.seconds_left(request)
                found = await self._insight_lane.run(lambda: self._service.weights(candidates, model=model), left)
            except TimeoutError:
                found = QueryWeights(
                    model=self._service.name_of(model), fallback=Fallback.LATE, detail="not learned within the deadline"
                )
        else:
            searcher = self._require_engine()
            if body.query is None:
                raise DataError("send ids and features, or query")
            text, options = body.query, self._permitted(request, searcher, body)
            found = await self._engine_lane.run(
                lambda: searcher.weights(
                    text,
                    size=body.size,
                    vector=bodies.to_vector(body.vector),
                    columns=body.columns,
                    model=model,
                    options=options,
                ),
                self._engine_seconds,
                _ENGINE_LATE,
            )
        self._service.count(found)
        _log_result(found)
        return json_response(found)

    async def explain(self, request: Request) -> Response:
        """Return why the candidates are ranked as they are. 409 if the model cannot explain any ranking."""
        candidates = await self.reader.parse(request, bodies.parse_explain)
        model = model_of(request)
        why = await self._insight_lane.run(
            lambda: self._service.explain(candidates, model=model), _EXPLAIN_SECONDS, _EXPLANATION_LATE
        )
        return json_response(why)

    async def examples(self, request: Request) -> Response:
        """Return the queries stored with the model, to rank them again."""
        return json_response(to_examples_response(self._service.examples(model_of(request))))

    async def search(self, request: Request) -> Response:
        """Return candidates of the engine, ranked."""
        body = await self.reader.parse(request, partial(bodies.parse, body=bodies.SearchBody))
        searcher = self._require_engine()
        options = self._permitted(request, searcher, body)
        models = bodies.pair_of(body.interleave)
        self.feedback.begin(request, may_explore=models is None)
        arm, model, models = self._arm(request, models)
        result = await self._engine_lane.run(
            lambda: searcher.search(
                body.query,
                window=min(max(body.window, body.start + body.size), bodies.MAX_CANDIDATES),
                vector=bodies.to_vector(body.vector),
                columns=body.columns,
                model=model,
                options=options,
                explain=body.explain,
                interleaved=models,
                seed=seed_of(request),
            ),
            self._engine_seconds,
            _ENGINE_LATE,
        )
        result = replace(result, ranking=replace(result.ranking, arm=arm))
        _log_result(result.ranking)
        if result.problem is not None:
            add_log_fields(remembered_problem=result.problem)
        response = to_search_response(result, body, searcher.titles)
        is_plain = body.filter is None and body.start == 0
        return json_response(self.feedback.answer(request, response, body.query if is_plain else None, response.ids))

    # --- operation ------------------------------------------------------------------------------------------------

    async def models(self, request: Request) -> Response:  # noqa: ARG002
        """Return the models in use."""
        default = self._service.default
        models = {
            name: to_model_status(rollout, default=name == default) for name, rollout in self._service.rollouts.items()
        }
        return json_response(ModelsResponse(models, self._searcher is not None, self._service.events is not None))

    async def reload(self, request: Request) -> Response:
        """Load a model's folder again. If it fails its self-test, the current model stays."""
        raw = await self.reader.body(request)
        body = bodies.parse(raw, bodies.ReloadBody) if raw else bodies.ReloadBody()
        model = model_named(request, body.model)
        served = await self._model_lane.run(lambda: self._service.reload(model), _RELOAD_SECONDS, _MODEL_LATE)
        return json_response(ReloadResponse(model or self._service.default, served.version))

    async def judgments(self, request: Request) -> Response:
        """Store judged queries for the model to learn from. They are durable when the response is sent."""
        body, queries = await self.reader.parse(request, bodies.parse_judgments)
        model = model_named(request, body.model)
        unknown = sum(isinstance(query, bodies.JudgedBody) for query in queries)
        judged = [query for query in queries if isinstance(query, JudgedQuery)]
        if unknown:
            judged = await self._engine_lane.run(
                lambda: [self._judged_query(query) for query in queries], unknown * self._engine_seconds, _ENGINE_LATE
            )
        revision = await self._in_store(lambda: self._service.judge(judged, model=model, source=body.source))
        return json_response(JudgmentsResponse(len(body.queries)), {REVISION_HEADER: str(revision)})

    async def audit(self, request: Request) -> Response:
        """Return what changed what is ranked, the newest first."""
        limit, before = _limit(request.query_params.get("limit", "100")), request.query_params.get("before")
        until = None if before is None else _seconds(before)
        late = partial(StoreUnavailableError, "the database did not respond in time: try again")
        entries = await self._audit_lane.run(
            lambda: self._service.audit.read(limit=limit, before=until), self._settings.judgment_seconds, late
        )
        return json_response(AuditResponse([_to_response(entry) for entry in entries]))

    async def withdraw(self, request: Request) -> Response:
        """Withdraw the judgments of a query, of a source, or of a query by a source. The model forgets them."""
        body = await self.reader.parse(request, partial(bodies.parse, body=bodies.WithdrawBody))
        qid = None if body.qid is None else str(body.qid)
        model = model_named(request, body.model)
        withdrawn, revision = await self._in_store(
            lambda: self._service.withdraw(qid=qid, source=body.source, model=model)
        )
        return json_response(WithdrawResponse(withdrawn), {REVISION_HEADER: str(revision)})

    async def metrics(self, request: Request) -> Response:  # noqa: ARG002
        """Return metrics for Prometheus."""
        for name, waiting in self._service.waiting.items():
            served = self._service.slots[name].current
            self._metrics.state(name, waiting, None if served is None else served.revision)
        if self._service.events is not None:
            feeds = {name: slot.feed for name, slot in self._service.slots.items()}
            revisions = {name: feed.revision for name, feed in feeds.items() if feed is not None}
            self._metrics.memory(self._service.events, revisions, self._service.workers.failing)
        return Response(self._metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def healthz(self, request: Request) -> Response:  # noqa: ARG002
        """Report that the process is alive."""
        return json_response(StatusResponse("alive"))

    async def readyz(self, request: Request) -> Response:  # noqa: ARG002
        """Report whether every model is loaded and the process is not shutting down."""
        if self.is_draining():
            raise HttpError(503, "draining", "this process is shutting down: use another one")
        missing = {name: slot.refusal for name, slot in self._service.slots.items() if slot.current is None}
        if missing:
            # The reason may name a path, and this endpoint needs no key.
            why = [
                f"{name} {'is being loaded' if reason is None else 'was refused'}" for name, reason in missing.items()
            ]
            raise HttpError(503, "no-model", f"{', '.join(why)}: GET /v1/model and the log have the reason")
        if self._service.waits_for_memory:
            raise HttpError(503, "no-memory", "the memory is being read: try again")
        if self._service.waits_for_database:
            raise HttpError(
                503, "no-rules", "the database is away, and there is no copy of its rules and judgments: see the log"
            )
        versions = [slot.current.version for slot in self._service.slots.values() if slot.current is not None]
        return json_response(ReadyResponse("ready", versions, self._service.workers.failing or UNSET))

    # --- helpers --------------------------------------------------------------------------------------------------

    async def _in_store(self, change: Callable[[], T]) -> T:
        """Change judgments. After a timeout the caller does not know if they are stored, but can safely repeat it."""
        seconds = self._settings.judgment_seconds
        message = f"the judgment store did not respond within {seconds:g} seconds: try again, that is safe"
        return await self._store_lane.run(change, seconds, partial(NotStoredError, message))

    def _judged_query(self, body: bodies.JudgedBody | JudgedQuery) -> JudgedQuery:
        """Return a judged query, with the features of the attached engine if it has none."""
        if isinstance(body, JudgedQuery):
            return body
        ids = [str(each) for each in body.ids]
        grades = dict(zip(ids, body.grades, strict=True)) if len(ids) == len(body.grades) else {}
        if len(grades) < len(body.ids):
            raise DataError(f"query {body.qid!r}: send one grade per id, and every id once")
        vector = bodies.to_vector(body.vector)
        return self._require_engine().judged(
            str(body.qid), body.text or "", grades, vector=vector, columns=body.columns
        )

    @contextmanager
    def _counted(self, request: Request) -> Iterator[None]:
        """Count a ranking for its model until it ends, its deadline passes, or its body turns out to be slow."""
        name = self._service.name_of(model_of(request))
        counted = [name]
        self._rankings[name] += 1

        def end() -> None:
            if counted:
                self._rankings[counted.pop()] -= 1

        request.scope[HOLD].on_wait = end
        timer = asyncio.get_running_loop().call_later(self.reader.expires(request) - time.perf_counter(), end)
        try:
            yield
        finally:
            timer.cancel()
            end()

    async def _rank(
        self,
        request: Request,
        candidates: CandidateSet,
        model: str | None,
        models: tuple[str, str] | None,
        expires: float,
    ) -> Ranking:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ranking | None] = loop.create_future()

        def settle(ranking: Ranking | None) -> None:
            if not future.done():
                future.set_result(ranking)

        def deliver(ranking: Ranking) -> None:
            loop.call_soon_threadsafe(settle, ranking)

        if models is None:
            self._service.submit(candidates, model, deliver, expires=expires)
        else:
            seed = seed_of(request)
            self._service.submit_interleaved(candidates, models, seed, deliver, expires=expires)
        timer = loop.call_later(max(0.0, expires - time.perf_counter()), settle, None)
        try:
            ranking = await future
        finally:
            timer.cancel()
        return self._service.late(candidates, model) if ranking is None else ranking

    def _arm(
        self, request: Request, models: tuple[str, str] | None
    ) -> tuple[str | None, str | None, tuple[str, str] | None]:
        """Return the arm of the A/B test that a request is in, and what ranks it: a model, or two.

        Requests that name models are in no arm, unless everybody is sent to the engine.
        """
        share, model = self._settings.engine_share, model_of(request)
        if share >= 1:
            return ENGINE, ENGINE, None
        if not share or model is not None or models is not None:
            return None, model, models
        unit = request.headers.get(SESSION_HEADER) or request.headers.get(CLIENT_HEADER) or seed_of(request)
        arm = arm_of(unit, share)
        return arm, (ENGINE if arm == ENGINE else None), None

    def _require_engine(self) -> Searcher:
        if self._searcher is None:
            raise HttpError(409, "no-engine", "no engine is attached: start the service with --engine")
        return self._searcher

    def _permitted(
        self, request: Request, searcher: Searcher, body: bodies.SearchBody | bodies.WeightsBody
    ) -> SearchOptions:
        """Return the options of a search. Raise `ForbiddenFieldError` if its key must not read a field."""
        options = bodies.to_options(body)
        options.check()
        key: Key | None = request.scope[KEY]
        if key is None or key.role is not Role.ADMIN:
            searcher.policy.check(options)
        return options

    @property
    def _engine_seconds(self) -> float:
        # The calls to the engine for one search share its timeout; a ranking follows.
        return self._settings.engine_seconds + self._settings.deadline + 0.1


def _log_result(result: Ranking | QueryWeights) -> None:
    """Add the model and its version, or the reason why it did not rank, to the log line of the request."""
    add_log_fields(model=result.model)
    if isinstance(result, Ranking) and result.arm is not None:
        add_log_fields(arm=result.arm)
    if result.version is not None:
        add_log_fields(version=result.version)
    if result.fallback is not None:
        add_log_fields(fallback=result.fallback)
