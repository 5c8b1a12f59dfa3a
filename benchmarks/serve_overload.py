"""Rankings in time at 2 and 5 times the load of saturation; the aim is 0.8 of the throughput of saturation.

The model is KinRanker, as in ``serve_load``; the request has 100 candidates with 46 features, in MessagePack.

- *saturation*: 16 connections send the next request when they have a response, to a server whose deadline is so long
  that it ranks all of them.
- *overload*: requests are sent at random times at 2 and at 5 times the rate of saturation, whatever the responses are.

A request is answered in time if it is ranked (no fallback) and the response is there within the deadline after it was
sent. Loads take turns, and the ratios are medians over the rounds. With ``--cores apart`` the server has the first core
and the client the second, as one process per core with its clients elsewhere. With ``--cores shared`` the scheduler
decides: at saturation a part of the second core then helps the server, and at 5 times the client takes it back. How
much of the machine each side used is reported.

With ``--front haproxy`` the client sends to HAProxy with deploy/haproxy.cfg, and the service has 10 ms less, which the
proxy may let a request wait. *Two models* adds requests to a second model of the same service, a thirtieth of those to
the first, at 2 times saturation: how many of the second's are in time.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import cast

import uvloop

from benchmarks.common import log_progress
from benchmarks.engine_msrd import CHECKOUT
from benchmarks.serve_load import CONNECTIONS, cpu_seconds, fit_once, free_port, is_listening, serving, write_bodies
from kinrank.serve._http.bodies import MSGPACK

AIM = 0.8
MAX_CONNECTIONS = 400  # of the client; the server closes idle ones beyond 512
OPTIONS = {
    "deadline": ("50", "100", "200"),
    "rounds": ("3", "1"),
    "seconds": ("5", "3", "10"),
    "front": ("none", "haproxy"),
    "cores": ("shared", "apart"),
}


SMALL = 30
"""How many requests go to the first model for one to the second."""
SECOND_BACKEND = """
backend model-second
    balance leastconn
    server replica1 "${KINRANK_REPLICA}"
"""


def run(deadline: str, rounds: str, seconds: str, front: str, cores: str) -> dict[str, object]:
    """Measure the throughput in time at saturation and at overload."""
    place = CHECKOUT / "benchmarks" / "results" / "serve_load"
    write_bodies(place)
    fit_once("kin", place / "kin")
    service_deadline = int(deadline) - (10 if front == "haproxy" else 0)
    first, *_, last = sorted(os.sched_getaffinity(0))
    both = {first, last}
    with (
        on_cores({first} if cores == "apart" else both),  # what is started below stays there
        serving(place, "kin", f"second={place / 'kin'}", "--deadline", str(service_deadline)) as server,
        serving(place, "kin", "--deadline", "5000") as patient,
        on_cores({last} if cores == "apart" else both),
        in_front(front, server.port, place) as port,
    ):
        body = (place / "msgpack.body").read_bytes()
        clients = Client(port, body), Client(port, body, model="second"), Client(patient.port, body)
        pids = server.pid, patient.pid
        return uvloop.run(measure(clients, pids, float(deadline) / 1000, int(rounds), int(seconds)))


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Run this thread, and what it starts, on some cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def in_front(name: str, port: int, place: Path) -> Iterator[int]:
    """Run the proxy, if any, and return the port to send to."""
    if name == "none":
        yield port
        return
    front = free_port()
    (place / "models.cfg").write_text(SECOND_BACKEND)
    env = {**os.environ, "KINRANK_FRONT": f"127.0.0.1:{front}", "KINRANK_REPLICA": f"127.0.0.1:{port}"}
    command = ["haproxy", "-f", str(CHECKOUT / "deploy" / "haproxy.cfg"), "-f", str(place / "models.cfg")]
    with subprocess.Popen(command, env=env) as process:
        try:
            while not is_listening(front):
                time.sleep(0.1)
            yield front
        finally:
            process.terminate()


async def timed(load: Awaitable[Outcome], pid: int, seconds: float) -> Outcome:
    """Return the outcome of a load, with the cores that the server and the client used."""
    before = cpu_seconds(pid), time.process_time()
    outcome = await load
    outcome.cores = (cpu_seconds(pid) - before[0]) / seconds, (time.process_time() - before[1]) / seconds
    return outcome


async def measure(
    clients: tuple[Client, Client, Client], pids: tuple[int, int], deadline: float, rounds: int, seconds: int
) -> dict[str, object]:
    """Measure all loads in turns."""
    client, second, patient = clients
    pid, patient_pid = pids
    for each in clients:
        await each.saturate(2, deadline)  # warm up
    results: list[dict[str, Outcome]] = []
    for _ in range(rounds):
        outcomes = {"saturation": await timed(patient.saturate(seconds, deadline), patient_pid, seconds)}
        rate = outcomes["saturation"].answered / seconds
        for times in (2, 5):
            overload = client.overload(times * rate, seconds, deadline)
            outcomes[f"{times} times"] = await timed(overload, pid, seconds)
        _, outcomes["second model"] = await asyncio.gather(
            client.overload(2 * rate, seconds, deadline), second.overload(2 * rate / SMALL, seconds, deadline)
        )
        log_progress("; ".join(f"{name}: {outcome.summary(seconds)}" for name, outcome in outcomes.items()))
        results.append(outcomes)
    figures: dict[str, object] = {}
    for name in results[0]:
        of_name = [each[name] for each in results]
        figures[name] = {
            "in time/s": round(statistics.median(each.in_time / seconds for each in of_name)),
            "of saturation": round(
                statistics.median(each[name].in_time / each["saturation"].answered for each in results), 2
            ),
            "p99 ms of the ranked": round(statistics.median(each.percentile(99) for each in of_name), 1),
            "cores of the server, of the client": [
                round(statistics.median(each.cores[i] for each in of_name), 2) for i in range(2)
            ],
            "results": dict(sum((each.results for each in of_name), Counter())),
        }
    shares = [figures[f"{times} times"]["of saturation"] for times in (2, 5)]  # type: ignore[index]
    second_model = [each["second model"] for each in results]
    figures["share of the second model's requests in time"] = round(
        statistics.median(each.in_time / max(1, sum(each.results.values())) for each in second_model), 3
    )
    return {**figures, "holds": min(shares) >= AIM}


@dataclass
class Outcome:
    """What became of the requests of one load."""

    results: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)  # of the ranked ones, by request id
    in_time: int = 0
    cores: tuple[float, float] = (0.0, 0.0)  # CPU seconds per second of the server and of the client

    @property
    def answered(self) -> int:
        """Return the number of requests that were ranked, in time or not."""
        return len(self.seconds)

    def add(self, request_id: str, response: bytes, seconds: float, deadline: float) -> None:
        """Count a response."""
        status = response[9:12].decode()
        ranked = status == "200" and b'"fallback":null' in response
        self.results["ranked" if ranked else "late" if status == "200" else status] += 1
        if ranked:
            self.seconds[request_id] = seconds
            self.in_time += seconds <= deadline

    def percentile(self, percent: float) -> float:
        """Return a percentile of the latency of the ranked requests, in milliseconds."""
        ordered = sorted(self.seconds.values())
        return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

    def summary(self, seconds: int) -> str:
        """Return one line for people."""
        return f"{self.in_time / seconds:.0f}/s in time, p99 {self.percentile(99):.0f} ms, {dict(self.results)}"


class Connection(asyncio.Protocol):
    """A connection that is kept. It takes one request at a time; streams would take twice the time of the client."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._on_response: Callable[[bytes], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes, on_response: Callable[[bytes], None]) -> None:
        """Send a request. The response is empty if the connection is lost before it is there."""
        self._received, self._on_response = b"", on_response
        if self._transport is None or self._transport.is_closing():
            self._respond(b"")
        else:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Hand over the response as soon as all of it is there."""
        self._received += data
        head, ended, body = self._received.partition(b"\r\n\r\n")
        if ended and len(body) >= int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            self._respond(self._received)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Tell who waits for a response."""
        self._transport = None
        self._respond(b"")

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _respond(self, response: bytes) -> None:
        if on_response := self._on_response:
            self._on_response = None
            on_response(response)


class Client:
    """Sends one request again and again, over connections that it keeps. The server logs the id of each."""

    def __init__(self, port: int, body: bytes, kind: str = MSGPACK, model: str | None = None) -> None:
        self._port = port
        head = f"POST /v1/rank HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}"
        if model is not None:
            head += f"\r\nx-kinrank-model: {model}"
        self._head, self._body = head.encode() + b"\r\nx-request-id: ", b"\r\n\r\n" + body
        self._ids = count()
        self._idle: deque[Connection] = deque()
        self._open = self._pending = 0

    async def saturate(self, seconds: float, deadline: float) -> Outcome:
        """Send the next request on each connection when it has a response."""
        outcome, end = Outcome(), time.perf_counter() + seconds

        def send_next() -> None:
            if time.perf_counter() < end:
                self.send(self._idle.pop(), outcome, deadline, send_next)

        for _ in range(CONNECTIONS):
            self.send(await self.connect(), outcome, deadline, send_next)
        await asyncio.sleep(seconds)
        await self.settle()
        return outcome

    async def overload(self, rate: float, seconds: float, deadline: float) -> Outcome:
        """Send requests at random times, whatever the responses are."""
        outcome, start, at = Outcome(), time.perf_counter(), 0.0
        while (at := at + random.expovariate(rate)) < seconds:
            pause = at - (time.perf_counter() - start)
            if pause > 0:
                await asyncio.sleep(pause)
            if self._idle or self._open < MAX_CONNECTIONS:
                self.send(await self.connect(), outcome, deadline)
            else:
                outcome.results["not sent"] += 1
        await self.settle()
        return outcome

    async def connect(self) -> Connection:
        """Return an idle connection, or open another one."""
        if self._idle:
            return self._idle.pop()
        self._open += 1
        _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", self._port)
        return connection

    async def settle(self) -> None:
        """Wait until every request has its response."""
        while self._pending:
            await asyncio.sleep(0.01)

    def send(
        self, connection: Connection, outcome: Outcome, deadline: float, on_done: Callable[[], None] = lambda: None
    ) -> None:
        """Send the request and count its response."""
        request_id, start = str(next(self._ids)), time.perf_counter()
        self._pending += 1

        def count_it(response: bytes) -> None:
            self._pending -= 1
            if not response:  # a proxy may close a connection whose body it did not read
                outcome.results["closed"] += 1
            else:
                outcome.add(request_id, response, time.perf_counter() - start, deadline)
            if response and b"connection: close" not in response.partition(b"\r\n\r\n")[0].lower():
                self._idle.append(connection)
                on_done()
            else:
                self._open -= 1
                connection.close()

        connection.send(self._head + request_id.encode() + self._body, count_it)
