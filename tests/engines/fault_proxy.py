"""An HTTP proxy between client and engine that fails on demand: error responses, delays, dropped connections."""

from __future__ import annotations

import select
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.error import HTTPError

from tests.engines.stub import serve
from tests.processes import PATIENCE

DROP_CONNECTION = 0

Fault = int | threading.Event | None
"""A status to respond with, `DROP_CONNECTION`, no fault, or an event to wait for before the request is passed on.

If the client is gone by then, its request is not passed on.
"""

FaultPlan = Callable[[int], Fault]
"""Returns the fault of a request by its number, counted from 0."""


@contextmanager
def faulty_proxy(target: str, plan: FaultPlan, path: str = "search") -> Iterator[str]:
    """Run a proxy to `target` and yield its address. Only requests with this in their path are affected by the plan."""
    requests = 0
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if path in self.path:
                fault = self.next_fault()
                if isinstance(fault, threading.Event):
                    if not fault.wait(PATIENCE) or self.is_left():
                        self.close_connection = True
                        return
                elif fault == DROP_CONNECTION:
                    self.close_connection = True
                    return
                elif fault is not None:
                    self.respond(fault, b'{"error": {"type": "rejected_execution", "reason": "queue is full"}}', {})
                    return
            headers = {name: self.headers[name] for name in ("content-type", "accept") if name in self.headers}
            request = urllib.request.Request(target + self.path, body or None, headers, method=self.command)
            try:
                with urllib.request.urlopen(request) as response:
                    self.respond(response.status, response.read(), dict(response.headers))
            except HTTPError as error:
                self.respond(error.code, error.read(), dict(error.headers))

        def next_fault(self) -> Fault:
            nonlocal requests
            with lock:
                number, requests = requests, requests + 1
            return plan(number)

        def is_left(self) -> bool:
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

        def respond(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            kept = {"content-type": "application/json", "x-elastic-product": "Elasticsearch"}
            kept |= {
                name.lower(): value
                for name, value in headers.items()
                if name.lower().startswith(("x-elastic", "content-type"))
            }
            try:
                self.send_response(status)
                for name, value in {**kept, "content-length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)
            except OSError:  # the client has disconnected
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_any  # noqa: N815

    with serve(Handler) as address:
        yield address
