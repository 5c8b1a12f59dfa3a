"""The application: paths, who may use them, and what happens when something goes wrong."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

import kinrank
from kinrank.errors import KinrankError
from kinrank.serve.http.endpoints import MODEL_HEADER, Endpoints
from kinrank.serve.http.guard import Guard
from kinrank.serve.http.keys import Door
from kinrank.serve.http.logs import JsonLog
from kinrank.serve.http.metrics import Metrics
from kinrank.serve.http.openapi import components, operation
from kinrank.serve.http.problems import Problem, problem_of, response_of
from kinrank.serve.keys import KeyRing
from kinrank.serve.search import Searcher
from kinrank.serve.service import Service

_MODEL = {
    "name": MODEL_HEADER,
    "in": "header",
    "required": False,
    "description": "Which model; the first one where not given.",
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
}
# The page carries its own style and script, and talks to this service only.
_PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def create_app(
    service: Service,
    *,
    metrics: Metrics,
    log: JsonLog,
    keys: KeyRing | None = None,
    searcher: Searcher | None = None,
    drain_seconds: float = 5.0,
) -> Guard:
    """The ASGI application over a service.

    Parameters
    ----------
    service
        What answers; started and closed with the application.
    metrics, log
        What is counted and written; `metrics` should be the service's observer.
    keys
        Who may ask; None leaves queries open and keeps operators out.
    searcher
        A search engine for /v1/search and the page; closed with the application.
    drain_seconds
        After SIGTERM: how long to go on answering while /readyz sends the load balancer elsewhere.
    """
    endpoints = Endpoints(service, Door(keys), metrics, searcher)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(service.start, strict=False)
        _drain_on_sigterm(guard, drain_seconds, log)
        log.write("started", models=list(service.slots), version=kinrank.__version__)
        yield
        await asyncio.to_thread(service.close)
        endpoints.threads.close()
        if searcher is not None:
            searcher.close()
        log.write("ended")
        log.close()

    app = FastAPI(title="kinrank", version=kinrank.__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    _add_routes(app, endpoints)
    _add_page(app)
    _add_problems(app)
    paths = frozenset(route.path for route in app.routes if hasattr(route, "path"))
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    guard = Guard(app, endpoints=paths, in_flight=service.settings.in_flight, metrics=metrics, log=log)
    endpoints.draining = lambda: guard.draining
    return guard


def _add_routes(app: FastAPI, endpoints: Endpoints) -> None:
    named = {"parameters": [_MODEL]}
    post: dict[str, Any] = {"methods": ["POST"], "response_class": Response}
    get: dict[str, Any] = {"methods": ["GET"], "response_class": Response}
    app.add_api_route(
        "/v1/rank", endpoints.rank, openapi_extra={**operation("RankBody", "Ranking", packed=True), **named}, **post
    )
    app.add_api_route(
        "/v1/weights", endpoints.weights, openapi_extra={**operation("WeightsBody", None), **named}, **post
    )
    app.add_api_route("/v1/search", endpoints.search, openapi_extra={**operation("SearchBody", None), **named}, **post)
    app.add_api_route("/v1/judgments", endpoints.judgments, openapi_extra=operation("JudgmentsBody", None), **post)
    app.add_api_route("/v1/model/reload", endpoints.reload, openapi_extra=operation("ReloadBody", None), **post)
    app.add_api_route("/v1/model", endpoints.model, openapi_extra=operation(None, None), **get)
    for path, endpoint in (("/healthz", endpoints.healthz), ("/readyz", endpoints.readyz)):
        app.add_api_route(path, endpoint, openapi_extra=operation(None, None, open_to_all=True), **get)
    app.add_api_route("/metrics", endpoints.metrics, include_in_schema=False, **get)


def _add_page(app: FastAPI) -> None:
    page = files("kinrank.serve.http").joinpath("page.html").read_bytes()

    async def show(_: Request) -> Response:
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": _PAGE_POLICY})

    app.add_route("/", show, methods=["GET"], include_in_schema=False)


def _add_problems(app: FastAPI) -> None:
    async def told(_: Request, error: Exception) -> Response:
        if isinstance(error, KinrankError):
            error = problem_of(error)
        if isinstance(error, HTTPException):
            error = Problem(error.status_code, "http", str(error.detail))
        if not isinstance(error, Problem):
            error = Problem(500, "internal", "the service failed; its log says how")
        return response_of(error)

    for kind in (KinrankError, Problem, HTTPException, Exception):
        app.add_exception_handler(kind, told)


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, routes=app.routes, description=kinrank.__doc__)
        made["components"] = {
            "schemas": components(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        }
        for path in made["paths"].values():
            for method in path.values():
                method["responses"].pop("422", None)  # FastAPI's own form of error, which we do not use
        app.openapi_schema = made
    return app.openapi_schema


def _drain_on_sigterm(guard: Guard, seconds: float, log: JsonLog) -> None:
    """On SIGTERM say so at /readyz and close connections politely; only then let the server end."""
    end = signal.getsignal(signal.SIGTERM)
    if not callable(end):  # no server of ours: a test client
        return
    loop = asyncio.get_running_loop()

    def drain(number: int, frame: Any) -> None:
        if guard.draining:  # asked twice: now
            end(number, frame)
            return
        guard.draining = True
        log.write("draining", seconds=seconds)
        loop.call_soon_threadsafe(loop.call_later, seconds, end, number, None)

    signal.signal(signal.SIGTERM, drain)
