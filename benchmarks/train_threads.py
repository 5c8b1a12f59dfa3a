"""Boosted trees train on busy cores about as fast with the default threads as with one.

As many processes as cores do nothing but count, while LambdaMART is trained in new processes: with one thread, with the
default, and as OpenMP would by itself, one spinning thread per core. Settings take turns; figures are medians.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import subprocess
import sys

from benchmarks.common import log_progress
from kinrank.parallel import usable_cores

OPTIONS = {"repeats": ("5", "2")}
SETTINGS = {
    "one thread": ({"OMP_NUM_THREADS": "1"}, 1),
    "default": ({}, 0),
    "a spinning thread per core": ({"OMP_WAIT_POLICY": "active"}, usable_cores()),
}
SIZES = {"800 queries": 800, "20,000 queries": 20_000}
TRAIN = """
import sys, time
from kinrank.datasets import make_intents
from kinrank.learn.lambdamart import LambdaMART
queries = make_intents(int(sys.argv[1]), 0, n_docs=24, n_features=26, spread=1.0)
model = LambdaMART(30, n_leaves=15, n_threads=int(sys.argv[2]))
model.fit(queries[:50])
start = time.perf_counter()
model.fit(queries)
print(time.perf_counter() - start)
"""


def run(repeats: str) -> dict[str, object]:
    """Return the time to train in seconds, and relative to one thread, on idle and on busy cores."""
    figures: dict[str, object] = {"cores": usable_cores()}
    for busy in (False, True):
        others = [multiprocessing.Process(target=count, daemon=True) for _ in range(usable_cores() if busy else 0)]
        for other in others:
            other.start()
        try:
            for name, n_queries in SIZES.items():
                figures[f"{'busy' if busy else 'idle'}, {name}"] = compared(n_queries, int(repeats))
        finally:
            for other in others:
                other.kill()
    return figures


def count() -> None:
    """Use a core until killed."""
    while True:
        pass


def compared(n_queries: int, repeats: int) -> dict[str, object]:
    """Return the time with each setting, and relative to one thread."""
    seconds: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for _ in range(repeats):
        for name, (environment, n_threads) in SETTINGS.items():
            seconds[name].append(timed(n_queries, environment, n_threads))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    figures = {
        name: {"seconds": round(each, 2), "ratio": round(each / medians["one thread"], 2)}
        for name, each in medians.items()
    }
    log_progress(f"{n_queries} queries: {figures}")
    return dict(figures)


def timed(n_queries: int, environment: dict[str, str], n_threads: int) -> float:
    """Return the time to train in a new process, which reads OpenMP's settings anew."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    command = [sys.executable, "-c", TRAIN, str(n_queries), str(n_threads)]
    done = subprocess.run(command, env=kept | environment, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)
