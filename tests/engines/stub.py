"""A stub server, for responses that a real engine does not give on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a server with this handler and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def stub_server(respond: Callable[[str], Any], received: list[Message] | None = None) -> Iterator[str]:
    """Run a server that responds with `respond(path)`, and append request headers to `received`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_any(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            if received is not None:
                received.append(self.headers)
            body = json.dumps(respond(self.path)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("x-elastic-product", "Elasticsearch")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

        do_GET = do_POST = do_any  # noqa: N815

    with serve(Handler) as address:
        yield address
