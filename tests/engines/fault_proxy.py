"""An HTTP server between client and engine that does harm on demand: refuses, dawdles, hangs up."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.error import HTTPError

from tests.engines.stub import listening

Harm = Callable[[int, str], int | float | None]
"""From the number of a search, counted from 0, and its path: a status to refuse with, seconds to dawdle, or None."""


@contextmanager
def harmed(target: str, harm: Harm) -> Iterator[str]:
    """The address of a proxy to `target`; searches are harmed, the rest is passed on."""
    count = [0]
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if "search" in self.path:
                with lock:
                    number, count[0] = count[0], count[0] + 1
                done = harm(number, self.path)
                if isinstance(done, float):
                    time.sleep(done)
                elif done == 0:
                    self.close_connection = True  # hang up
                    return
                elif done is not None:
                    self.answer(done, b'{"error": {"type": "rejected_execution", "reason": "queue is full"}}', {})
                    return
            headers = {name: self.headers[name] for name in ("content-type", "accept") if name in self.headers}
            request = urllib.request.Request(target + self.path, body or None, headers, method=self.command)
            try:
                with urllib.request.urlopen(request) as response:
                    self.answer(response.status, response.read(), dict(response.headers))
            except HTTPError as error:
                self.answer(error.code, error.read(), dict(error.headers))

        def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            kept = {
                name: value for name, value in headers.items() if name.lower().startswith(("x-elastic", "content-type"))
            }
            kept = {"content-type": "application/json", "x-elastic-product": "Elasticsearch"} | {
                name.lower(): value for name, value in kept.items()
            }
            try:
                self.send_response(status)
                for name, value in {**kept, "content-length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)
            except OSError:  # the client has hung up, as it may
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_any  # noqa: N815

    with listening(Handler) as address:
        yield address
