"""HAProxy configurations, run by the real HAProxy: that of deploy/, and that of docs/versions.md."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import PATIENCE, wait_until
from tests.serve.servers import free_port

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "deploy" / "haproxy.cfg"
OWN_BACKEND = """
backend model-b
    balance leastconn
    server replica1 "${KINRANK_REPLICA}"
"""


class Replica(http.server.ThreadingHTTPServer):
    """Holds requests until it is released, and counts how many requests it has at a time."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: bytes = b"{}") -> None:
        super().__init__(("127.0.0.1", 0), Slow)
        self.answer = answer
        self.lock = threading.Lock()
        self.in_flight = self.most = 0
        self.released = threading.Event()
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
        assert replica.released.wait(PATIENCE)
        with replica.lock:
            replica.in_flight -= 1
        self.respond()

    def respond(self) -> None:
        answer = self.server.answer  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def proxy(*configs: Path, **addresses: int) -> Iterator[int]:
    """Check configurations, start HAProxy with them in front of replicas on some ports, and return its own port."""
    program = shutil.which("haproxy")
    if program is None:
        pytest.fail("HAProxy is not installed: apt-get install haproxy")
    port = free_port()
    replicas = {name: f"127.0.0.1:{number}" for name, number in addresses.items()}
    env = {**os.environ, "KINRANK_FRONT": f"127.0.0.1:{port}", **replicas}
    command = [program, *(part for config in configs for part in ("-f", str(config)))]
    subprocess.run([*command, "-c"], env=env, check=True)
    with subprocess.Popen(command, env=env) as process:
        try:
            wait_until(lambda: post(port, "/readyz", method="GET")[0] == 200)
            yield port
        finally:
            process.terminate()


@contextmanager
def front(replica: int, folder: Path) -> Iterator[int]:
    """Start HAProxy with the configuration of deploy/, and return its port."""
    (folder / "models.cfg").write_text(OWN_BACKEND)
    with proxy(CONFIG, folder / "models.cfg", KINRANK_REPLICA=replica) as port:
        yield port


def post(
    port: int, path: str, model: str | None = None, method: str = "POST", session: str | None = None
) -> tuple[int, str | None, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        named = {"X-Kinrank-Model": model, "X-Session": session}
        headers = {name: value for name, value in named.items() if value is not None}
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
        wait_until(lambda: sum(future.done() for future in many) == 30)
        assert replica.in_flight == 10
        others = [clients.submit(post, port, path, model) for path, model in [("/v1/rank", "b"), ("/v1/search", None)]]
        unknown = clients.submit(post, port, "/v1/rank", "unknown")
        assert unknown.result()[0] == 503, "a model without a backend shares that of the default model"
        wait_until(lambda: replica.in_flight == 12)
        replica.released.set()
        answers = [future.result() for future in many]
        assert Counter(status for status, _, _ in answers) == {200: 10, 503: 30}
        rejected = next(answer for answer in answers if answer[0] == 503)
        assert rejected[1] == "1"
        assert json.loads(rejected[2])["error"]["code"] == "overloaded"
        assert [future.result()[0] for future in others] == [200, 200]
        assert replica.most == 12
    replica.shutdown()
    replica.server_close()


def test_two_deployments_divide_the_sessions_as_the_page_shows(tmp_path: Path):
    page = (ROOT / "docs" / "versions.md").read_text()
    [block] = re.findall(r"```haproxy\n(.*?)```", page, re.DOTALL)
    (tmp_path / "canary.cfg").write_text(block)
    current, canary = Replica(b"current"), Replica(b"canary")
    ports = {"KINRANK_CURRENT": current.server_port, "KINRANK_CANARY": canary.server_port}
    with proxy(tmp_path / "canary.cfg", **ports) as port:

        def answers() -> list[bytes]:
            return [post(port, "/v1/model", method="GET", session=f"s{number}")[2] for number in range(200)]

        wait_until(lambda: b"canary" in answers())
        first = answers()
        assert set(first) == {b"current", b"canary"}
        assert 2 <= first.count(b"canary") <= 25  # 10 of 200 expected
        assert answers() == first, "a session meets one model"
        assert {post(port, "/v1/model", method="GET")[2] for _ in range(20)} == {b"current"}
        canary.shutdown()
        canary.server_close()
        wait_until(lambda: set(answers()) == {b"current"})
    current.shutdown()
    current.server_close()
