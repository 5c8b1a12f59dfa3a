"""Real servers in separate processes, and clients that put load on them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.processes import PATIENCE

UP = json.dumps({"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]]}).encode()
RANKED = ["b", "c", "a"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """``kinrank serve`` in a separate process."""

    def __init__(self, log: Path, *args: str, listener: socket.socket | None = None, **popen: Any) -> None:
        self.port = free_port() if listener is None else int(listener.getsockname()[1])
        self.log = log
        self.peers: list[Server] = []  # that share the socket
        if listener is not None:
            args = (*args, "--fd", str(listener.fileno()))
            popen["pass_fds"] = [listener.fileno()]
        code = "from kinrank.cli import main; main()"
        command = [sys.executable, "-c", code, "serve", *args, "--port", str(self.port)]
        with log.open("a") as stream:
            self.process = subprocess.Popen(command, stdout=stream, stderr=stream, **popen)
        try:
            self.wait_until(lambda: self.request("GET", "/readyz")[0] == 200)
        except BaseException:
            self.stop()
            raise

    def wait_until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if condition():
                    return
            except OSError:
                pass
            assert self.process.poll() is None, f"the server has exited:\n{self.log.read_text()[-3000:]}"
            assert time.monotonic() < end, f"the condition did not become true:\n{self.log.read_text()[-3000:]}"
            time.sleep(0.05)

    def request(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        """Send one request on a new connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if raw is not None else {}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        try:
            connection.request(method, path, raw, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    @property
    def workers(self) -> list[int]:
        """The ids of the processes that share the socket."""
        return sorted(each.process.pid for each in (self, *self.peers) if each.process.poll() is None)

    def model_events(self) -> dict[int, dict[str, Any]]:
        """Return the last logged model event of every worker."""
        lines = self.log.read_text().splitlines()
        events = [json.loads(line) for line in lines if '"event":"model"' in line]
        return {event["pid"]: event for event in events if event["pid"] in self.workers}

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextmanager
def serving(log: Path, *args: str, **popen: Any) -> Iterator[Server]:
    server = Server(log, *args, **popen)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


class Load:
    """Clients that send requests without pause. Like a load balancer, they retry once on a broken connection.

    Parameters
    ----------
    port
        Returns the port of the server to use, before every request.
    check
        Whether the responses must be those for `UP`.
    """

    def __init__(
        self,
        port: Callable[[], int],
        *,
        path: str = "/v1/rank",
        body: bytes = UP,
        key: str | None = None,
        check: bool = True,
    ) -> None:
        self._port = port
        self._path = path
        self._body = body
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._check = check
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.statuses: Counter[int] = Counter()
        self.fallbacks: Counter[str | None] = Counter()
        self.wrong: list[Any] = []
        self.lost: list[str] = []
        self.retries = 0
        self._threads = [threading.Thread(target=self._run) for _ in range(4)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    @property
    def answered(self) -> int:
        return sum(self.statuses.values())

    def wait_for(self, count: int) -> None:
        """Wait until this many further requests have a response."""
        target, end = self.answered + count, time.monotonic() + PATIENCE
        while self.answered < target:
            assert time.monotonic() < end, (self.statuses, self.lost)
            time.sleep(0.02)

    def _run(self) -> None:
        connections: dict[int, http.client.HTTPConnection] = {}
        while not self._stop.is_set():
            for attempt in (1, 2):
                port = self._port()
                connection = connections.setdefault(
                    port, http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
                )
                try:
                    connection.request("POST", self._path, self._body, self._headers)
                    response = connection.getresponse()
                    self._record(response.status, json.loads(response.read()))
                    break
                except (OSError, http.client.HTTPException) as error:
                    connection.close()
                    with self._lock:
                        self.retries += 1
                        if attempt == 2:
                            self.lost.append(repr(error))
        for connection in connections.values():
            connection.close()

    def _record(self, status: int, body: Any) -> None:
        with self._lock:
            self.statuses[status] += 1
            if status == 200 and self._check:
                self.fallbacks[body["fallback"]] += 1
                if sorted(body["ids"]) != sorted(RANKED) or (body["fallback"] is None and body["ids"] != RANKED):
                    self.wrong.append(body)


def one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
