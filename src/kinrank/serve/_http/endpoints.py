"""Request handlers, and how they read a request; `app` maps them to paths and roles."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar
from uuid import uuid4

import msgspec
from msgspec import UNSET
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from kinrank.engines._query_dsl import SearchOptions
from kinrank.errors import DataError, NotStoredError, StaleReplicaError, StoreError, UnsupportedByModelError
from kinrank.serve._events.log import RAW_DAYS, Shown
from kinrank.serve._http import bodies
from kinrank.serve._http.bodies import parse_events
from kinrank.serve._http.logs import add_log_fields
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._http.middleware import STARTED, Hold, Lane
from kinrank.serve._http.responses import (
    EventsResponse,
    HttpError,
    JudgmentsResponse,
    ModelsResponse,
    ReadyResponse,
    ReloadResponse,
    StatusResponse,
    WithdrawResponse,
    json_response,
    to_model_status,
    to_rerank_response,
    to_search_response,
)
from kinrank.serve._keys import Key, Role
from kinrank.serve._ranking import DRAW, draw_for
from kinrank.serve._search import Searcher
from kinrank.serve.messages import CandidateSet, Fallback, JudgedQuery, QueryWeights, Ranking
from kinrank.serve.service import Service

# --- reading a request: its headers, its body, and how long it may take. What it asks for is in `endpoints` -----------


MODEL_HEADER = "x-kinrank-model"
REVISION_HEADER = "x-kinrank-revision"
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


def model_of(request: Request) -> str | None:
    """Return the name of the model that the request asks for; None for the default."""
    return request.headers.get(MODEL_HEADER)


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

    def begin(self, request: Request, arm: str | None) -> None:
        """Give the list of a request its id, which decides whether it explores, and how. Log it with its arm, if any.

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
        is_open = key is None or key.name not in settings.unexplored
        DRAW.set(draw_for(query_id, settings.explore) if is_open else None)
        if arm is not None:
            add_log_fields(arm=arm, query_id=query_id)

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
        self._lane = Lane("the memory", 4)

    def close(self) -> None:
        """Start no more work."""
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
        fallback = None
        try:
            name, hits = await self._lane.run(
                lambda: reranker.rerank(body.query, documents, body.scores, n, user), settings.deadline
            )
        except (TimeoutError, HttpError) as error:
            fallback = self._fell_back(Fallback.LATE, error)
            name, hits = reranker.in_given_order(body.scores, len(documents), n)
        except StoreError as error:
            fallback = self._fell_back(Fallback.MODEL_ERROR, error)
            name, hits = reranker.in_given_order(body.scores, len(documents), n)
        return json_response(to_rerank_response(name, hits, body, fallback))

    def _fell_back(self, fallback: Fallback, error: Exception) -> Fallback:
        self._service.observer.fallback("memory", fallback)
        add_log_fields(fallback=fallback, detail=str(error) or type(error).__name__)
        return fallback


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
        self.rerank = _RerankEndpoints(service, self.reader)
        self.has_models = bool(service.slots)
        # Only lists that this service has handed out can be voted on, so that it is safe without keys.
        self.open_roles = {Role.QUERY} if service.reranker is None else {Role.QUERY, Role.EVENTS}
        self._engine_lane = Lane("the engine", _ENGINE_CALLS)
        self._store_lane = Lane("the judgment store", 4)
        self._insight_lane = Lane("weights and explanations", 4)
        self._model_lane = Lane("loading models", 2)
        self.is_draining: Callable[[], bool] = lambda: False

    def close(self) -> None:
        """Start no more work."""
        for lane in (self._engine_lane, self._store_lane, self._insight_lane, self._model_lane):
            lane.close()
        self.feedback.close()
        self.rerank.close()
        self.reader.close()

    def is_overloaded(self, scope: Scope) -> bool:
        """Return whether a ranking that starts now would only wait until its deadline."""
        return scope["path"] == "/v1/rank" and self._service.is_overloaded(Headers(scope=scope).get(MODEL_HEADER))

    # --- queries --------------------------------------------------------------------------------------------------

    async def rank(self, request: Request) -> Response:
        """Rank candidates by their features. If anything goes wrong, they come back in the order they were sent."""
        with self._counted(request):
            packed = _media_type(request) == bodies.MSGPACK
            candidates, arm = await self.reader.parse(request, partial(bodies.parse_rank, packed=packed))
            self.feedback.begin(request, arm)
            ranking = await self._rank(request, candidates, self.reader.expires(request))
        ranking = replace(ranking, arm=arm)
        self._service.count(ranking)
        _log_result(ranking)
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
                left = max(0.0, self.reader.expires(request) - time.perf_counter())
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

    async def search(self, request: Request) -> Response:
        """Return candidates of the engine, ranked."""
        body = await self.reader.parse(request, partial(bodies.parse, body=bodies.SearchBody))
        searcher = self._require_engine()
        options = self._permitted(request, searcher, body)
        self.feedback.begin(request, body.arm)
        result = await self._engine_lane.run(
            lambda: searcher.search(
                body.query,
                window=min(max(body.window, body.start + body.size), bodies.MAX_CANDIDATES),
                vector=bodies.to_vector(body.vector),
                columns=body.columns,
                pinned=body.pinned,
                model=model_of(request),
                options=options,
                explain=body.explain,
            ),
            self._engine_seconds,
            _ENGINE_LATE,
        )
        result = replace(result, ranking=replace(result.ranking, arm=body.arm))
        _log_result(result.ranking)
        if result.problem is not None:
            add_log_fields(remembered_problem=result.problem)
        response = to_search_response(result, body)
        is_plain = body.filter is None and body.start == 0
        return json_response(self.feedback.answer(request, response, body.query if is_plain else None, response.ids))

    # --- operation ------------------------------------------------------------------------------------------------

    async def models(self, request: Request) -> Response:  # noqa: ARG002
        """Return the models in use."""
        default = self._service.default
        models = {name: to_model_status(slot, default=name == default) for name, slot in self._service.slots.items()}
        return json_response(ModelsResponse(models, self._searcher is not None, self._service.events is not None))

    async def reload(self, request: Request) -> Response:
        """Load a model's folder again. If it fails its self-test, the current model stays."""
        model = model_of(request)
        served = await self._model_lane.run(lambda: self._service.reload(model), _RELOAD_SECONDS, _MODEL_LATE)
        add_log_fields(model=model or self._service.default, version=served.version)
        return json_response(ReloadResponse(model or self._service.default, served.version))

    async def judgments(self, request: Request) -> Response:
        """Store judged queries for the model to learn from. They are durable when the response is sent."""
        body, queries = await self.reader.parse(request, bodies.parse_judgments)
        model = model_of(request)
        unknown = sum(isinstance(query, bodies.JudgedBody) for query in queries)
        judged = [query for query in queries if isinstance(query, JudgedQuery)]
        if unknown:
            judged = await self._engine_lane.run(
                lambda: [self._judged_query(query) for query in queries], unknown * self._engine_seconds, _ENGINE_LATE
            )
        revision = await self._in_store(lambda: self._service.judge(judged, model=model, source=body.source))
        add_log_fields(
            model=model or self._service.default, judged=len(judged), source=body.source, judgment_revision=revision
        )
        return json_response(JudgmentsResponse(len(body.queries)), {REVISION_HEADER: str(revision)})

    async def withdraw(self, request: Request) -> Response:
        """Withdraw the judgments of a query, of a source, or of a query by a source. The model forgets them."""
        body = await self.reader.parse(request, partial(bodies.parse, body=bodies.WithdrawBody))
        qid = None if body.qid is None else str(body.qid)
        model = model_of(request)
        withdrawn, revision = await self._in_store(
            lambda: self._service.withdraw(qid=qid, source=body.source, model=model)
        )
        add_log_fields(model=model or self._service.default, withdrawn=withdrawn, judgment_revision=revision)
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
                503, "no-judgments", "the database is away, and there is no copy of its judgments: see the log"
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

    async def _rank(self, request: Request, candidates: CandidateSet, expires: float) -> Ranking:
        model = model_of(request)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ranking | None] = loop.create_future()

        def settle(ranking: Ranking | None) -> None:
            if not future.done():
                future.set_result(ranking)

        def deliver(ranking: Ranking) -> None:
            loop.call_soon_threadsafe(settle, ranking)

        self._service.submit(candidates, model, deliver, expires=expires)
        timer = loop.call_later(max(0.0, expires - time.perf_counter()), settle, None)
        try:
            ranking = await future
        finally:
            timer.cancel()
        return self._service.late(candidates, model) if ranking is None else ranking

    def _require_engine(self) -> Searcher:
        if self._searcher is None:
            raise HttpError(409, "no-engine", "no engine is attached: start the service with --engine")
        return self._searcher

    def _permitted(
        self, request: Request, searcher: Searcher, body: bodies.SearchBody | bodies.WeightsBody
    ) -> SearchOptions:
        """Return the options of a search. Raise `ForbiddenFieldError` if its key must not read a field."""
        options = SearchOptions(body.filter, tuple(body.fields), body.facets)
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
    if result.version is not None:
        add_log_fields(version=result.version)
    if result.fallback is not None:
        add_log_fields(fallback=result.fallback)
