"""Request handlers; `app` maps them to paths and roles."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from kinrank.errors import DataError, StaleReplicaError, UnsupportedByModelError
from kinrank.serve.http import bodies
from kinrank.serve.http.errors import HttpError
from kinrank.serve.http.executor import BoundedExecutor
from kinrank.serve.http.logs import REQUEST_ID, add_log_fields
from kinrank.serve.http.metrics import Metrics
from kinrank.serve.http.middleware import STARTED
from kinrank.serve.http.responses import (
    ExplanationResponse,
    JudgmentsResponse,
    ModelsResponse,
    RankResponse,
    ReadyResponse,
    ReloadResponse,
    StatusResponse,
    WithdrawResponse,
    to_examples_response,
    to_model_status,
    to_response,
    to_search_response,
    to_weights_response,
)
from kinrank.serve.messages import CandidateSet, Fallback, JudgedQuery, QueryExplanation, QueryWeights, Ranking
from kinrank.serve.search import Searcher
from kinrank.serve.service import Service

MODEL_HEADER = "x-kinrank-model"
REVISION_HEADER = "x-kinrank-revision"
SESSION_HEADER = "x-kinrank-session"
_WAITED = "kinrank.waited"
_RELOAD_SECONDS = 60.0
_EXPLAIN_SECONDS = 10.0  # for people, not for traffic
T = TypeVar("T")


class Endpoints:
    """Request handlers of a service.

    Parameters
    ----------
    service
        Ranks and learns.
    metrics
        Content of /metrics.
    searcher
        Search through an engine, if one is attached.
    """

    def __init__(self, service: Service, metrics: Metrics, searcher: Searcher | None) -> None:
        self._service = service
        self._settings = service.settings
        self._metrics = metrics
        self._searcher = searcher
        self._rankings = dict.fromkeys(service.slots, 0)  # in progress, by model
        service.expected = self._rankings.__getitem__
        self.executor = BoundedExecutor()
        self.parser = BoundedExecutor(2)  # an engine or a database that hangs must not hold up the parsing of bodies
        self.is_draining: Callable[[], bool] = lambda: False

    def is_overloaded(self, scope: Scope) -> bool:
        """Return whether a ranking that starts now would only wait until its deadline."""
        return scope["path"] == "/v1/rank" and self._service.is_overloaded(Headers(scope=scope).get(MODEL_HEADER))

    # --- queries --------------------------------------------------------------------------------------------------

    async def rank(self, request: Request) -> Response:
        """Rank candidates by their features. If anything goes wrong, they come back in the order they were sent."""
        packed = _media_type(request) == bodies.MSGPACK
        with self._counted(request):
            raw = await self._read_body(request)
            candidates, models = await self._parse(raw, lambda: bodies.parse_rank(raw, packed=packed))
            ranking = await self._rank(request, candidates, models, self._expires(request))
        self._service.count(ranking)
        _log_result(ranking)
        response = to_response(RankResponse, ranking)
        if request.headers.get("accept") == bodies.MSGPACK:
            return Response(msgspec.msgpack.encode(response), media_type=bodies.MSGPACK)
        return _json(response)

    async def weights(self, request: Request) -> Response:
        """Return the weights of the query's local model, and the engine request that ranks with them."""
        raw = await self._read_body(request)
        expires = self._expires(request)
        body = await self._parse(raw, lambda: bodies.parse(raw, bodies.WeightsBody))
        model = request.headers.get(MODEL_HEADER)
        vector = bodies.to_vector(body.vector)
        late = (
            QueryWeights(
                model=self._service.name_of(model), fallback=Fallback.LATE, detail="not learned within the deadline"
            ),
            None,
        )
        if body.ids is not None and body.features is not None:
            rows = body.features
            features = await self._parse(raw, lambda: bodies.to_matrix(rows))
            candidates = bodies.to_candidates(body, features, vector)
            found, engine_request = await self._run(
                lambda: (self._service.weights(candidates, model=model), None),
                late,
                max(0.0, expires - time.perf_counter()),
            )
        else:
            searcher = self._require_engine()
            if body.query is None:
                raise DataError("send ids and features, or query")
            text = body.query
            options = bodies.to_options(body)
            found, engine_request = await self._run(
                lambda: searcher.weights(
                    text, size=body.size, vector=vector, columns=body.columns, model=model, options=options
                ),
                late,
                self._engine_seconds,
            )
        self._service.count(found)
        _log_result(found)
        return _json(to_weights_response(found, engine_request))

    async def explain(self, request: Request) -> Response:
        """Return why the candidates are ranked as they are. 409 if the model cannot explain."""
        raw = await self._read_body(request)
        body = await self._parse(raw, lambda: bodies.parse(raw, bodies.ExplainBody))
        model = request.headers.get(MODEL_HEADER)

        def explain() -> QueryExplanation | None:
            candidates = bodies.to_candidates(body, bodies.to_matrix(body.features), bodies.to_vector(body.vector))
            return self._service.explain(candidates, model=model)

        why = await self._run(explain, None, _EXPLAIN_SECONDS)
        if why is None:
            raise UnsupportedByModelError("there is no explanation: the model has none for these candidates")
        return _json(to_response(ExplanationResponse, why))

    async def examples(self, request: Request) -> Response:
        """Return the queries stored with the model, to rank them again."""
        return _json(to_examples_response(self._service.examples(request.headers.get(MODEL_HEADER))))

    async def search(self, request: Request) -> Response:
        """Return candidates of the engine, ranked."""
        raw = await self._read_body(request)
        body = await self._parse(raw, lambda: bodies.parse(raw, bodies.SearchBody))
        searcher = self._require_engine()
        model = request.headers.get(MODEL_HEADER)
        try:
            result = await self.executor.run(
                lambda: searcher.search(
                    body.query,
                    window=min(max(body.window, body.start + body.size), bodies.MAX_CANDIDATES),
                    vector=bodies.to_vector(body.vector),
                    columns=body.columns,
                    model=model,
                    options=bodies.to_options(body),
                    explain=body.explain,
                ),
                self._engine_seconds,
            )
        except TimeoutError:
            raise HttpError(503, "engine-down", "the engine did not respond in time: try again") from None
        _log_result(result.ranking)
        response = to_search_response(result, body.start, body.size)
        if body.explain:
            why = result.explanation
            response.explanation = None if why is None else to_response(ExplanationResponse, why)
            shown = dict.fromkeys(response.ids + response.engine_ids)
            response.titles = {doc_id: searcher.titles[doc_id] for doc_id in shown if doc_id in searcher.titles}
        return _json(response)

    async def wait_for_revision(self, request: Request) -> None:
        """Wait until the model has learned the judgments that the request asks for; refuse it if that takes long."""
        wanted = request.headers.get(REVISION_HEADER)
        if wanted is None:
            return
        if not (wanted.isascii() and wanted.isdecimal() and len(wanted) <= 18):
            raise DataError(f"{REVISION_HEADER} must be a revision of the judgments, got {wanted[:100]!r}")
        start = time.monotonic()
        while True:
            try:
                self._service.check_learned(int(wanted), model=request.headers.get(MODEL_HEADER))
            except StaleReplicaError:
                if time.monotonic() > start + self._settings.revision_seconds:
                    raise
            else:
                request.scope[_WAITED] = time.monotonic() - start
                return
            await asyncio.sleep(0.01)

    # --- operation ------------------------------------------------------------------------------------------------

    async def models(self, request: Request) -> Response:  # noqa: ARG002
        """Return the models in use."""
        default = self._service.default
        models = {
            name: to_model_status(rollout, default=name == default) for name, rollout in self._service.rollouts.items()
        }
        return _json(ModelsResponse(models, self._searcher is not None))

    async def reload(self, request: Request) -> Response:
        """Load a model's folder again. If it fails its self-test, the current model stays."""
        raw = await self._read_body(request)
        body = bodies.parse(raw, bodies.ReloadBody) if raw else bodies.ReloadBody()
        served = await self._run(lambda: self._service.reload(body.model), None, _RELOAD_SECONDS)
        if served is None:
            raise HttpError(503, "slow-model", "the model is still being loaded: check GET /v1/model")
        return _json(ReloadResponse(body.model or self._service.default, served.version))

    async def judgments(self, request: Request) -> Response:
        """Store judged queries for the model to learn from. They are durable when the response is sent."""
        raw = await self._read_body(request)
        body = await self._parse(raw, lambda: bodies.parse(raw, bodies.JudgmentsBody))
        # No timeout: after one, the caller would not know whether they are stored.
        revision = await self.executor.run(
            lambda: self._service.judge(
                [self._judged_query(query) for query in body.queries], model=body.model, source=body.source
            ),
            None,
        )
        return _json(JudgmentsResponse(len(body.queries)), {REVISION_HEADER: str(revision)})

    async def withdraw(self, request: Request) -> Response:
        """Withdraw the judgments of a query, of a source, or of a query by a source. The model forgets them."""
        body = bodies.parse(await self._read_body(request), bodies.WithdrawBody)
        qid = None if body.qid is None else str(body.qid)
        withdrawn, revision = await self.executor.run(
            lambda: self._service.withdraw(qid=qid, source=body.source, model=body.model), None
        )
        return _json(WithdrawResponse(withdrawn), {REVISION_HEADER: str(revision)})

    async def metrics(self, request: Request) -> Response:  # noqa: ARG002
        """Return metrics for Prometheus."""
        for name, waiting in self._service.waiting.items():
            served = self._service.slots[name].current
            self._metrics.state(name, waiting, None if served is None else served.revision)
        return Response(self._metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def healthz(self, request: Request) -> Response:  # noqa: ARG002
        """Report that the process is alive."""
        return _json(StatusResponse("alive"))

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
        versions = [slot.current.version for slot in self._service.slots.values() if slot.current is not None]
        return _json(ReadyResponse("ready", versions))

    # --- helpers --------------------------------------------------------------------------------------------------

    def _judged_query(self, body: bodies.JudgedBody) -> JudgedQuery:
        """Return a judged query, with the features of the attached engine if it has none."""
        if body.features is not None or body.text is None:
            return bodies.to_judged_query(body)
        ids = [str(each) for each in body.ids]
        grades = dict(zip(ids, body.grades, strict=True)) if len(ids) == len(body.grades) else {}
        if len(grades) < len(body.ids):
            raise DataError(f"query {body.qid!r}: send one grade per id, and every id once")
        vector = bodies.to_vector(body.vector)
        return self._require_engine().judged(str(body.qid), body.text, grades, vector=vector, columns=body.columns)

    @contextmanager
    def _counted(self, request: Request) -> Iterator[None]:
        """Count a ranking for its model until it ends or, as with a body that does not arrive, its deadline passes."""
        name = self._service.name_of(request.headers.get(MODEL_HEADER))
        counted = [name]
        self._rankings[name] += 1

        def end() -> None:
            if counted:
                self._rankings[counted.pop()] -= 1

        timer = asyncio.get_running_loop().call_later(self._expires(request) - time.perf_counter(), end)
        try:
            yield
        finally:
            timer.cancel()
            end()

    async def _rank(
        self, request: Request, candidates: CandidateSet, models: tuple[str, str] | None, expires: float
    ) -> Ranking:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ranking | None] = loop.create_future()
        model = request.headers.get(MODEL_HEADER)

        def settle(ranking: Ranking | None) -> None:
            if not future.done():
                future.set_result(ranking)

        def deliver(ranking: Ranking) -> None:
            loop.call_soon_threadsafe(settle, ranking)

        if models is None:
            self._service.submit(candidates, model, deliver, expires=expires)
        else:
            seed = REQUEST_ID.get() or ""
            self._service.submit_interleaved(candidates, models, seed, deliver, expires=expires)
        timer = loop.call_later(max(0.0, expires - time.perf_counter()), settle, None)
        try:
            ranking = await future
        finally:
            timer.cancel()
        return self._service.late(candidates, model) if ranking is None else ranking

    async def _run(self, call: Callable[[], Any], late: Any, seconds: float) -> Any:
        try:
            return await self.executor.run(call, seconds)
        except TimeoutError:
            return late

    async def _parse(self, raw: bytes, parse: Callable[[], T]) -> T:
        """Parse a body; a large one in another thread, so that other requests do not wait for it."""
        start = time.perf_counter()
        parsed = parse() if len(raw) <= bodies.LARGE_BODY else await self.parser.run(parse, None)
        self._metrics.stage("parse", time.perf_counter() - start)
        return parsed

    def _expires(self, request: Request) -> float:
        """Return the end of the deadline, which starts after the wait for a revision."""
        started: float = request.scope[STARTED]
        waited: float = request.scope.get(_WAITED, 0.0)
        return started + waited + self._settings.deadline

    async def _read_body(self, request: Request) -> bytes:
        limit = self._settings.body_bytes
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > limit:
                        raise HttpError(413, "too-large", f"a body has at most {limit} bytes: send fewer candidates")
                    chunks.append(chunk)
        except TimeoutError:
            raise HttpError(408, "slow-body", "the body took too long to arrive: send it again") from None
        except ClientDisconnect:
            raise HttpError(400, "disconnected", "the client disconnected before the body was complete") from None
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _require_engine(self) -> Searcher:
        if self._searcher is None:
            raise HttpError(409, "no-engine", "no engine is attached: start the service with --engine")
        return self._searcher

    @property
    def _engine_seconds(self) -> float:
        # Two engine calls and a ranking.
        return 2 * self._settings.engine_seconds + self._settings.deadline + 0.1


def _log_result(result: Ranking | QueryWeights) -> None:
    """Add the model and its version, or the reason why it did not rank, to the log line of the request."""
    add_log_fields(model=result.model)
    if result.version is not None:
        add_log_fields(version=result.version)
    if result.fallback is not None:
        add_log_fields(fallback=result.fallback)


def _json(response: msgspec.Struct, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(response), headers=headers, media_type=bodies.JSON)


def check_media_type(request: Request, *, packed: bool) -> None:
    """Raise an `HttpError` unless the body is JSON or, if `packed`, MessagePack. Without a header it is JSON."""
    kind = _media_type(request)
    accepted = (bodies.JSON, bodies.MSGPACK) if packed else (bodies.JSON,)
    if kind not in accepted:
        raise HttpError(415, "media-type", f"the body must be {' or '.join(accepted)}, got {kind[:100]!r}")


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", bodies.JSON).partition(";")[0].strip().lower()
