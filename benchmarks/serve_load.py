"""Throughput and latency of `/v1/rank` compared with the same HTTP stack computing X @ w; the aim is a share of 0.6.

The request has 100 candidates with 46 features. The models are KNN Online and KinRanker (k = 400, 10,000 judged
queries; KinRanker's trees are fitted on 2,000 of them); wrk sends requests over 16 loopback connections. The baseline
is a bare Starlette endpoint on the same server, which parses the same body, multiplies by one weight vector and writes
the same response, without keys, deadline, log or metrics. Both servers run at the same time and take turns, with JSON
and MessagePack:

- *saturation*: each connection sends the next request when it has a response, to a service whose deadline is so long
  that it ranks all of them.
- *half*: each connection pauses between requests, for a random time that halves the requests per second. The service
  has its defaults.

Results in the engine's order are not rankings and are counted as "fell back". Fitted models are kept in
``benchmarks/results/serve_load``.

A five-minute soak test at half of saturation follows (``--soak 0`` skips it): no request may fail, fewer than one in a
thousand may fall back, and memory is measured before and after.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
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
from benchmarks.engine_msrd import CHECKOUT
from benchmarks.knn_latency import random_queries
from kinrank import KinRanker, KnnRanker
from kinrank.serve._http.bodies import JSON, MSGPACK, parse_rank
from kinrank.serve.messages import Ranking

M, K, CANDIDATES, FEATURES = 10_000, 400, 100, 46
CONNECTIONS, SECONDS = 16, 5
CLAIMED = 0.6
MAX_FALLBACKS = 0.001
OPTIONS = {"soak": ("300", "0"), "rounds": ("3", "1")}
MODELS = {"knn": lambda: KnnRanker(K, reference=0), "kin": lambda: KinRanker(K, settings={"reference": 0})}
FITTED = {"knn": M, "kin": 2_000}  # the other judged queries are added
PERCENTILES = ("50", "99", "99.9")
LUA = """
local file = io.open("{body}", "rb")
wrk.body = file:read("*a")
file:close()
wrk.method = "POST"
wrk.headers["Content-Type"] = "{kind}"
local pause = tonumber(os.getenv("PAUSE"))
if pause > 0 then
  function delay() return math.floor(-pause * math.log(1 - math.random()) + 0.5) end
end
function done(_, latency, _)
  for _, each in ipairs({{ {percentiles} }}) do
    io.write(string.format("\\np%s %.3f\\n", each, latency:percentile(each) / 1000))
  end
end
"""
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
        response = Ranking(ids, scores[order].tolist(), "baseline")
        return Response(msgspec.json.encode(response), media_type=JSON)

    async def healthz(_: Request) -> Response:
        return Response()

    return Starlette(routes=[Route("/v1/rank", rank, methods=["POST"]), Route("/healthz", healthz)])


def run(soak: str, rounds: str) -> dict[str, object]:
    """Measure both servers by model, body format and load."""
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed: apt-get install wrk")
    place = CHECKOUT / "benchmarks" / "results" / "serve_load"
    write_bodies(place)
    compared = {}
    for name in MODELS:
        fit_once(name, place / name)
        compared[name] = compare(place, name, int(rounds))
    figures: dict[str, object] = {**compared, "holds": holds(compared)}
    if int(soak):
        figures["soak"] = soak_test(place, compared["knn"]["json, saturation"]["kinrank"], int(soak))
    return figures


def fit_once(name: str, out: Path) -> None:
    """Fit a model unless it is there."""
    if not out.exists():
        log_progress(f"fit {name}")
        judged = random_queries(M, 40, FEATURES, 0)
        ranker = MODELS[name]().fit(judged[: FITTED[name]])
        if FITTED[name] < M:
            ranker.add(judged[FITTED[name] :])
        ranker.save(out, examples=judged[:20])


def holds(compared: dict[str, dict[str, dict[str, object]]]) -> bool:
    """Return whether KNN's share is as claimed for every body format."""
    shares = [
        figures["share of the baseline's requests"]
        for name, loads in compared.items()
        for load, figures in loads.items()
        if name.startswith("knn") and load.endswith("saturation")
    ]
    return min(shares) >= CLAIMED


def compare(place: Path, name: str, rounds: int) -> dict[str, dict[str, object]]:
    """Measure both servers in turns, at saturation and at half of it."""
    figures: dict[str, dict[str, object]] = {}
    with (
        serving(place, name, "--deadline", "5000") as patient,
        serving(place, name) as usual,
        serving_baseline() as plain,
    ):
        for format_ in ("json", "msgpack"):
            pauses = [0.0, 0.0]
            for share, ours in (("saturation", patient), ("half", usual)):
                servers = list(zip((ours, plain), pauses, strict=True))
                for server, pause in servers:
                    load(place, format_, server, pause, 2)  # warm up
                before = count_fallbacks(ours)
                turns = [[load(place, format_, *each) for each in servers] for _ in range(rounds)]
                kinrank, baseline = (medians_of([each[i] for each in turns]) for i in range(2))
                ratio = statistics.median(own["rps"] / other["rps"] for own, other in turns)
                figures[f"{format_}, {share}"] = {
                    "kinrank": {**kinrank, "fell back": count_fallbacks(ours) - before},
                    "baseline": baseline,
                    "share of the baseline's requests": round(ratio, 2),
                }
                log_progress(f"{name}, {format_}, {share}: {figures[f'{format_}, {share}']}")
                pauses = [half_pause(each) for each in (kinrank, baseline)]
    return figures


def half_pause(saturated: dict[str, float]) -> float:
    """Return the pause in milliseconds that halves the requests: a connection takes twice as long for one."""
    return max(0.0, 2000 * CONNECTIONS / saturated["rps"] - saturated["p50 ms"] / 2)


def count_fallbacks(server: Server) -> int:
    """Return the number of results in the engine's order."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as page:
        counts = re.findall(r"(?m)^kinrank_fallbacks_total\{.*\} ([\d.]+)$", page.read().decode())
    return int(sum(map(float, counts)))


def soak_test(place: Path, saturated: dict[str, float], seconds: int) -> dict[str, object]:
    """Measure failures at half of saturation, and the memory of the process before and after."""
    with serving(place, "knn") as server:
        pause = half_pause(saturated)
        load(place, "json", server, pause, seconds=10)
        memory_before, before_load = memory_mb(server.pid), count_fallbacks(server)
        result = load(place, "json", server, pause, seconds)
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
def serving(place: Path, name: str, *options: str) -> Iterator[Server]:
    """Run ``kinrank serve``, with its defaults unless there are options, logging to a file."""
    code = "from kinrank.cli import main; main()"
    port = free_port()
    command = [
        sys.executable,
        "-c",
        code,
        "serve",
        str(place / name),
        "--port",
        str(port),
        "--set",
        "drain_seconds=0.1",
    ]
    yield from started([*command, *options], port, place / "serve.log")


@contextmanager
def serving_baseline() -> Iterator[Server]:
    """Run the baseline on the same server."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "benchmarks.serve_load:baseline", "--factory", "--port", str(port)]
    command += ["--no-access-log", "--log-level", "warning"]
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
        yield Server(port, process.pid)
    finally:
        process.terminate()
        process.wait(30)


def is_listening(port: int) -> bool:
    """Return whether a server responds on a port; for ours, whether it is ready. The baseline knows no such path."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1):
            return True
    except urllib.error.HTTPError as error:
        return error.code == 404
    except OSError:
        return False


def load(place: Path, format_: str, server: Server, pause: float = 0.0, seconds: int = SECONDS) -> dict[str, float]:
    """Run wrk. Return requests per second, CPU time, percentiles of the latency, and failures.

    Connections pause between two requests, exponentially distributed with a mean of `pause` milliseconds.
    """
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(place / f"{format_}.lua")]
    url = f"http://127.0.0.1:{server.port}/v1/rank"
    before = cpu_seconds(server.pid)
    environment = {**os.environ, "PAUSE": str(pause)}
    output = subprocess.run([*command, url], capture_output=True, text=True, check=True, env=environment).stdout
    used = cpu_seconds(server.pid) - before
    failed = sum(map(int, re.findall(r"(?:Non-2xx or 3xx responses: |connect |read |write |timeout )(\d+)", output)))
    return {
        "rps": float(search(r"Requests/sec:\s+([\d.]+)", output)),
        "CPU ms per request": 1000 * used / int(search(r"(\d+) requests in", output)),
        **{f"p{each} ms": float(search(rf"(?m)^p{each} (\S+)$", output)) for each in PERCENTILES},
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
    place.mkdir(parents=True, exist_ok=True)
    for format_, (kind, raw) in formats.items():
        (place / f"{format_}.body").write_bytes(raw)
        (place / f"{format_}.lua").write_text(
            LUA.format(body=place / f"{format_}.body", kind=kind, percentiles=", ".join(PERCENTILES))
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


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
