"""The application called in this process, without a socket."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
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
    """Sends requests to an ASGI application, each on the same event loop."""

    def __init__(self, app: Any, key: str | None = None) -> None:
        self.app = app
        self.key = key
        self.runner = asyncio.Runner()

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, b"", **headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", path, raw, **headers)

    def send(self, method: str, path: str, raw: bytes, **headers: str) -> Answer:
        return self.runner.run(self.ask(method, path, raw, **headers))

    def together(self, *requests: Any) -> list[Answer]:
        async def all_of_them() -> list[Answer]:
            return await asyncio.gather(*requests)

        return self.runner.run(all_of_them())

    async def ask(self, method: str, path: str, raw: bytes, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.key is not None:
            named.setdefault("authorization", f"Bearer {self.key}")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        }
        parts: list[dict[str, Any]] = []
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.sleep(3600)
            sent = True
            return {"type": "http.request", "body": raw, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            parts.append(message)

        await self.app(scope, receive, send)
        started = parts[0]
        answered = {name.decode(): value.decode() for name, value in started["headers"]}
        return Answer(started["status"], answered, b"".join(part.get("body", b"") for part in parts[1:]))
