"""What each path does; `app` says where they are and who may use them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from fastapi import Request, Response

from kinrank.errors import DataError
from kinrank.serve.http import bodies
from kinrank.serve.http.keys import Door
from kinrank.serve.http.metrics import Metrics
from kinrank.serve.http.problems import Problem
from kinrank.serve.http.threads import SideThreads
from kinrank.serve.keys import Role
from kinrank.serve.messages import Candidates, Fallback, Ranking, Weights
from kinrank.serve.search import Searcher
from kinrank.serve.service import Service

MODEL_HEADER = "x-kinrank-model"
_SLOW_SECONDS = 60.0  # for what an operator waits for: loading a model


class Endpoints:
    """The service as functions from request to response.

    Parameters
    ----------
    service
        What answers.
    door
        Who may ask what.
    metrics
        What /metrics shows.
    searcher
        An engine in front, where one is attached.
    """

    def __init__(self, service: Service, door: Door, metrics: Metrics, searcher: Searcher | None) -> None:
        self._service = service
        self._settings = service.settings
        self._door = door
        self._metrics = metrics
        self._searcher = searcher
        self.threads = SideThreads()
        self._rankings = 0  # under way
        service.coming = lambda: self._rankings
        self.draining: Callable[[], bool] = lambda: False

    # --- for queries ----------------------------------------------------------------------------------------------

    async def rank(self, request: Request) -> Response:
        """Rank candidates by their features. Whatever goes wrong, they come back in the order they came in."""
        self._door.let_in(request, Role.QUERY)
        packed = _media_type(request) == bodies.MSGPACK
        self._rankings += 1
        try:
            raw = await self._body(request)
            start = time.perf_counter()
            candidates, teams = bodies.parse_rank(raw, packed=packed)
            self._metrics.stage("parse", time.perf_counter() - start)
            ranking = await self._ranking(request, candidates, teams, start + self._settings.deadline)
        finally:
            self._rankings -= 1
        self._service.count(ranking)
        told = request.scope["kinrank"]
        told["model"] = ranking.model
        if ranking.fallback is not None:
            told["fallback"] = ranking.fallback
        if request.headers.get("accept") == bodies.MSGPACK:
            return Response(msgspec.msgpack.encode(ranking), media_type=bodies.MSGPACK)
        return _json(ranking)

    async def weights(self, request: Request) -> Response:
        """The weights of the query's own model, and the engine's request that ranks with them: body and params."""
        self._door.let_in(request, Role.QUERY)
        raw = await self._body(request)
        expires = time.perf_counter() + self._settings.deadline
        body = bodies.parse(raw, bodies.WeightsBody)
        model = request.headers.get(MODEL_HEADER)
        late = Weights(model=model, fallback=Fallback.LATE, detail="not learned in time")
        if body.ids is not None and body.features is not None:
            candidates = bodies.candidates_of(body, bodies.matrix(body.features))
            found = await self._in_time(
                lambda: (self._service.weights(candidates, model=model), None),
                (late, None),
                max(0.0, expires - time.perf_counter()),
            )
        else:
            searcher = self._engine()
            if body.query is None:
                raise DataError("give ids and features, or the text of a query")
            text, vector = body.query, _vector(body.vector)
            found = await self._in_time(
                lambda: searcher.weights(text, size=body.size, vector=vector, columns=body.columns, model=model),
                (late, None),
                self._engine_seconds,
            )
        weights, asked = found
        self._service.count(weights)
        return _json({**msgspec.to_builtins(weights), **(asked or {"request": None, "params": None})})

    async def search(self, request: Request) -> Response:
        """Candidates of the engine, ranked."""
        self._door.let_in(request, Role.QUERY)
        body = bodies.parse(await self._body(request), bodies.SearchBody)
        searcher = self._engine()
        model = request.headers.get(MODEL_HEADER)
        try:
            found = await self.threads.run(
                lambda: searcher.search(
                    body.query,
                    window=max(body.window, body.size),
                    vector=_vector(body.vector),
                    columns=body.columns,
                    model=model,
                    explain=body.explain,
                ),
                self._engine_seconds,
            )
        except TimeoutError:
            raise Problem(503, "engine-down", "the engine does not answer in time: ask again") from None
        answer = msgspec.to_builtins(found.ranking)
        answer["ids"] = answer["ids"][: body.size]
        answer["scores"] = answer["scores"] and answer["scores"][: body.size]
        answer["engine_ids"] = found.engine_ids[: body.size]
        if body.explain:
            answer["explanation"] = found.explanation
            answer["titles"] = {
                document: searcher.titles[document]
                for document in dict.fromkeys(answer["ids"] + answer["engine_ids"])
                if document in searcher.titles
            }
        return _json(answer)

    # --- for operators --------------------------------------------------------------------------------------------

    async def model(self, request: Request) -> Response:
        """The models in use."""
        self._door.let_in(request, Role.QUERY, Role.ADMIN)
        return _json({"models": self._service.describe(), "engine": self._searcher is not None})

    async def reload(self, request: Request) -> Response:
        """Load a model's folder again; where it fails its self-test, the model in use stays."""
        self._door.let_in(request, Role.ADMIN)
        raw = await self._body(request)
        body = bodies.parse(raw, bodies.ReloadBody) if raw else bodies.ReloadBody()
        served = await self._in_time(lambda: self._service.reload(body.model), None, _SLOW_SECONDS)
        if served is None:
            raise Problem(503, "slow-model", "the model is still being loaded: see GET /v1/model")
        return _json({"model": body.model or self._service.default, "version": served.version})

    async def judgments(self, request: Request) -> Response:
        """Keep judged queries; when the answer comes they are on disk, and the model learns from them."""
        self._door.let_in(request, Role.ADMIN)
        body = bodies.parse(await self._body(request), bodies.JudgmentsBody)
        judged = [bodies.judged_of(query) for query in body.queries]
        # The disk decides how long it takes: an answer given up on would leave the caller without knowing.
        await self.threads.run(lambda: self._service.judge(judged, model=body.model), None)
        return _json({"kept": len(judged)})

    async def metrics(self, request: Request) -> Response:
        """Counts and times for Prometheus."""
        self._door.let_in(request, Role.QUERY, Role.ADMIN)
        return Response(self._metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def healthz(self, request: Request) -> Response:  # noqa: ARG002
        """The process answers."""
        return _json({"status": "alive"})

    async def readyz(self, request: Request) -> Response:  # noqa: ARG002
        """Every model is loaded, and the process is not on its way out."""
        if self.draining():
            raise Problem(503, "draining", "this process ends soon: ask another")
        if not self._service.ready:
            raise Problem(503, "no-model", "a model is not loaded: answers are in the engine's order")
        return _json({"status": "ready"})

    # --- how ------------------------------------------------------------------------------------------------------

    async def _ranking(
        self, request: Request, candidates: Candidates, teams: tuple[str, str] | None, expires: float
    ) -> Ranking:
        loop = asyncio.get_running_loop()
        waited: asyncio.Future[Ranking | None] = loop.create_future()
        model = request.headers.get(MODEL_HEADER)

        def settle(ranking: Ranking | None) -> None:
            if not waited.done():
                waited.set_result(ranking)

        def deliver(ranking: Ranking) -> None:
            loop.call_soon_threadsafe(settle, ranking)

        if teams is None:
            self._service.submit(candidates, model, deliver, expires=expires)
        else:
            seed = request.scope["kinrank"]["request_id"]
            self._service.submit_interleaved(candidates, teams, seed, deliver, expires=expires)
        timer = loop.call_later(max(0.0, expires - time.perf_counter()), settle, None)
        try:
            ranking = await waited
        finally:
            timer.cancel()
        return self._service.late(candidates, model) if ranking is None else ranking

    async def _in_time(self, call: Callable[[], Any], late: Any, seconds: float) -> Any:
        try:
            return await self.threads.run(call, seconds)
        except TimeoutError:
            return late

    async def _body(self, request: Request) -> bytes:
        """All of the body, no larger and no slower than it may be."""
        most = self._settings.body_bytes
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > most:
                        raise Problem(413, "too-large", f"a body has at most {most} bytes: send fewer candidates")
                    chunks.append(chunk)
        except TimeoutError:
            raise Problem(408, "slow-body", "the body took too long to arrive: send it again") from None
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _engine(self) -> Searcher:
        if self._searcher is None:
            raise Problem(409, "no-engine", "no engine is attached: start the service with --engine")
        return self._searcher

    @property
    def _engine_seconds(self) -> float:
        # Two calls of the engine and a ranking.
        return 2 * self._settings.engine_seconds + self._settings.deadline + 0.1


def _json(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), media_type=bodies.JSON)


def _vector(numbers: list[float] | None) -> Any:
    return None if numbers is None else np.array(numbers, dtype=np.float32)


def _media_type(request: Request) -> str:
    """The type of the body; one that is neither JSON nor MessagePack is turned away."""
    kind = request.headers.get("content-type", bodies.JSON).partition(";")[0].strip().lower()
    if kind not in (bodies.JSON, bodies.MSGPACK):
        raise Problem(415, "media-type", f"a body is {bodies.JSON} or {bodies.MSGPACK}, got {kind[:100]!r}")
    return kind
