"""Training on Ray costs at most 1.2 times the bare loop, two workers reach 0.85 of a bare fork pool, growth is linear.

10^6 generated queries x 40 documents x 46 features, 7.5 GB of Parquet in a temporary folder (deleted afterwards; needs
12 GB free), 1,024 cells, blocks of 400,000 rows, on a Ray cluster of this machine's cores. The same plan and the same
blocks for all: a bare loop in this process (read, sum, add), Ray with one worker (the sum of its workers' seconds), a
bare fork pool of two, and Ray with two workers; the last two by the clock. At 10^5 queries all four take turns three
times, at 10^6 once. Then `kinrank.scale.train` as a user calls it at both sizes, and its exponent; and the bytes of the
model from Ray against those from one process. Quiet, on two cores, about 12 minutes; ``--size small`` is a tenth of it.
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
from kinrank.data.parquet_blocks import ParquetBlocks
from kinrank.parallel import Executor, Serial
from kinrank.rankers.cells.statistics import CellStatistics
from kinrank.rankers.cells.training import CellPlan
from kinrank.scale import RayCluster, TrainingProgress, train
from kinrank.scale.folder import JobFolder
from kinrank.scale.training import SumTree, open_blocks

OPTIONS = {"size": ("full", "small")}
DOCS, FEATURES, INTENTS, CELLS = 40, 46, 3, 1024
QUERIES_PER_FILE, ROWS_PER_GROUP = 10_000, 200_000
RANKER = CellRanker(400, n_cells=CELLS, describe="summaries", reference=0)


def run(size: str = "full") -> dict[str, object]:
    """All four ways at both sizes, and the whole of `train`."""
    small, large = (100_000, 1_000_000) if size == "full" else (20_000, 100_000)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if shutil.disk_usage(folder).free < 12e3 * large:
            raise SystemExit(f"{folder}: less than {12e-6 * large:.0f} GB free; set TMPDIR to a larger disk")
        generate(folder / "large", large)
        (folder / "small").mkdir()
        for file in sorted((folder / "large").iterdir())[: small // QUERIES_PER_FILE]:
            (folder / "small" / file.name).symlink_to(file)
        figures: dict[str, object] = {"queries": large, "documents": DOCS, "features": FEATURES, "cells": CELLS}
        figures["a block"] = stages(folder / "small")
        of_small, of_large = four_ways(folder / "small", folder, 3), four_ways(folder / "large", folder, 1)
        figures |= {f"{small:,} queries": of_small, f"{large:,} queries": of_large}
        figures["exponent of one worker's seconds"] = exponent(
            *(statistics.median(each["seconds"]["Ray, one worker, its seconds"]) for each in (of_small, of_large)),
            large / small,
        )
        figures["train"] = whole(folder, small, large)
    return figures


def exponent(small: float, large: float, growth: float) -> float:
    """How seconds grow with the data: 1 for in proportion."""
    return round(math.log(large / small) / math.log(growth), 3)


def generate(folder: Path, n_queries: int) -> None:
    """Queries of three intents, each with weights of its own; the mean of a query's features says which."""
    folder.mkdir()
    shared = np.random.default_rng(0)
    wanted = shared.standard_normal((INTENTS, FEATURES)).astype(np.float32)
    places = 0.5 * shared.standard_normal((INTENTS, FEATURES)).astype(np.float32)
    names = ["qid", "y", *(f"f{column}" for column in range(1, FEATURES + 1))]
    for number in range(n_queries // QUERIES_PER_FILE):
        rng = np.random.default_rng([1, number])
        rows = QUERIES_PER_FILE * DOCS
        intent = np.repeat(rng.integers(INTENTS, size=QUERIES_PER_FILE), DOCS)
        X = rng.standard_normal((FEATURES, rows), dtype=np.float32)  # by column, as Parquet wants it
        score = np.einsum("fr,rf->r", X, wanted[intent]) + 3 * rng.standard_normal(rows, dtype=np.float32)
        y = np.digitize(score, [5.0, 10.0]).astype(np.float32)
        X += places.T[:, intent]
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
    """Seconds of the bare loop, of Ray's one worker, of a fork pool of two and of Ray with two workers, in turns."""
    blocks = open_blocks(data, None, CELLS)
    if not isinstance(blocks, ParquetBlocks):
        raise TypeError("the data are Parquet")
    plan = RANKER.plan_cells(blocks, Serial())
    log_progress(f"{data.name}: {len(blocks)} blocks, plan settled")
    batches: list[TrainingProgress] = []

    def on_ray(workers: int) -> tuple[float, float]:
        with cluster(workers) as executor:
            list(executor.map_unordered(math.sqrt, range(workers)))  # workers are there
            warm = SumTree(plan, open_blocks(data, None, CELLS), JobFolder(folder / "warm", {}))
            list(executor.map_unordered(_Warm(warm), range(2 * workers)))
            tree = SumTree(plan, blocks, JobFolder(folder / "job", {}))
            done: list[TrainingProgress] = []
            start = time.perf_counter()
            tree.run(executor, done.append)
            elapsed = time.perf_counter() - start
            for job in ("warm", "job"):
                shutil.rmtree(folder / job)
            batches.extend(done)
            return elapsed, sum(batch.seconds for batch in done)

    ways: dict[str, Callable[[], float]] = {
        "bare loop": lambda: bare_loop(plan, blocks),
        "Ray, one worker, its seconds": lambda: on_ray(1)[1],
        "bare fork pool of two": lambda: fork_pool(pool, plan, blocks),
        "Ray, two workers": lambda: on_ray(2)[0],
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with forked_pair(plan, blocks) as pool:
        for _ in range(repeats):
            for name, way in ways.items():
                seconds[name].append(way())
                log_progress(f"{data.name}: {name} {seconds[name][-1]:.1f} s")
    median = {name: statistics.median(each) for name, each in seconds.items()}
    return {
        "seconds": {name: [round(value, 1) for value in each] for name, each in seconds.items()},
        "worker time against the bare loop": round(median["Ray, one worker, its seconds"] / median["bare loop"], 3),
        "speed against the fork pool": round(median["bare fork pool of two"] / median["Ray, two workers"], 3),
        "fork pool's own speed-up": round(median["bare loop"] / median["bare fork pool of two"], 2),
        "batch seconds, median": round(statistics.median(b.seconds for b in batches if b.level == 0), 2),
        "peak MB of a worker": round(max(batch.peak_mb for batch in batches)),
    }


class _Warm:
    """One block, so that what is compiled is loaded before the clock runs."""

    def __init__(self, tree: SumTree) -> None:
        self.tree = tree

    def __call__(self, _: int) -> None:
        self.tree.make(0, 0)


def bare_loop(plan: CellPlan, blocks: ParquetBlocks) -> float:
    """Read, sum and add in this process."""
    start = time.perf_counter()
    total = CellStatistics.empty(plan.learner, len(plan.tree), FEATURES)
    for block in range(len(blocks)):
        total.merge(plan.sums(blocks.read(block)))
    return time.perf_counter() - start


@contextmanager
def forked_pair(plan: CellPlan, blocks: ParquetBlocks) -> Iterator[Pool]:
    """Two processes, warm before the clock runs as Ray's are; forked from a server without Ray's threads and locks."""
    with multiprocessing.get_context("forkserver").Pool(2, _give, (plan, blocks)) as pool:
        pool.map(_sum_block, [0] * 4, chunksize=1)
        yield pool


def fork_pool(pool: Pool, plan: CellPlan, blocks: ParquetBlocks) -> float:
    """The same by two forked processes; sums come back through a pipe."""
    start = time.perf_counter()
    total = CellStatistics.empty(plan.learner, len(plan.tree), FEATURES)
    for packed in pool.imap_unordered(_sum_block, range(len(blocks))):
        total.merge_packed(packed)
    return time.perf_counter() - start


_given: dict[str, Any] = {}


def _give(plan: CellPlan, blocks: ParquetBlocks) -> None:
    _given.update(plan=plan, blocks=blocks)


def _sum_block(block: int) -> dict[str, np.ndarray]:
    return _given["plan"].sums(_given["blocks"].read(block)).pack()


@contextmanager
def cluster(workers: int) -> Iterator[RayCluster]:
    """A Ray cluster of so many cores of this machine."""
    import ray

    # As nice as the loops they are compared with; the name is as Ray spells it.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="warning")
    try:
        yield RayCluster()
    finally:
        ray.shutdown()


def stages(data: Path) -> dict[str, float]:
    """Microseconds a query of each step, on one block, the median of five."""
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
        whole = time.perf_counter() - start
        taken["scale and sum"].append(whole - taken["describe"][-1] - taken["find the cell"][-1])
    n_queries = sum(len(part) for part in parts)
    return {f"{name}, us a query": round(1e6 * statistics.median(each) / n_queries, 1) for name, each in taken.items()}


def whole(folder: Path, small: int, large: int) -> dict[str, object]:
    """`train` as a user calls it, with two workers of Ray, and the bytes of the small model against one process's."""
    seconds = {}

    def trained(name: str, executor: Executor) -> float:
        start = time.perf_counter()
        train(folder / name, folder / "model", RANKER, executor=executor)
        log_progress(f"train {name}: {time.perf_counter() - start:.1f} s")
        return time.perf_counter() - start

    trained("small", Serial())
    by_one = {file.name: file.read_bytes() for file in (folder / "model").iterdir()}
    with cluster(2) as executor:
        seconds[small] = min(trained("small", executor) for _ in range(2))
        by_ray = {file.name: file.read_bytes() for file in (folder / "model").iterdir()}
        seconds[large] = trained("large", executor)
    return {
        "seconds": {f"{size:,} queries": round(value, 1) for size, value in seconds.items()},
        "exponent": exponent(seconds[small], seconds[large], large / small),
        "same bytes on Ray": by_one == by_ray,
    }
