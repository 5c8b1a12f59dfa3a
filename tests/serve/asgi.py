"""A client that calls the application in this process, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]


class Client:
    """Sends requests to an ASGI application, all on one event loop."""

    def __init__(self, app: Any, key: str | None = None) -> None:
        self.app = app
        self.key = key
        self.runner = asyncio.Runner()

    def get(self, path: str, **headers: str) -> Response:
        return self.send("GET", path, b"", **headers)

    def post(self, path: str, body: Any, **headers: str) -> Response:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", path, raw, **headers)

    def send(self, method: str, path: str, raw: bytes, **headers: str) -> Response:
        return self.runner.run(self.request(method, path, raw, **headers))

    def gather(self, *requests: Any) -> list[Response]:
        async def run_all() -> list[Response]:
            return await asyncio.gather(*requests)

        return self.runner.run(run_all())

    async def request(self, method: str, path: str, raw: bytes, **headers: str) -> Response:
        messages = [{"type": "http.request", "body": raw, "more_body": False}]
        return await self.request_messages(method, path, messages, **headers)

    async def request_messages(
        self, method: str, path: str, messages: Iterable[dict[str, Any]], **headers: str
    ) -> Response:
        """Send a request whose body arrives in these ASGI messages, and then nothing more."""
        named = {"host": "test"} | {name.replace("_", "-"): value for name, value in headers.items()}
        if self.key is not None:
            named.setdefault("authorization", f"Bearer {self.key}")
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "headers": [(name.lower().encode(), value.encode()) for name, value in named.items() if value],
        }
        waiting = iter(messages)
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            for message in waiting:
                return message
            return await asyncio.Future()  # never

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        start = sent[0]
        received = {name.decode(): value.decode() for name, value in start["headers"]}
        return Response(start["status"], received, b"".join(message.get("body", b"") for message in sent[1:]))
