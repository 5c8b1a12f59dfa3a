"""The HAProxy configuration in deploy/, run by the real HAProxy in front of a replica that can be slow."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import wait_until
from tests.serve.servers import free_port

CONFIG = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"
OWN_BACKEND = """
backend model-b
    balance leastconn
    server replica1 "${KINRANK_REPLICA}"
"""


class Replica(http.server.ThreadingHTTPServer):
    """Answers slowly, and counts how many requests it has at a time."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Slow)
        self.lock = threading.Lock()
        self.in_flight = self.most = 0
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """Ignore health checks, which close connections early."""


class Slow(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        replica = self.server
        assert isinstance(replica, Replica)
        with replica.lock:
            replica.in_flight += 1
            replica.most = max(replica.most, replica.in_flight)
        time.sleep(1.0)
        with replica.lock:
            replica.in_flight -= 1
        self.respond()

    def respond(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def front(replica: int, folder: Path) -> Iterator[int]:
    """Start HAProxy, and return its port."""
    program = shutil.which("haproxy")
    if program is None:
        pytest.fail("HAProxy is not installed: apt-get install haproxy")
    port = free_port()
    env = {**os.environ, "KINRANK_FRONT": f"127.0.0.1:{port}", "KINRANK_REPLICA": f"127.0.0.1:{replica}"}
    (folder / "models.cfg").write_text(OWN_BACKEND)
    with subprocess.Popen([program, "-f", CONFIG, "-f", folder / "models.cfg"], env=env) as process:
        try:
            wait_until(lambda: post(port, "/readyz", method="GET")[0] == 200, 30)
            yield port
        finally:
            process.terminate()


def post(port: int, path: str, model: str | None = None, method: str = "POST") -> tuple[int, str | None, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        headers = {} if model is None else {"X-Kinrank-Model": model}
        connection.request(method, path, b"{}" if method == "POST" else None, headers)
        response = connection.getresponse()
        return response.status, response.headers["Retry-After"], response.read()
    except ConnectionRefusedError:
        return 0, None, b""
    finally:
        connection.close()


def test_proxy_rejects_what_would_wait_and_each_model_has_its_share(tmp_path: Path):
    replica = Replica()
    with front(replica.server_port, tmp_path) as port, ThreadPoolExecutor(44) as clients:
        many = [clients.submit(post, port, "/v1/rank") for _ in range(40)]
        wait_until(lambda: replica.in_flight == 10, 10)
        others = [clients.submit(post, port, path, model) for path, model in [("/v1/rank", "b"), ("/v1/search", None)]]
        unknown = clients.submit(post, port, "/v1/rank", "unknown")
        answers = [future.result() for future in many]
        assert Counter(status for status, _, _ in answers) == {200: 10, 503: 30}
        rejected = next(answer for answer in answers if answer[0] == 503)
        assert rejected[1] == "1"
        assert json.loads(rejected[2])["error"]["code"] == "overloaded"
        assert [future.result()[0] for future in others] == [200, 200]
        assert unknown.result()[0] == 503, "a model without a backend shares that of the default model"
        assert replica.most <= 12
    replica.shutdown()
    replica.server_close()
