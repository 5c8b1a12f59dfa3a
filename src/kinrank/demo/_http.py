"""The demo over HTTP, for the browser of one person on this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from kinrank.registry import import_extra

import_extra("starlette", "demo")

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kinrank.demo._demo import Demo
from kinrank.demo._faq import Faq
from kinrank.errors import DataError

HOSTS = ["127.0.0.1", "localhost"]
_POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:"
_LARGEST_BODY = 4096


def create_app(demo: Demo | Faq) -> Starlette:
    """Return the ASGI application of a demo."""
    name = "demo" if isinstance(demo, Demo) else "faq"
    pages = {
        "/": (f"{name}.html", "text/html"),
        "/demo.css": ("demo.css", "text/css"),
        "/common.js": ("common.js", "text/javascript"),
        f"/{name}.js": (f"{name}.js", "text/javascript"),
    }

    async def search(request: Request) -> dict[str, Any]:
        return await run_in_threadpool(demo.search, request.query_params.get("q", ""))

    async def choose(request: Request) -> dict[str, Any]:
        body = await _body(request)
        return await run_in_threadpool(demo.choose, str(body.get("query", "")), str(body.get("document", "")))

    async def forget(request: Request) -> dict[str, Any]:
        await _body(request)
        demo.forget()
        return {}

    async def examples(request: Request) -> dict[str, Any]:  # noqa: ARG001
        return demo.examples

    routes = [Route(path, _page(name, kind)) for path, (name, kind) in pages.items()]
    routes += [Route("/search", _json(search)), Route("/examples", _json(examples))]
    routes += [Route("/choose", _json(choose), methods=["POST"]), Route("/forget", _json(forget), methods=["POST"])]
    # Other sites must not reach the demo under a name that resolves to this machine.
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)])


def _page(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    content = (files("kinrank.demo") / "pages" / name).read_text(encoding="utf-8")

    async def page(request: Request) -> Response:  # noqa: ARG001
        return Response(content, media_type=kind, headers={"Content-Security-Policy": _POLICY})

    return page


def _json(answer: Callable[[Request], Awaitable[dict[str, Any]]]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return JSONResponse(await answer(request))
        except DataError as error:
            return JSONResponse({"error": str(error)}, status_code=422)

    return endpoint


async def _body(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type") != "application/json":
        raise DataError("send JSON with the content type application/json")
    if int(request.headers.get("content-length", _LARGEST_BODY + 1)) > _LARGEST_BODY:
        raise DataError(f"the body is too large: at most {_LARGEST_BODY} bytes")
    try:
        body = await request.json()
    except ValueError:
        raise DataError("the body is not JSON") from None
    if not isinstance(body, dict):
        raise DataError("the body is not a JSON object")
    return body
