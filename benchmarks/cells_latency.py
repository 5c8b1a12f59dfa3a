"""Learning and ranking with cells costs at most 1.3 times as much at 10^7 judged queries as at 10^4.

``CellRanker.predict`` ranks one query at a time, with 100 candidates and 46 features, on one thread. There are 1,000
cells for every number m of judged queries, and k = m / 25, so that a model is learned from 40 cells. Calls of all sizes
take turns on the same queries. The statistics of m > 10^4 queries are generated per cell: the cost of a local model
depends on the size of the arrays, not on their values. For comparison: exact KNN at 10^4 (k = 400), and 65,536 cells at
10^7, found by a scan of their centers and by FAISS's IVF, with the share of the nearest cells that IVF finds. Memory is
that of a process that loads the model and ranks with it, minus that of one that does not: private memory, and mapped
pages of the model folder, which the operating system can reclaim.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import interleaved, log_progress
from benchmarks.knn_latency import random_queries
from kinrank import CellRanker, QuerySet, load
from kinrank.kin.indexes._cells import CellTree
from kinrank.rankers import Ranker
from kinrank.rankers.cells._training import CellPlan, CellStatistics
from reproduction.knn import uniform_knn

FEATURES, CANDIDATES, QUERIES, WARM = 46, 100, 300, 20
SMALLEST = 10_000
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
CELLS, LEARNED_FROM, MANY = 1_000, 40, 65_536
SCAN, IVF = "exact", "faiss-ivf"


def run() -> dict[str, object]:
    """Return milliseconds and megabytes for every size."""
    with threadpool_limits(limits=1), tempfile.TemporaryDirectory() as folder:
        judged = random_queries(SMALLEST, 40, FEATURES, 0)
        exact = uniform_knn(400, reference=0).fit(judged)
        rankers = {f"exact KNN, m = {SMALLEST:,}": exact}
        small = CellRanker(n_cells=CELLS, describe="mean", reference=0, neighbor_weights="uniform", prior="none").fit(
            judged
        )
        for m in SIZES:
            rankers[f"{CELLS:,} cells, m = {m:,}"] = generated(small, m, CELLS)
        for index in (SCAN, IVF):
            rankers[many(index)] = generated(small, SIZES[-1], MANY, index)
        found = share_found(rankers[many(SCAN)], rankers[many(IVF)], random_queries(QUERIES, CANDIDATES, FEATURES, 1))
        paths = {name: Path(folder) / str(number) for number, name in enumerate(rankers)}
        for name, ranker in rankers.items():
            ranker.save(paths[name])
        log_progress("wrote the models")
        queries = random_queries(QUERIES, CANDIDATES, FEATURES, 1)
        times = measure({name: load(path) for name, path in paths.items()}, queries)
        memory = {name: resident_mb(path) for name, path in paths.items()}
    figures = {
        name: {
            "median ms": round(float(np.median(each)), 3),
            "p99 ms": round(float(np.quantile(each, 0.99)), 3),
            "private MB": memory[name][0],
            "mapped MB": memory[name][1],
        }
        for name, each in times.items()
    }
    first, last = (np.median(times[f"{CELLS:,} cells, m = {m:,}"]) for m in (SIZES[0], SIZES[-1]))
    return {
        **figures,
        "10^7 against 10^4": round(float(last / first), 3),
        "IVF against the scan": round(float(np.median(times[many(IVF)]) / np.median(times[many(SCAN)])), 3),
        "nearest cells that IVF finds": round(found, 3),
    }


def many(index: str) -> str:
    """Return the name of the ranker with very many cells."""
    return f"{MANY:,} cells, m = {SIZES[-1]:,}, {index}"


def share_found(scan: CellRanker, ivf: CellRanker, queries: QuerySet) -> float:
    """Return the share of the nearest cells that an approximate index finds."""
    points = scan.model_.describer.transform(queries)
    (_, nearest), (_, found) = (ranker.model_.index.query(points, LEARNED_FROM) for ranker in (scan, ivf))
    shared = [len(np.intersect1d(*both)) for both in zip(nearest, found, strict=True)]
    return float(np.mean(shared)) / LEARNED_FROM


def generated(small: CellRanker, m: int, n_cells: int, index: str = "auto") -> CellRanker:
    """Return a ranker of m judged queries in `n_cells` cells, with sums drawn from those of a small one."""
    rng = np.random.default_rng(m)
    tree = small.model_.tree
    drawn = np.arange(n_cells) if n_cells == len(tree) else rng.integers(len(tree), size=n_cells)
    if n_cells != len(tree):
        centers = tree.centers_[drawn] + 0.1 * rng.standard_normal((n_cells, tree.centers_.shape[1]), dtype=np.float32)
        tree = CellTree.from_state(
            {"groups": centers[:1], "starts": np.array([0, n_cells]), "centers": centers.astype(np.float32)}
        )
    plan = small.model_.plan
    memory = CellStatistics.empty(plan.learner, n_cells, FEATURES)
    known = small.model_.training_set
    factor = m / known.counts[drawn].sum()
    for cell, source in enumerate(drawn):
        memory.statistics.gram[cell] = factor * known.statistics.gram[source]
        memory.statistics.moment[cell] = factor * known.statistics.moment[source]
    memory.statistics.pairs[:] = factor * known.pairs[drawn]
    memory.counts[:] = factor * known.counts[drawn]
    changed = {"n_cells": n_cells, "n_neighbors": m * LEARNED_FROM // n_cells, "index": index}
    ranker = CellRanker(**{**small.get_params(deep=False), **changed})
    ranker.n_features_in_, ranker.feature_names_ = small.n_features_in_, small.feature_names_
    return ranker.set_cells(CellPlan(plan.learner, plan.preparer, plan.describer, tree, plan.usual_distances), memory)


def measure(rankers: dict[str, Ranker], queries: QuerySet) -> dict[str, np.ndarray]:
    """Return milliseconds of each ranker for each query, measured in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in rankers}
    for query in queries:
        calls = {name: lambda r=ranker, X=query.X: r.predict(X) for name, ranker in rankers.items()}
        for name, times in interleaved(calls, repeats=1, warm=0).items():
            seconds[name].extend(times)
    return {name: 1000 * np.array(times[WARM:]) for name, times in seconds.items()}


def resident_mb(model: Path) -> tuple[float, float]:
    """Return the private and mapped memory of a process with the model, minus those of one without it."""
    both = []
    for path in ("", str(model)):
        done = subprocess.run(
            [sys.executable, "-c", _PROCESS, path],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[1],
        )
        both.append(json.loads(done.stdout))
    private, mapped = (round(after - before, 1) for before, after in zip(*both, strict=True))
    return private, mapped


_PROCESS = """
import sys
from benchmarks.knn_latency import random_queries
from kinrank import CellRanker, load
queries = random_queries(100, 100, 46, 1)
# Load compiled code, which is not part of the model.
CellRanker(10, describe="mean", reference=0, n_cells=5).fit(queries).predict(queries.X[:100])
if sys.argv[1]:
    ranker = load(sys.argv[1])
    for query in queries:
        ranker.predict(query.X)
kilobytes = dict(line.split(":") for line in open("/proc/self/status"))
print([int(kilobytes[field].split()[0]) / 1024 for field in ("RssAnon", "RssFile")])
"""
