"""What evidence costs: ranking with it against the wrapped ranker alone, and building it against bare aggregation.

Ranking: KinRanker on movie queries one by one, alone and with a folder of 10^6 pairs of a query and
a document and more, memory-mapped; all of the queries asked have evidence. Both take turns. Medians in microseconds.

Building: the evidence of a click log, with a known examination of ranks, and with one that is estimated first, against
the DuckDB query that only counts by query, document and day. Each run is a process of its own with two threads and the
same memory limit; the peak memory is in GB.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np

from benchmarks.clicks_scale import THREADS, peak_memory, write_log
from benchmarks.common import log_progress
from kinrank import KinRanker, QuerySet
from kinrank.clicks import LogOptions
from kinrank.clicks.choices import write_evidence
from kinrank.clicks.examination import Examination, estimate_examination
from kinrank.clicks.read import open_clicks
from kinrank.data.hashes import hash_texts, keys_of
from kinrank.datasets import load_movies
from kinrank.memory.evidence import Evidence
from kinrank.parallel import use_threads

OPTIONS = {"largest": ["1e7", "1e6", "1e8"], "impressions": ["1e7", "1e6", "1e8"], "rounds": ["3", "1"]}
MEMORY = "2GB"
DOCUMENTS = 100


def filled_evidence(path: Path, pairs: int, asked: QuerySet) -> Evidence:
    """Write and open evidence of random queries and of those that are asked."""
    rng = np.random.default_rng(0)
    keys, documents = keys_of(asked), hash_texts(asked.doc_id)
    query = np.unique(np.r_[rng.integers(0, 2**64, pairs // DOCUMENTS, dtype=np.uint64), keys])
    document = rng.integers(0, 2**64, (len(query), DOCUMENTS), dtype=np.uint64)
    for key, start, stop in zip(keys, asked.offsets[:-1], asked.offsets[1:], strict=True):
        own = document[np.searchsorted(query, key)]
        own[: stop - start] = documents[start:stop][:DOCUMENTS]
    document.sort(axis=1)
    looks = rng.random(document.size, dtype=np.float32) * 20
    Evidence(
        {
            "query": query,
            "offsets": np.arange(0, document.size + 1, DOCUMENTS),
            "document": document.ravel(),
            "day": np.repeat(np.arange(DOCUMENTS, dtype=np.int32)[None], len(query), axis=0).ravel(),
            "looks": looks,
            "choices": looks * rng.random(document.size, dtype=np.float32),
        }
    ).save(path)
    return Evidence.open(path)


def ranking(largest: int, rounds: int) -> dict[str, Any]:
    """Measure both rankers at each size."""
    movies = load_movies()
    judged, asked = movies[:200], movies[200:]
    alone = KinRanker().fit(judged)
    figures: dict[str, Any] = {}
    pairs = 10**6
    while pairs <= largest:
        with tempfile.TemporaryDirectory() as folder:
            evidence = filled_evidence(Path(folder) / "evidence", pairs, asked)
            choices = alone.with_recent(evidence)
            seconds: dict[str, list[float]] = {"alone": [], "choices": []}
            for turn in range(rounds + 1):
                for query in asked:
                    for name, ranker in (("alone", alone), ("choices", choices)):
                        start = time.perf_counter()
                        ranker.predict_with_novelty(query)
                        if turn:
                            seconds[name].append(time.perf_counter() - start)
            microseconds = {name: round(1e6 * median(values), 1) for name, values in seconds.items()}
            ratio = round(microseconds["choices"] / microseconds["alone"], 3)
            figures[f"{pairs:.0e} pairs"] = {**microseconds, "ratio": ratio}
            log_progress(f"{pairs:,} pairs: {figures[f'{pairs:.0e} pairs']}")
        pairs *= 10
    return figures


def aggregate(path: str) -> None:
    """Only count clicks by query, document and day."""
    with tempfile.TemporaryDirectory() as folder:
        database = duckdb.connect(f"{folder}/counts.duckdb")
        database.execute(f"SET threads = {THREADS}; SET memory_limit = '{MEMORY}'")
        database.execute("SET preserve_insertion_order = false; SET enable_progress_bar = false")
        database.execute(f"""
            COPY (SELECT query, document, time // 86400000 AS day, count(*) AS looks,
                count(*) FILTER (clicked) AS choices FROM '{path}' GROUP BY ALL) TO '{path}.counts.parquet'""")
        database.close()


def build(path: str, *, estimated: bool) -> None:
    """Build the evidence."""
    shutil.rmtree(f"{path}.evidence", ignore_errors=True)
    slope = 1 / np.arange(1.0, 11.0)
    known = Examination("swaps", np.arange(1, 11), slope, np.zeros(10), slope, slope, "known")
    with use_threads(THREADS), open_clicks([path], LogOptions(memory=MEMORY, threads=THREADS)) as log:
        write_evidence(log, estimate_examination(log.counts()) if estimated else known, f"{path}.evidence", [path])


def evidence(path: str) -> None:
    """Build with a known examination, as for the log of a night."""
    build(path, estimated=False)


def evidence_and_examination(path: str) -> None:
    """Build with an examination that is estimated first."""
    build(path, estimated=True)


def measured(side: str, path: str) -> tuple[float, float]:
    """Return seconds and peak memory in GB of one side, in this process."""
    start = time.perf_counter()
    {"aggregate": aggregate, "evidence": evidence, "with examination": evidence_and_examination}[side](path)
    return time.perf_counter() - start, peak_memory()


def building(impressions: int, rounds: int) -> dict[str, Any]:
    """Measure the three sides in turns."""
    sides: dict[str, list[tuple[float, float]]] = {"aggregate": [], "evidence": [], "with examination": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write_log(path, impressions)
        for _ in range(rounds):
            for side, runs in sides.items():
                with get_context("spawn").Pool(1) as pool:
                    runs.append(pool.apply(measured, (side, str(path))))
                log_progress(f"{side}: {runs[-1][0]:.1f} s, {runs[-1][1]:.2f} GB")
    seconds = {side: median(run[0] for run in runs) for side, runs in sides.items()}
    return {
        "seconds": {side: round(value, 2) for side, value in seconds.items()},
        "times the aggregation": {
            side: round(value / seconds["aggregate"], 2) for side, value in seconds.items() if side != "aggregate"
        },
        "GB": {side: round(max(run[1] for run in runs), 2) for side, runs in sides.items()},
    }


def run(largest: str = "1e7", impressions: str = "1e7", rounds: str = "3") -> dict[str, Any]:
    """Measure ranking and building."""
    return {
        "ranking": ranking(int(float(largest)), int(rounds)),
        "building": {"impressions": int(float(impressions)), **building(int(float(impressions)), int(rounds))},
    }
