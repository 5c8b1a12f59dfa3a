"""Time and memory of judgments from a click log, compared with the bare DuckDB query that only aggregates.

The log is a Parquet table of 200,000 queries with ranks that change and users who examine rank k with probability 1/k.
Both sides have the same memory limit and two threads, and take turns; each run is a process of its own, whose peak
memory is reported. Medians of the runs.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import duckdb

from benchmarks.common import log_progress
from kinrank.clicks import LogOptions, read_clicks
from kinrank.clicks.examination import estimate_examination
from kinrank.clicks.judgments import estimate_attractiveness, judgment_table, write_judgments
from kinrank.parallel import use_threads

OPTIONS = {"impressions": ["1e7", "1e6", "1e8"], "memory": ["2GB", "1GB", "3GB"], "rounds": ["3", "1"]}
THREADS = 2


def write_log(path: Path, impressions: int) -> None:
    """Write a log: heavy-tailed queries, and documents whose rank changes from list to list."""
    database = duckdb.connect()
    database.execute(f"SET threads = {THREADS}; SET memory_limit = '2GB'; SET preserve_insertion_order = false")
    database.execute(f"""
        COPY (
            WITH lists AS (
                SELECT range AS session, CAST(200000 * pow(random(), 3) AS BIGINT) AS q
                FROM range({impressions // 10}))
            SELECT 'query ' || q AS query, session,
                'd' || q || '-' || ((rank + session * 7) % 17 + rank // 4) AS document,
                rank, random() < (0.05 + 0.4 * (hash(q, rank) % 5 = 0)::INT) / rank AS clicked,
                1790000000000 + session * 1000 % 2419200000 AS time
            FROM lists, range(1, 11) AS r (rank)
        ) TO '{path}' (FORMAT parquet)""")


def judge(path: str, memory: str) -> None:
    """Make judgments from the log."""
    start = time.perf_counter()
    with use_threads(THREADS):
        counts = read_clicks([path], LogOptions(memory=memory, threads=THREADS))
        log_progress(f"{counts.n_pairs:,} pairs, {len(counts.rank):,} cells in {time.perf_counter() - start:.1f} s")
        found = estimate_attractiveness(counts, estimate_examination(counts))
        log_progress(f"estimated after {time.perf_counter() - start:.1f} s")
        write_judgments(judgment_table(counts, found), f"{path}.judgments.parquet")


def aggregate(path: str, memory: str) -> None:
    """Only count clicks by query, document and rank."""
    with tempfile.TemporaryDirectory() as folder:
        database = duckdb.connect(f"{folder}/counts.duckdb")
        database.execute(f"SET threads = {THREADS}; SET memory_limit = '{memory}'")
        database.execute("SET preserve_insertion_order = false; SET enable_progress_bar = false")
        database.execute(f"""
            COPY (SELECT query, document, rank, count(*) AS impressions, count(*) FILTER (clicked) AS clicks
                FROM '{path}' GROUP BY ALL) TO '{path}.counts.parquet'""")
        database.close()


SIDES = {"aggregate": aggregate, "judge": judge}


def measured(side: str, path: str, memory: str) -> tuple[float, float]:
    """Return seconds and peak memory in GB of one side, in this process."""
    start = time.perf_counter()
    SIDES[side](path, memory)
    return time.perf_counter() - start, peak_memory()


def peak_memory() -> float:
    """Return the peak memory of this process in GB."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes of ru_maxrss
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1024**3


def run(impressions: str = "1e7", memory: str = "2GB", rounds: str = "3") -> dict[str, Any]:
    """Measure both sides, each run in a new process."""
    runs: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write_log(path, int(float(impressions)))
        log_progress(f"log: {path.stat().st_size / 1e6:,.0f} MB")
        for _ in range(int(rounds)):
            for side in SIDES:
                with get_context("spawn").Pool(1) as pool:
                    runs[side].append(pool.apply(measured, (side, str(path), memory)))
                log_progress(f"{side}: {runs[side][-1][0]:.1f} s, {runs[side][-1][1]:.2f} GB")
    seconds = {side: median(each for each, _ in values) for side, values in runs.items()}
    return {
        "impressions": int(float(impressions)),
        "seconds": {side: round(value, 1) for side, value in seconds.items()},
        "peak GB": {side: round(max(peak for _, peak in values), 2) for side, values in runs.items()},
        "ratio": round(seconds["judge"] / seconds["aggregate"], 2),
    }
