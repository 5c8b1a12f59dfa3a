"""What `/v1/rank` answers beside the same HTTP stack that answers X @ w; 0.6 of its requests was the aim.

100 candidates with 46 features, KNN Online (k = 400, the paper's description) on 10,000 judged queries, wrk on loopback
with 16 connections. The baseline is a bare FastAPI endpoint on the same server that parses the same body with the same
parser, multiplies by one weight vector and writes the same answer: no keys, deadline, log or metrics. Both servers run
side by side and take turns. JSON and MessagePack, 1 and 2 workers. Answers in the engine's order are no rankings: they
are counted as "fell back".

Then a soak of five minutes (``--soak 0`` leaves it out): no request fails, fewer than one in a thousand comes back in
the engine's order; memory before and after.
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
from fastapi import FastAPI, Request, Response

from benchmarks.common import log_progress
from benchmarks.knn_latency import world
from kinrank import KnnRanker
from kinrank.serve.http.bodies import JSON, MSGPACK, parse_rank
from kinrank.serve.messages import Ranking

M, K, CANDIDATES, FEATURES = 10_000, 400, 100, 46
CONNECTIONS, SECONDS, ROUNDS = 16, 5, 3
CLAIMED = 0.6
MOST_LATE = 0.001
OPTIONS = {"soak": ("300", "0")}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


def baseline() -> FastAPI:
    """The same stack, answering X @ w."""
    app = FastAPI()
    weights = np.random.default_rng(0).standard_normal(FEATURES)

    @app.post("/v1/rank")
    async def rank(request: Request) -> Response:
        packed = request.headers.get("content-type") == MSGPACK
        candidates, _ = parse_rank(await request.body(), packed=packed)
        scores = candidates.features @ weights
        order = np.argsort(-scores, kind="stable")
        ids = [candidates.ids[place] for place in order.tolist()]
        return Response(msgspec.json.encode(Ranking(ids, scores[order].tolist(), "baseline")), media_type=JSON)

    @app.get("/healthz")
    async def healthz() -> None:
        return None

    return app


def run(soak: str) -> dict[str, object]:
    """Requests a second and latencies of both, by form of body and number of workers."""
    if shutil.which("wrk") is None:
        raise SystemExit("this needs wrk: apt-get install wrk")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        judged = world(M, 40, FEATURES, 0)
        KnnRanker(K, describe="mean", reference=0).fit(judged).save(place / "model", examples=judged[:20])
        log_progress("fitted")
        write_bodies(place)
        compared = {f"{n} workers": compare(place, n) for n in (1, 2)}
        figures: dict[str, object] = {**compared, "holds": holds(compared)}
        return {**figures, "soak": soaked(place, int(soak))} if int(soak) else figures


def holds(compared: dict[str, dict[str, dict[str, object]]]) -> bool:
    """Whether the share is as claimed for every form of body and number of workers."""
    shares = [form["share of the baseline's requests"] for forms in compared.values() for form in forms.values()]
    return min(shares) >= CLAIMED


def compare(place: Path, workers: int) -> dict[str, dict[str, object]]:
    """Both servers in turns."""
    figures: dict[str, dict[str, object]] = {}
    with serving(place, workers) as ours, serving_baseline(workers) as plain:
        for form in ("json", "msgpack"):
            for server in (ours, plain):
                load(place, form, server, 2)  # warm
            before = fallen_back(ours)
            turns = [(load(place, form, ours, SECONDS), load(place, form, plain, SECONDS)) for _ in range(ROUNDS)]
            figures[form] = {
                "kinrank": {**middle([own for own, _ in turns]), "fell back": fallen_back(ours) - before},
                "baseline": middle([other for _, other in turns]),
                "share of the baseline's requests": round(statistics.median(a["rps"] / b["rps"] for a, b in turns), 2),
            }
            log_progress(f"{workers} workers, {form}: {figures[form]}")
    return figures


def fallen_back(server: Server) -> int:
    """How many answers have gone out in the engine's order."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as page:
        counts = re.findall(r"(?m)^kinrank_fallbacks_total\{.*\} ([\d.]+)$", page.read().decode())
    return int(sum(map(float, counts)))


def soaked(place: Path, seconds: int) -> dict[str, object]:
    """Load without a pause: what failed, and the memory of the workers before and after."""
    with serving(place, 2) as server:
        load(place, "json", server, 10)
        before, fell_back = memory_mb(server.pid), fallen_back(server)
        result = load(place, "json", server, seconds)
        # An answer in the engine's order is no ranking: under such a load a few may be late, no more.
        late = fallen_back(server) - fell_back
        memory = {"MB before": before, "MB after": memory_mb(server.pid)}
        held = result["failed"] == 0 and late < MOST_LATE * result["rps"] * seconds
        return {**result, "fell back": late, "seconds": seconds, **memory, "holds": held}


class Server:
    """A server under test: where it listens and its process."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid


@contextmanager
def serving(place: Path, workers: int) -> Iterator[Server]:
    """``kinrank serve`` with its defaults, its log written to a file."""
    code = "from kinrank.cli import main; main()"
    port = free_port()
    command = [sys.executable, "-c", code, "serve", str(place / "model"), "--port", str(port), "--drain", "0.1"]
    yield from started([*command, "--workers", str(workers)], port, place / "serve.log")


@contextmanager
def serving_baseline(workers: int) -> Iterator[Server]:
    """The baseline under the same server."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "benchmarks.serve_load:baseline", "--factory", "--port", str(port)]
    command += ["--workers", str(workers), "--no-access-log", "--log-level", "warning"]
    yield from started(command, port, Path(os.devnull))


def started(command: list[str], port: int, log: Path) -> Iterator[Server]:
    """A process that listens, ended at the end."""
    with log.open("w") as stream:
        process = subprocess.Popen(command, stderr=stream, env={**os.environ, **ONE_THREAD})
    try:
        until = time.monotonic() + 120
        while not answers(port):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{' '.join(command)}: did not start")
            time.sleep(0.2)
        time.sleep(3)  # the other workers
        yield Server(port, process.pid)
    finally:
        process.terminate()
        process.wait(30)


def answers(port: int) -> bool:
    """Whether somebody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1):
            return True
    except OSError:
        return False


def load(place: Path, form: str, server: Server, seconds: int) -> dict[str, float]:
    """What wrk measures: requests a second, milliseconds at the median and the 99th percentile, failures."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", str(place / f"{form}.lua")]
    url = f"http://127.0.0.1:{server.port}/v1/rank"
    before = cpu_seconds(server.pid)
    said = subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
    used = cpu_seconds(server.pid) - before
    failed = sum(map(int, re.findall(r"(?:Non-2xx or 3xx responses: |connect |read |write |timeout )(\d+)", said)))
    return {
        "rps": float(found(r"Requests/sec:\s+([\d.]+)", said)),
        "CPU ms a request": 1000 * used / int(found(r"(\d+) requests in", said)),
        "p50 ms": milliseconds(found(r"(?m)^\s+50%\s+(\S+)", said)),
        "p99 ms": milliseconds(found(r"(?m)^\s+99%\s+(\S+)", said)),
        "failed": failed,
    }


def write_bodies(place: Path) -> None:
    """The request in both forms, and the scripts that make wrk send it."""
    X = world(1, CANDIDATES, FEATURES, 1).X
    ids = [f"document-{row}" for row in range(CANDIDATES)]
    # Six digits, as features are logged: more would only make the JSON slower to read.
    forms = {
        "json": (JSON, msgspec.json.encode({"ids": ids, "features": X.astype(float).round(6).tolist()})),
        "msgpack": (MSGPACK, msgspec.msgpack.encode({"ids": ids, "features": X.astype("<f4").tobytes()})),
    }
    for form, (kind, raw) in forms.items():
        (place / f"{form}.body").write_bytes(raw)
        (place / f"{form}.lua").write_text(
            f'local file = io.open("{place}/{form}.body", "rb")\nwrk.body = file:read("*a")\nfile:close()\n'
            f'wrk.method = "POST"\nwrk.headers["Content-Type"] = "{kind}"\n'
        )


def memory_mb(pid: int) -> int:
    """Resident memory of a process and its children."""
    listed = subprocess.run(["ps", "-o", "rss=", "--ppid", str(pid), "-p", str(pid)], capture_output=True, text=True)
    return sum(map(int, listed.stdout.split())) // 1024


def cpu_seconds(pid: int) -> float:
    """What a process and its children have used of the processors: a figure that other load disturbs little."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid), "-p", str(pid)], capture_output=True, text=True)
    ticks = 0
    for each in listed.stdout.split():
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def middle(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure; failures are summed."""
    figures = {
        name: round(statistics.median(each[name] for each in rounds), 2) for name in rounds[0] if name != "failed"
    }
    return {**figures, "failed": sum(each["failed"] for each in rounds)}


def found(pattern: str, text: str) -> str:
    """The first group."""
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"wrk did not say {pattern}:\n{text}")
    return match[1]


def milliseconds(text: str) -> float:
    """A time as wrk writes it."""
    for unit, factor in (("us", 0.001), ("ms", 1.0), ("s", 1000.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise ValueError(text)


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
