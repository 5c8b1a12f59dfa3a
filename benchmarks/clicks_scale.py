"""Time and memory of judgments from a click log, compared with the bare DuckDB query that only aggregates.

The log is a Parquet table of 200,000 queries with ranks that change and users who examine rank k with probability 1/k.
Both sides have the same memory limit and two threads, and take turns; each run is a process of its own, whose peak
memory is reported. Medians of the runs.

``--part counting``: the folder of a log, by day and bucket, with lists of ten documents and two fifths as many clicks,
is counted with one thread, to lists a second of CPU time; the first partition warms up and is not in it. *Bare* is the
DuckDB query that only groups the same files by query text, document text and rank. Then the same log is counted by two
threads, by processes and, with ``--ray``, by Ray: the cells must be equal to the last bit. Then nothing has changed,
and nothing is counted.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow.parquet as pq

from benchmarks.common import log_progress
from kinrank.clicks import LogOptions, read_clicks
from kinrank.clicks.counting import UNIT, FirstPass
from kinrank.clicks.examination import estimate_examination
from kinrank.clicks.judgments import estimate_attractiveness, judgment_table, write_judgments
from kinrank.clicks.log import partitions
from kinrank.clicks.partitions import count_partitions
from kinrank.parallel import Executor, Processes, Serial, use_threads
from kinrank.scale import RayCluster

OPTIONS = {
    "part": ["judgments", "counting"],
    "impressions": ["1e7", "1e6", "1e8"],
    "memory": ["2GB", "1GB", "3GB"],
    "rounds": ["3", "1"],
    "ray": False,
}
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


def write_folder(folder: Path, lists: int, buckets: int) -> None:
    """Write the folder of a log of two days: queries of a heavy tail, and 100,000 clients."""
    database = duckdb.connect()
    database.execute(f"SET threads = {THREADS}; SET memory_limit = '2GB'; SET preserve_insertion_order = false")
    for day in ("2026-10-01", "2026-10-02"):
        database.execute(f"""
            CREATE OR REPLACE TABLE searches AS
            SELECT 'list {day} ' || number AS list, q, 'query ' || q AS query,
                'client ' || hash(number, 7) % 100000 AS client,
                list_transform(range(1, 11), lambda rank:
                    'd' || q || '-' || ((rank + number * 7) % 17 + rank // 4)) AS documents
            FROM (SELECT range AS number, CAST(200000 * pow(hash(range, '{day}') / pow(2, 64), 3) AS BIGINT) AS q
                FROM range({lists // 2}))""")
        for bucket in range(buckets):
            for kind, rows in (
                ("impressions", "SELECT list, query, client, documents FROM searches WHERE q"),
                (
                    "clicks",
                    "SELECT list, documents[1 + CAST(hash(list) % 10 AS INTEGER)] AS document FROM searches "
                    "WHERE hash(list, 1) % 10 < 4 AND q",
                ),
            ):
                place = folder / kind / f"day={day}" / f"bucket={bucket}"
                place.mkdir(parents=True)
                database.execute(f"COPY ({rows} % {buckets} = {bucket}) TO '{place}/lists.parquet'")
    database.close()


def count_alone(folder: str, memory: str) -> float:
    """Count each partition with one thread, and return lists a second of CPU time, without the first one."""
    start, lists, seen = 0.0, 0, 0

    def progress(n: int) -> None:
        nonlocal start, seen
        seen += n
        if seen == 1:
            start = time.process_time()

    found = partitions(folder)
    count_partitions(folder, f"{folder}.cells", CURVE, LogOptions(memory=memory, threads=1), progress=progress)
    lists = sum(pq.read_metadata(file).num_rows for partition in found[1:] for file in partition.lists)
    return lists / (time.process_time() - start)


def group_bare(folder: str, memory: str) -> float:
    """Only group the documents of each partition by query, document and rank; return lists a second of CPU time."""
    database, lists = duckdb.connect(), 0
    database.execute(f"SET threads = 1; SET memory_limit = '{memory}'; SET enable_progress_bar = false")
    for number, partition in enumerate(partitions(folder)):
        if number == 1:
            start = time.process_time()
        database.execute(f"""
            CREATE OR REPLACE TEMP TABLE counts AS SELECT query, document, rank, count(*) FROM (
                SELECT query, unnest(documents) AS document, generate_subscripts(documents, 1) AS rank
                FROM read_parquet({list(partition.lists)})) GROUP BY ALL""")
        lists += number and sum(pq.read_metadata(file).num_rows for file in partition.lists)
    database.close()
    return lists / (time.process_time() - start)


CURVE = FirstPass(slope=tuple(UNIT // rank for rank in range(1, 51)), offset=(0,) * 50)


def counting(lists: int, memory: str, rounds: int, *, with_ray: bool) -> dict[str, Any]:
    """Measure counting, each run in a new process, and compare executors."""
    sides = {"bare": group_bare, "kinrank": count_alone}
    rates: dict[str, list[float]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(Path(scratch) / "log")
        write_folder(Path(folder), lists, max(1, lists // 125_000))
        for _ in range(rounds):
            shutil.rmtree(f"{folder}.cells", ignore_errors=True)
            for side, function in sides.items():
                with get_context("spawn").Pool(1) as pool:
                    rates[side].append(pool.apply(function, (folder, memory)))
                log_progress(f"{side}: {rates[side][-1]:,.0f} lists a second")
        options = LogOptions(memory=memory, threads=1)
        again = count_partitions(folder, f"{folder}.cells", CURVE, options)
        equal = {}
        with ExitStack() as stack:
            executors: dict[str, Executor] = {"threads": Serial(), "processes": Processes(2)}
            if with_ray:
                executors["Ray"] = stack.enter_context(RayCluster("local"))
            for name, executor in executors.items():
                several = LogOptions(memory=memory, threads=2 if name == "threads" else 1)
                count_partitions(folder, f"{folder}.{name}", CURVE, several, executor=executor)
                equal[name] = all(
                    pq.read_table(f"{folder}.cells/{each.name}").equals(pq.read_table(f"{folder}.{name}/{each.name}"))
                    for each in partitions(folder)
                )
                log_progress(f"{name}: {'equal' if equal[name] else 'DIFFERENT'}")
    return {
        "lists": lists,
        "partitions": again.partitions,
        "lists a second and core": {side: round(median(values)) for side, values in rates.items()},
        "counted again": again.changed,
        "equal to the last bit": equal,
    }


def run(
    part: str = "judgments", impressions: str = "1e7", memory: str = "2GB", rounds: str = "3", *, ray: bool = False
) -> dict[str, Any]:
    """Measure both sides, each run in a new process."""
    if part == "counting":
        return counting(int(float(impressions)) // 10, memory, int(rounds), with_ray=ray)
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
