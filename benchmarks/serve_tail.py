"""Where the slowest requests spend their time at half of saturation, alone and next to large bodies.

The model is KinRanker, as in ``serve_load``; the request has 100 candidates with 46 features, in MessagePack, and is
sent at random times at half the rate of saturation. Every request has an id, so that what the client measured can be
compared with the server's log: time to *parse* the body, to *wait* for the model's thread, to *rank*, *other* time in
the server (its event loop, which other requests use meanwhile), and time *outside*, before the server has read the head
or in the client. "slowest" is the mean of the slowest percent of the requests, "typical" that of the middle half.

*next to large bodies*: another connection sends a JSON body of 4 MB with two million numbers twice a second. It is
parsed, and refused because the model has other features. Loads take turns; figures are medians over the rounds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.common import log_progress
from benchmarks.engine_msrd import CHECKOUT
from benchmarks.serve_load import fit_once, serving, write_bodies
from benchmarks.serve_overload import Client, Outcome
from kinrank.serve._http.bodies import JSON, MAX_CANDIDATES, MAX_FEATURES

PERCENTILES = (50, 99, 99.9)
STAGES = ("parse", "wait", "rank")
OPTIONS = {"rounds": ("3", "1"), "seconds": ("20", "5")}
DEADLINE = 5.0  # seconds, so that nothing falls back


def run(rounds: str, seconds: str) -> dict[str, object]:
    """Measure both loads in turns."""
    place = CHECKOUT / "benchmarks" / "results" / "serve_load"
    write_bodies(place)
    fit_once("kin", place / "kin")
    with serving(place, "kin", "--deadline", str(round(1000 * DEADLINE))) as server:
        client = Client(server.port, (place / "msgpack.body").read_bytes())
        large = Client(server.port, large_body(), JSON)
        outcomes = uvloop.run(measure(client, large, int(rounds), int(seconds)))
    logged = read_log(place / "serve.log")
    return {name: summary(of_load, logged) for name, of_load in outcomes.items()}


def large_body() -> bytes:
    """Return a JSON body of 4 MB."""
    row = [0] * MAX_FEATURES
    body = {"ids": [str(each) for each in range(MAX_CANDIDATES)], "features": [row] * MAX_CANDIDATES}
    return json.dumps(body, separators=(",", ":")).encode()


async def measure(client: Client, large: Client, rounds: int, seconds: int) -> dict[str, list[Outcome]]:
    """Send at half the rate of saturation, with and without large bodies."""
    saturated = await client.saturate(5, DEADLINE)
    rate = saturated.answered / 5 / 2
    outcomes: dict[str, list[Outcome]] = {"alone": [], "next to large bodies": []}
    for _ in range(rounds):
        outcomes["alone"].append(await client.overload(rate, seconds, DEADLINE))
        async with sent_twice_a_second(large):
            outcomes["next to large bodies"].append(await client.overload(rate, seconds, DEADLINE))
        log_progress("; ".join(f"{name}: p99 {each[-1].percentile(99):.1f} ms" for name, each in outcomes.items()))
    return outcomes


@asynccontextmanager
async def sent_twice_a_second(large: Client) -> AsyncIterator[None]:
    """Send large bodies within the block."""

    async def send_all() -> None:
        while True:
            large.send(await large.connect(), Outcome(), DEADLINE)
            await asyncio.sleep(0.5)
            await large.settle()

    task = asyncio.create_task(send_all())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def read_log(log: Path) -> dict[str, dict[str, Any]]:
    """Return the last line of each request."""
    lines = (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{"))
    return {line["request_id"]: line for line in lines if line.get("event") == "request" and line["status"] == 200}


def summary(outcomes: list[Outcome], logged: dict[str, dict[str, Any]]) -> dict[str, object]:
    """Return percentiles, and where the slowest and the typical requests spend their time."""
    parts = sorted(
        (
            split(1000 * seconds, logged[request_id])
            for each in outcomes
            for request_id, seconds in each.seconds.items()
            if request_id in logged
        ),
        key=lambda part: part["all"],
    )
    n = len(parts)
    return {
        "requests": n,
        **{f"p{each} ms": round(statistics.median(of.percentile(each) for of in outcomes), 1) for each in PERCENTILES},
        "typical, ms": mean_of(parts[n // 4 : 3 * n // 4]),
        "slowest, ms": mean_of(parts[-max(n // 100, 1) :]),
    }


def split(milliseconds: float, line: dict[str, Any]) -> dict[str, float]:
    """Return the time of each stage of a request."""
    stages = {stage: line.get(f"{stage}_ms", 0.0) for stage in STAGES}
    other = line["ms"] - sum(stages.values())
    return {**stages, "other": other, "outside": milliseconds - line["ms"], "all": milliseconds}


def mean_of(parts: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each part."""
    return {name: round(statistics.mean(part[name] for part in parts), 2) for name in parts[0]}
