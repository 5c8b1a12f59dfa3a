"""Time and memory of judgments from a click log, compared with the bare DuckDB query that only aggregates.

The log is a Parquet table of 200,000 queries with ranks that change and users who examine rank k with probability 1/k.
Each side runs in its own process with two threads; its peak memory is that of the process.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.common import log_progress

OPTIONS = {"impressions": ["1e7", "1e6", "1e8"], "memory": ["2GB", "1GB", "3GB"]}
THREADS = 2


def write_log(path: Path, impressions: int) -> None:
    """Write a log: heavy-tailed queries, and documents whose rank changes from list to list."""
    import duckdb

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
    from kinrank.clicks import LogOptions, read_clicks
    from kinrank.clicks.examination import estimate_examination
    from kinrank.clicks.judgments import judgment_table, write_judgments
    from kinrank.clicks.posterior import estimate_attractiveness

    start = time.perf_counter()
    counts = read_clicks([path], LogOptions(memory=memory, threads=THREADS))
    log_progress(f"read in {time.perf_counter() - start:.1f} s: {counts.n_pairs:,} pairs, {len(counts.rank):,} cells")
    found = estimate_attractiveness(counts, estimate_examination(counts))
    log_progress(f"estimated after {time.perf_counter() - start:.1f} s")
    write_judgments(judgment_table(counts, found), f"{path}.judgments.parquet")


def aggregate(path: str, memory: str) -> None:
    """Only count clicks by query, document and rank."""
    import duckdb

    database = duckdb.connect(f"{path}.duckdb")
    database.execute(f"SET threads = {THREADS}; SET memory_limit = '{memory}'; SET preserve_insertion_order = false")
    database.execute(f"""
        COPY (SELECT query, document, rank, count(*) AS impressions, count(*) FILTER (clicked) AS clicks
            FROM '{path}' GROUP BY ALL) TO '{path}.counts.parquet'""")


def measured(side: str, path: str, memory: str) -> dict[str, float]:
    """Return seconds and peak memory of one side, in this process."""
    start = time.perf_counter()
    {"judge": judge, "aggregate": aggregate}[side](path, memory)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "darwin" else 1024) / 1024
    return {"seconds": round(time.perf_counter() - start, 1), "peak GB": round(peak, 2)}


def run(impressions: str = "1e7", memory: str = "2GB") -> dict[str, Any]:
    """Measure both sides, each in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write_log(path, int(float(impressions)))
        log_progress(f"log: {path.stat().st_size / 1e6:,.0f} MB")
        figures: dict[str, Any] = {"impressions": int(float(impressions))}
        for side in ("aggregate", "judge"):
            with get_context("spawn").Pool(1) as pool:
                figures[side] = pool.apply(measured, (side, str(path), memory))
            log_progress(f"{side}: {figures[side]}")
    figures["ratio"] = round(figures["judge"]["seconds"] / figures["aggregate"]["seconds"], 2)
    return figures
