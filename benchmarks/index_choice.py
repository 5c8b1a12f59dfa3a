"""A scan is the fastest index for tens of thousands of points; IVF is faster from about 100,000 on.

One thread, 400 neighbors in 46 dimensions. The points resemble descriptions: correlated and in loose groups. The
indexes take turns on the same single queries; recall is relative to the exact scan. ``--points 1e6`` adds a million
points (HNSW takes some minutes to build).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.common import interleaved, log_progress, medians
from kinrank.kin.indexes import INDEXES, choose_index

OPTIONS = {"points": ("1e5", "1e4", "1e6")}
DIM, K, QUERIES = 46, 400, 40


def descriptions(n: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return points in a hundred overlapping groups, with correlated coordinates."""
    centers = np.random.default_rng(7).standard_normal((100, DIM))
    mixing = np.random.default_rng(8).standard_normal((DIM, DIM)) / DIM**0.5
    return ((centers[rng.integers(0, 100, n)] + rng.standard_normal((n, DIM))) @ mixing).astype(np.float32)


def measure(n: int) -> dict[str, object]:
    """Return milliseconds per query, seconds to build, and recall of every index with `n` points."""
    rng = np.random.default_rng(0)
    points, queries = descriptions(n, rng), descriptions(QUERIES, rng)
    indexes, build = {}, {}
    for name in INDEXES:
        start = time.perf_counter()
        indexes[name] = INDEXES[name]().fit(points)
        build[name] = round(time.perf_counter() - start, 2)
        log_progress(f"{n:>9,} points: {name} built in {build[name]} s")
    truth = indexes["exact"].query(queries, K)[1]
    recall = {}
    for name, index in indexes.items():
        found = index.query(queries, K)[1]
        recall[name] = round(float(np.mean([np.isin(a, b).mean() for a, b in zip(truth, found, strict=True)])), 3)
    turn = iter(range(10**9))
    calls = {
        name: lambda index=index: index.query(queries[[next(turn) % QUERIES]], K) for name, index in indexes.items()
    }
    typical = medians(interleaved(calls, 60 if n < 10**6 else 15, warm=3))
    return {
        "ms_per_query": {name: round(1e3 * seconds, 3) for name, seconds in typical.items()},
        "build_seconds": build,
        "recall": recall,
        "chosen": choose_index(n, DIM),
        "fastest": min(typical, key=lambda name: typical[name]),
    }


def run(points: str = "1e5") -> dict[str, object]:
    """Measure every size up to `points`."""
    sizes = [n for n in (10**4, 10**5, 10**6) if n <= float(points)]
    with threadpool_limits(limits=1):
        return {"dim": DIM, "k": K, "threads": 1} | {f"{n}": measure(n) for n in sizes}
