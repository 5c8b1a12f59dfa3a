"""Training on Ray takes at most 1.2 times a plain loop; two workers reach 0.85 of a process pool; growth is linear.

The data are 10^6 generated queries with 40 documents and 46 features, 7.5 GB of Parquet in a temporary folder (deleted
afterwards; needs 12 GB of free space). There are 1,024 cells and blocks of 400,000 rows, on a Ray cluster of this
machine's cores. Four ways compute the same blocks with the same plan: a plain loop in this process (read, sum, add),
Ray with one worker (the time of its tasks), a plain pool of two processes, and Ray with two workers (both in wall-clock
time). At 10^5 queries all four take turns three times, at 10^6 once. Then `kinrank.scale.train` is timed at both sizes,
and the bytes of the model from Ray are compared with those from one process. Takes about 12 minutes on two idle cores;
``--size small`` takes a tenth of that.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import log_progress
from kinrank import CellRanker
from kinrank.data.parquet import ParquetBlocks
from kinrank.parallel import Executor, Serial
from kinrank.rankers.cells._training import CellPlan, CellStatistics
from kinrank.scale import RayCluster, TrainingProgress, train
from kinrank.scale._sum_tree import JobFolder, SumTree
from kinrank.scale.training import open_blocks

OPTIONS = {"size": ("full", "small")}
DOCS, FEATURES, INTENTS, CELLS = 40, 46, 3, 1024
QUERIES_PER_FILE, ROWS_PER_GROUP = 10_000, 200_000
RANKER = CellRanker(400, n_cells=CELLS, describe="summaries", reference=0)


def run(size: str = "full") -> dict[str, object]:
    """Measure all four ways at both sizes, and all of `train`."""
    small, large = (100_000, 1_000_000) if size == "full" else (20_000, 100_000)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if shutil.disk_usage(folder).free < 12e3 * large:
            raise SystemExit(f"{folder}: less than {12e-6 * large:.0f} GB free: set TMPDIR to a larger disk")
        generate(folder / "large", large)
        (folder / "small").mkdir()
        for file in sorted((folder / "large").iterdir())[: small // QUERIES_PER_FILE]:
            (folder / "small" / file.name).symlink_to(file)
        figures: dict[str, object] = {"queries": large, "documents": DOCS, "features": FEATURES, "cells": CELLS}
        figures["one block"] = stages(folder / "small")
        small_figures, large_figures = four_ways(folder / "small", folder, 3), four_ways(folder / "large", folder, 1)
        figures |= {f"{small:,} queries": small_figures, f"{large:,} queries": large_figures}
        figures["exponent of one worker's time"] = exponent(
            *(statistics.median(each["seconds"]["Ray, one worker"]) for each in (small_figures, large_figures)),
            large / small,
        )
        figures["train"] = time_train(folder, small, large)
    return figures


def exponent(small: float, large: float, growth: float) -> float:
    """Return the exponent with which time grows with the data; 1 is linear."""
    return round(math.log(large / small) / math.log(growth), 3)


def generate(folder: Path, n_queries: int) -> None:
    """Write queries of three intents with different weights; the mean of a query's features reveals its intent."""
    folder.mkdir()
    shared = np.random.default_rng(0)
    weights = shared.standard_normal((INTENTS, FEATURES)).astype(np.float32)
    means = 0.5 * shared.standard_normal((INTENTS, FEATURES)).astype(np.float32)
    names = ["qid", "y", *(f"f{column}" for column in range(1, FEATURES + 1))]
    for number in range(n_queries // QUERIES_PER_FILE):
        rng = np.random.default_rng([1, number])
        rows = QUERIES_PER_FILE * DOCS
        intent = np.repeat(rng.integers(INTENTS, size=QUERIES_PER_FILE), DOCS)
        X = rng.standard_normal((FEATURES, rows), dtype=np.float32)  # by column, as in Parquet
        score = np.einsum("fr,rf->r", X, weights[intent]) + 3 * rng.standard_normal(rows, dtype=np.float32)
        y = np.digitize(score, [5.0, 10.0]).astype(np.float32)
        X += means.T[:, intent]
        qid = np.repeat(np.arange(QUERIES_PER_FILE) + number * QUERIES_PER_FILE, DOCS)
        table = pa.table([pa.array(qid), pa.array(y), *map(pa.array, X)], names=names)
        pq.write_table(
            table,
            folder / f"{number:04}.parquet",
            row_group_size=ROWS_PER_GROUP,
            compression="none",
            use_dictionary=False,
        )
        if number % 20 == 19:
            log_progress(f"generated {(number + 1) * QUERIES_PER_FILE:,} queries")


def four_ways(data: Path, folder: Path, repeats: int) -> dict[str, Any]:
    """Time the plain loop, Ray with one worker, a pool of two processes and Ray with two workers, in turns."""
    blocks = open_blocks(data, None, CELLS)
    if not isinstance(blocks, ParquetBlocks):
        raise TypeError(f"expected Parquet data, got {type(blocks).__name__}")
    plan = RANKER.plan_cells(blocks, Serial())
    log_progress(f"{data.name}: {len(blocks)} blocks, plan ready")
    reports: list[TrainingProgress] = []

    def on_ray(workers: int) -> tuple[float, float]:
        with cluster(workers) as executor:
            list(executor.map_unordered(math.sqrt, range(workers)))  # starts the workers
            warm = SumTree(plan, open_blocks(data, None, CELLS), JobFolder(folder / "warm", {}))
            list(executor.map_unordered(_Warm(warm), range(2 * workers)))
            tree = SumTree(plan, blocks, JobFolder(folder / "job", {}))
            done: list[TrainingProgress] = []
            start = time.perf_counter()
            tree.run(executor, done.append)
            elapsed = time.perf_counter() - start
            for job in ("warm", "job"):
                shutil.rmtree(folder / job)
            reports.extend(done)
            return elapsed, sum(report.seconds for report in done)

    ways: dict[str, Callable[[], float]] = {
        "plain loop": lambda: plain_loop(plan, blocks),
        "Ray, one worker": lambda: on_ray(1)[1],
        "pool of two processes": lambda: process_pool(pool, plan, blocks),
        "Ray, two workers": lambda: on_ray(2)[0],
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with two_processes(plan, blocks) as pool:
        for _ in range(repeats):
            for name, way in ways.items():
                seconds[name].append(way())
                log_progress(f"{data.name}: {name} {seconds[name][-1]:.1f} s")
    median = {name: statistics.median(each) for name, each in seconds.items()}
    return {
        "seconds": {name: [round(value, 1) for value in each] for name, each in seconds.items()},
        "worker time / plain loop": round(median["Ray, one worker"] / median["plain loop"], 3),
        "speed / pool": round(median["pool of two processes"] / median["Ray, two workers"], 3),
        "speed of the pool / plain loop": round(median["plain loop"] / median["pool of two processes"], 2),
        "seconds per block, median": round(
            statistics.median(report.seconds for report in reports if report.level == 0), 2
        ),
        "peak MB of a worker": round(max(report.peak_mb for report in reports)),
    }


class _Warm:
    """Computes one block, so that compiled code is loaded before timing."""

    def __init__(self, tree: SumTree) -> None:
        self.tree = tree

    def __call__(self, _: int) -> None:
        self.tree.make(0, 0)


def plain_loop(plan: CellPlan, blocks: ParquetBlocks) -> float:
    """Return the seconds to read, sum and add in this process."""
    start = time.perf_counter()
    total = CellStatistics.empty(plan.learner, len(plan.tree), FEATURES)
    for block in range(len(blocks)):
        total.merge(plan.sums(blocks.read(block)))
    return time.perf_counter() - start


@contextmanager
def two_processes(plan: CellPlan, blocks: ParquetBlocks) -> Iterator[Pool]:
    """Start two warm processes, forked from a server that has none of Ray's threads and locks."""
    with multiprocessing.get_context("forkserver").Pool(2, _share, (plan, blocks)) as pool:
        pool.map(_sum_block, [0] * 4, chunksize=1)
        yield pool


def process_pool(pool: Pool, plan: CellPlan, blocks: ParquetBlocks) -> float:
    """Return the seconds of two processes, which send sums back through a pipe."""
    start = time.perf_counter()
    total = CellStatistics.empty(plan.learner, len(plan.tree), FEATURES)
    for packed in pool.imap_unordered(_sum_block, range(len(blocks))):
        total.merge_packed(packed)
    return time.perf_counter() - start


_shared: dict[str, Any] = {}


def _share(plan: CellPlan, blocks: ParquetBlocks) -> None:
    _shared.update(plan=plan, blocks=blocks)


def _sum_block(block: int) -> dict[str, np.ndarray]:
    return _shared["plan"].sums(_shared["blocks"].read(block)).pack()


@contextmanager
def cluster(workers: int) -> Iterator[RayCluster]:
    """Start a Ray cluster on some cores of this machine."""
    import ray

    # The same priority as the loops they are compared with. This is how Ray spells the name.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="warning")
    try:
        yield RayCluster()
    finally:
        ray.shutdown()


def stages(data: Path) -> dict[str, float]:
    """Return microseconds per query of each step, on one block, the median of five."""
    blocks = open_blocks(data, None, CELLS)
    plan = RANKER.plan_cells(blocks, Serial())
    plan.sums(blocks.read(0))
    taken: dict[str, list[float]] = {"read": [], "describe": [], "find the cell": [], "scale and sum": []}
    for _ in range(5):
        start = time.perf_counter()
        parts = list(blocks.read(0))
        taken["read"].append(time.perf_counter() - start)
        start = time.perf_counter()
        points = [plan.points(part) for part in parts]
        taken["describe"].append(time.perf_counter() - start)
        start = time.perf_counter()
        for some in points:
            plan.tree.assign(some)
        taken["find the cell"].append(time.perf_counter() - start)
        start = time.perf_counter()
        plan.sums(parts)
        total = time.perf_counter() - start
        taken["scale and sum"].append(total - taken["describe"][-1] - taken["find the cell"][-1])
    n_queries = sum(len(part) for part in parts)
    return {
        f"{name}, us per query": round(1e6 * statistics.median(each) / n_queries, 1) for name, each in taken.items()
    }


def time_train(folder: Path, small: int, large: int) -> dict[str, object]:
    """Time `train` with two Ray workers, and compare the bytes of the small model with those of one process."""
    seconds = {}

    def trained(name: str, executor: Executor) -> float:
        start = time.perf_counter()
        train(folder / name, folder / "model", RANKER, executor=executor)
        log_progress(f"train {name}: {time.perf_counter() - start:.1f} s")
        return time.perf_counter() - start

    trained("small", Serial())
    by_one = {file.name: file.read_bytes() for file in (folder / "model").rglob("*.*")}
    with cluster(2) as executor:
        seconds[small] = min(trained("small", executor) for _ in range(2))
        by_ray = {file.name: file.read_bytes() for file in (folder / "model").rglob("*.*")}
        seconds[large] = trained("large", executor)
    return {
        "seconds": {f"{size:,} queries": round(value, 1) for size, value in seconds.items()},
        "exponent": exponent(seconds[small], seconds[large], large / small),
        "same bytes on Ray": by_one == by_ray,
    }
