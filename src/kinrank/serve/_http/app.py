"""The ASGI application: paths, roles, error handling, startup and shutdown."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from hashlib import sha256
from importlib.resources import files
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import kinrank
from kinrank.serve._http import bodies, responses
from kinrank.serve._http.bodies import EventsBody
from kinrank.serve._http.endpoints import HOLD, KEY, Endpoints, check_media_type
from kinrank.serve._http.logs import add_log_fields, log_event
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._http.middleware import RequestMiddleware, Slots
from kinrank.serve._http.openapi import Operation, openapi_document
from kinrank.serve._http.responses import STATUS, HttpError, error_response, to_http_error
from kinrank.serve._keys import Key, KeyRing, Role
from kinrank.serve._search import Searcher
from kinrank.serve.messages import QueryExplanation, QueryWeights, Ranking
from kinrank.serve.service import Service

RERANK = ("/v1/rerank", "/v2/rerank")
"""The first is documented; Cohere's `ClientV2`, and with it LangChain, sends the same body to the other."""
_WITHOUT_MODELS = frozenset({*RERANK, "/v1/events", "/healthz", "/readyz", "/metrics"})
EXIT_SECONDS = 20.0
"""Seconds after the drain until the process ends, whatever it does."""


def create_app(
    service: Service,
    *,
    metrics: Metrics,
    keys: KeyRing | None = None,
    searcher: Searcher | None = None,
    local_only: bool = False,
    drain_seconds: float = 5.0,
    on_load: Callable[[], None] = lambda: None,
    on_shutdown: Callable[[], None] = lambda: None,
) -> RequestMiddleware:
    """Create the ASGI application of a service.

    Parameters
    ----------
    service
        The service; started and closed with the application.
    metrics
        Metrics to serve; should be the service's observer.
    keys
        Accepted API keys. None opens query endpoints to everyone and closes admin endpoints.
    searcher
        Search engine for /v1/search; closed with the application.
    local_only
        Refuse requests whose ``Host`` is not this machine. Without keys, a page in a browser could otherwise send them
        under a name that it lets point here.
    drain_seconds
        Seconds to keep serving after SIGTERM, while /readyz tells the load balancer to use another replica.
    on_load
        Called when the models are loaded or refused.
    on_shutdown
        Called last.
    """
    endpoints = Endpoints(service, metrics, searcher)
    slots = Slots(service.settings.in_flight, service.settings.bytes_in_flight)
    operations = _operations(endpoints)

    def load() -> None:
        service.start(strict=False)
        on_load()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        # Not awaited, so that /healthz responds and /readyz says why this process is not ready.
        threading.Thread(target=load, name="load", daemon=True).start()
        _drain_on_sigterm(app, drain_seconds)
        log_event("started", models=list(service.slots), version=kinrank.__version__)
        yield
        await asyncio.to_thread(service.close)
        endpoints.close()
        if searcher is not None:
            searcher.close()
        log_event("stopped")
        on_shutdown()

    async def handle_error(_: Request, error: Exception) -> Response:
        return error_response(to_http_error(error))

    # Starlette raises what reaches the handler of Exception again; the middleware logs it.
    handled = [*STATUS, HttpError, HTTPException, Exception]
    routes = [
        Route(operation.path, _authorized(operation, keys, endpoints, slots), methods=[operation.method])
        for operation in operations
    ]
    app = RequestMiddleware(
        Starlette(routes=routes, exception_handlers=dict.fromkeys(handled, handle_error), lifespan=lifespan),
        endpoints=frozenset(operation.path for operation in operations),
        slots=slots,
        is_overloaded=endpoints.is_overloaded,
        metrics=metrics,
        local_only=local_only,
    )
    endpoints.is_draining = lambda: app.draining
    return app


def _operations(endpoints: Endpoints) -> list[Operation]:
    query, admin = Role.QUERY, Role.ADMIN
    operations = [
        Operation("POST", "/v1/rank", endpoints.rank, query, bodies.RankBody, Ranking),
        Operation("POST", "/v1/weights", endpoints.weights, query, bodies.WeightsBody, QueryWeights),
        Operation("POST", "/v1/explain", endpoints.explain, query, bodies.ExplainBody, QueryExplanation),
        Operation("POST", "/v1/search", endpoints.search, query, bodies.SearchBody, responses.SearchResponse),
        Operation(
            "POST", "/v1/judgments", endpoints.judgments, admin, bodies.JudgmentsBody, responses.JudgmentsResponse
        ),
        Operation(
            "POST", "/v1/judgments/withdraw", endpoints.withdraw, admin, bodies.WithdrawBody, responses.WithdrawResponse
        ),
        Operation("POST", RERANK[0], endpoints.rerank.rerank, query, bodies.RerankBody, responses.RerankResponse),
        Operation("POST", RERANK[1], endpoints.rerank.rerank, query, bodies.RerankBody),
        Operation("POST", "/v1/events", endpoints.feedback.events, Role.EVENTS, EventsBody, responses.EventsResponse),
        Operation("POST", "/v1/model/reload", endpoints.reload, admin, response=responses.ReloadResponse),
        Operation("GET", "/v1/model", endpoints.models, query, response=responses.ModelsResponse),
        Operation("GET", "/healthz", endpoints.healthz, response=responses.StatusResponse),
        Operation("GET", "/readyz", endpoints.readyz, response=responses.ReadyResponse),
        Operation("GET", "/metrics", endpoints.metrics, query),
    ]
    if not endpoints.has_models:
        operations = [operation for operation in operations if operation.path in _WITHOUT_MODELS]
    document = msgspec.json.encode(openapi_document(operations))
    page = _assemble()
    policy = {"Content-Security-Policy": _page_policy(page)}

    async def openapi(_: Request) -> Response:
        return Response(document, media_type=bodies.JSON)

    async def docs(_: Request) -> Response:
        return Response(page, media_type="text/html", headers=policy)

    unlisted = {"/openapi.json": openapi, "/docs": docs}
    return [*operations, *(Operation("GET", path, handler) for path, handler in unlisted.items())]


def _assemble() -> str:
    """Return the page of the API with its style and its script inside, so that the policy can permit exactly these."""
    folder = files("kinrank.serve._http") / "pages"
    page, style, script = (folder.joinpath(f"api.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    return page.replace("/* api.css */", style).replace("/* api.js */", script)


def _page_policy(page: str) -> str:
    """Return a policy that permits the style and the script of the page, and connections to this service only."""
    style, script = (
        b64encode(sha256(page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0].encode()).digest()).decode()
        for tag in ("style", "script")
    )
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _authorized(
    operation: Operation, keys: KeyRing | None, endpoints: Endpoints, slots: Slots
) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        if operation.role is None:
            return await operation.handler(request)
        key = _authorize(keys, request, operation.role, endpoints.open_roles)
        if operation.body is not None:
            check_media_type(request, packed=operation.body is bodies.RankBody)
        request.scope[KEY] = key
        with slots.hold(None if key is None else key.name) as request.scope[HOLD]:
            if operation.ranks:
                await endpoints.reader.wait_for_revision(request)
            return await operation.handler(request)

    return handle


def _authorize(keys: KeyRing | None, request: Request, needed: Role, open_roles: Collection[Role]) -> Key | None:
    """Return the key of a request; None without keys. Raise an `HttpError` if it lacks a role."""
    if keys is None:
        if needed not in open_roles:
            raise HttpError(403, "no-keys", "this needs an admin key, but the service was started without keys")
        return None
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise HttpError(401, "no-key", "a key is required: send Authorization: Bearer KEY")
    key = keys.find(secret.strip())
    if key is None:
        raise HttpError(401, "unknown-key", "the key is unknown: send one created with kinrank admin key")
    add_log_fields(key=key.name)
    if not key.role.permits(needed):
        raise HttpError(403, "wrong-role", f"this needs a key with role {needed}, got {key.role}")
    return key


def _drain_on_sigterm(app: RequestMiddleware, seconds: float) -> None:
    """On SIGTERM, report not ready and close idle connections before the server exits."""
    exit_server = signal.getsignal(signal.SIGTERM)
    if not callable(exit_server):  # not run by a server
        return
    loop = asyncio.get_running_loop()

    def drain(number: int, frame: Any) -> None:
        if app.draining:  # second SIGTERM: exit now
            exit_server(number, frame)
            return
        app.draining = True
        log_event("draining", seconds=seconds)
        # A call that hangs must not keep the process from exiting.
        exit_late = threading.Timer(seconds + EXIT_SECONDS, os._exit, (1,))
        exit_late.daemon = True
        exit_late.start()
        loop.call_soon_threadsafe(loop.call_later, seconds, exit_server, number, None)

    signal.signal(signal.SIGTERM, drain)
