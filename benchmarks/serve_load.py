"""Throughput of `/v1/rank` compared with the same HTTP stack computing X @ w; the aim is a share of 0.6.

The request has 100 candidates with 46 features. The model is KNN Online (k = 400, the description of the paper) with
10,000 judged queries; wrk sends requests over 16 loopback connections. The baseline is a bare Starlette endpoint on the
same server, which parses the same body, multiplies by one weight vector and writes the same response, without keys,
deadline, log or metrics. Both servers run at the same time and take turns, with JSON and MessagePack, 1 and 2 workers.
Results in the engine's order are not rankings and are counted as "fell back".

A five-minute soak test follows (``--soak 0`` skips it): no request may fail, fewer than one in a thousand may fall
back, and memory is measured before and after.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.common import log_progress
from benchmarks.knn_latency import random_queries
from kinrank import KnnRanker
from kinrank.serve.http.bodies import JSON, MSGPACK, parse_rank
from kinrank.serve.http.responses import RankResponse

M, K, CANDIDATES, FEATURES = 10_000, 400, 100, 46
CONNECTIONS, SECONDS, ROUNDS = 16, 5, 3
CLAIMED = 0.6
MAX_FALLBACKS = 0.001
OPTIONS = {"soak": ("300", "0")}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


def baseline() -> Starlette:
    """Return the baseline application: the same stack, computing X @ w."""
    weights = np.random.default_rng(0).standard_normal(FEATURES)

    async def rank(request: Request) -> Response:
        packed = request.headers.get("content-type") == MSGPACK
        candidates, _ = parse_rank(await request.body(), packed=packed)
        scores = candidates.features @ weights
        order = np.argsort(-scores, kind="stable")
        ids = [candidates.ids[place] for place in order.tolist()]
        response = RankResponse(ids, scores[order].tolist(), "baseline", None, None, None, None, None)
        return Response(msgspec.json.encode(response), media_type=JSON)

    async def healthz(_: Request) -> Response:
        return Response()

    return Starlette(routes=[Route("/v1/rank", rank, methods=["POST"]), Route("/healthz", healthz)])


def run(soak: str) -> dict[str, object]:
    """Measure both servers by body format and number of workers."""
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed: apt-get install wrk")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        judged = random_queries(M, 40, FEATURES, 0)
        KnnRanker(K, reference=0).fit(judged).save(place / "model", examples=judged[:20])
        log_progress("fitted")
        write_bodies(place)
        compared = {f"{n} workers": compare(place, n) for n in (1, 2)}
        figures: dict[str, object] = {**compared, "holds": holds(compared)}
        return {**figures, "soak": soak_test(place, int(soak))} if int(soak) else figures


def holds(compared: dict[str, dict[str, dict[str, object]]]) -> bool:
    """Return whether the share is as claimed for every body format and number of workers."""
    shares = [
        figures["share of the baseline's requests"] for formats in compared.values() for figures in formats.values()
    ]
    return min(shares) >= CLAIMED


def compare(place: Path, workers: int) -> dict[str, dict[str, object]]:
    """Measure both servers in turns."""
    figures: dict[str, dict[str, object]] = {}
    with serving(place, workers) as ours, serving_baseline(workers) as plain:
        for format_ in ("json", "msgpack"):
            for server in (ours, plain):
                load(place, format_, server, 2)  # warm up
            before = count_fallbacks(ours)
            turns = [(load(place, format_, ours, SECONDS), load(place, format_, plain, SECONDS)) for _ in range(ROUNDS)]
            figures[format_] = {
                "kinrank": {**medians_of([own for own, _ in turns]), "fell back": count_fallbacks(ours) - before},
                "baseline": medians_of([other for _, other in turns]),
                "share of the baseline's requests": round(statistics.median(a["rps"] / b["rps"] for a, b in turns), 2),
            }
            log_progress(f"{workers} workers, {format_}: {figures[format_]}")
    return figures


def count_fallbacks(server: Server) -> int:
    """Return the number of results in the engine's order."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as page:
        counts = re.findall(r"(?m)^kinrank_fallbacks_total\{.*\} ([\d.]+)$", page.read().decode())
    return int(sum(map(float, counts)))


def soak_test(place: Path, seconds: int) -> dict[str, object]:
    """Measure failures under continuous load, and the memory of the workers before and after."""
    with serving(place, 2) as server:
        load(place, "json", server, 10)
        memory_before, before_load = memory_mb(server.pid), count_fallbacks(server)
        result = load(place, "json", server, seconds)
        fallbacks = count_fallbacks(server) - before_load
        memory = {"MB before": memory_before, "MB after": memory_mb(server.pid)}
        held = result["failed"] == 0 and fallbacks < MAX_FALLBACKS * result["rps"] * seconds
        return {**result, "fell back": fallbacks, "seconds": seconds, **memory, "holds": held}


class Server:
    """A server under test: its port and its process."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid


@contextmanager
def serving(place: Path, workers: int) -> Iterator[Server]:
    """Run ``kinrank serve`` with its defaults, logging to a file."""
    code = "from kinrank.cli import main; main()"
    port = free_port()
    command = [sys.executable, "-c", code, "serve", str(place / "model"), "--port", str(port), "--drain", "0.1"]
    yield from started([*command, "--workers", str(workers)], port, place / "serve.log")


@contextmanager
def serving_baseline(workers: int) -> Iterator[Server]:
    """Run the baseline on the same server."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "benchmarks.serve_load:baseline", "--factory", "--port", str(port)]
    command += ["--workers", str(workers), "--no-access-log", "--log-level", "warning"]
    yield from started(command, port, Path(os.devnull))


def started(command: list[str], port: int, log: Path) -> Iterator[Server]:
    """Run a server process, and stop it at the end."""
    with log.open("w") as stream:
        process = subprocess.Popen(command, stderr=stream, env={**os.environ, **ONE_THREAD})
    try:
        until = time.monotonic() + 120
        while not is_listening(port):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{' '.join(command)}: did not start")
            time.sleep(0.2)
        time.sleep(3)  # for the other workers
        yield Server(port, process.pid)
    finally:
        process.terminate()
        process.wait(30)


def is_listening(port: int) -> bool:
    """Return whether a server responds on a port."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1):
            return True
    except OSError:
        return False


def load(place: Path, format_: str, server: Server, seconds: int) -> dict[str, float]:
    """Run wrk. Return requests per second, CPU time, latency at the median and the 99th percentile, and failures."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", str(place / f"{format_}.lua")]
    url = f"http://127.0.0.1:{server.port}/v1/rank"
    before = cpu_seconds(server.pid)
    output = subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
    used = cpu_seconds(server.pid) - before
    failed = sum(map(int, re.findall(r"(?:Non-2xx or 3xx responses: |connect |read |write |timeout )(\d+)", output)))
    return {
        "rps": float(search(r"Requests/sec:\s+([\d.]+)", output)),
        "CPU ms per request": 1000 * used / int(search(r"(\d+) requests in", output)),
        "p50 ms": milliseconds(search(r"(?m)^\s+50%\s+(\S+)", output)),
        "p99 ms": milliseconds(search(r"(?m)^\s+99%\s+(\S+)", output)),
        "failed": failed,
    }


def write_bodies(place: Path) -> None:
    """Write the request in both formats, and the scripts with which wrk sends it."""
    X = random_queries(1, CANDIDATES, FEATURES, 1).X
    ids = [f"document-{row}" for row in range(CANDIDATES)]
    # Six digits, as features are logged; more would only make the JSON slower to read.
    formats = {
        "json": (JSON, msgspec.json.encode({"ids": ids, "features": X.astype(float).round(6).tolist()})),
        "msgpack": (MSGPACK, msgspec.msgpack.encode({"ids": ids, "features": X.astype("<f4").tobytes()})),
    }
    for format_, (kind, raw) in formats.items():
        (place / f"{format_}.body").write_bytes(raw)
        (place / f"{format_}.lua").write_text(
            f'local file = io.open("{place}/{format_}.body", "rb")\nwrk.body = file:read("*a")\nfile:close()\n'
            f'wrk.method = "POST"\nwrk.headers["Content-Type"] = "{kind}"\n'
        )


def memory_mb(pid: int) -> int:
    """Return the resident memory of a process and its children."""
    listed = subprocess.run(["ps", "-o", "rss=", "--ppid", str(pid), "-p", str(pid)], capture_output=True, text=True)
    return sum(map(int, listed.stdout.split())) // 1024


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its children, which depends little on other load."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid), "-p", str(pid)], capture_output=True, text=True)
    ticks = 0
    for each in listed.stdout.split():
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def medians_of(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure, and the sum of the failures."""
    figures = {
        name: round(statistics.median(each[name] for each in rounds), 2) for name in rounds[0] if name != "failed"
    }
    return {**figures, "failed": sum(each["failed"] for each in rounds)}


def search(pattern: str, text: str) -> str:
    """Return the first group of a match in the output of wrk."""
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"the output of wrk does not match {pattern}:\n{text}")
    return match[1]


def milliseconds(text: str) -> float:
    """Parse a duration in the output of wrk."""
    for unit, factor in (("us", 0.001), ("ms", 1.0), ("s", 1000.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise ValueError(text)


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
