"""Helpers that several benchmarks share: the judged collections, progress and timing."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from kinrank import QuerySet
from reproduction.data_folder import DataFolder


def data_dir() -> Path:
    """Return the folder of the judged collections: ``KINRANK_DATA``, or ``shared/data`` next to the checkout."""
    return Path(os.environ.get("KINRANK_DATA", Path(__file__).parents[2] / "shared" / "data"))


def log_progress(text: str) -> None:
    """Print a line to standard error."""
    print(text, file=sys.stderr, flush=True)


def collections() -> DataFolder:
    """Return the judged collections."""
    return DataFolder(data_dir())


def letor_part(collection: str, part: int) -> QuerySet:
    """Return part 1 to 5 of a LETOR collection."""
    return collections().letor_part(collection, part)


def letor_folds(collection: str) -> Iterator[tuple[QuerySet, QuerySet, QuerySet]]:
    """Yield the five official folds: training, validation and test queries."""
    return collections().letor_folds(collection)


def msrd() -> dict[str, QuerySet]:
    """Return MSRD's 20 features in its fixed split by movie: ``train``, ``vali`` and ``test``."""
    return dict(zip(("train", "vali", "test"), collections().msrd(), strict=True))


def movie_of(qid: np.ndarray) -> np.ndarray:
    """Return the movie of MSRD queries, by which they are tested: those about the same movie are not independent."""
    stored = np.load(data_dir() / "text" / "msrd" / "features20.npz")
    movie = dict(zip(stored["qid"].astype(np.str_).tolist(), stored["movie"].astype(np.str_).tolist(), strict=True))
    return np.array([movie[each] for each in qid.astype(np.str_).tolist()])


def judged_text(collection: str) -> tuple[QuerySet, np.ndarray]:
    """Return the features of ``mwmbl`` or ``icecat`` and the fold (1 to 5) of each query."""
    return collections().judged_text(collection)


def memory_mb(field: str, pid: int | str = "self") -> float:
    """Return a size of a process in megabytes by its name in /proc: VmRSS now, VmHWM at most."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/{pid}/status has no {field}")


def interleaved(calls: dict[str, Callable[[], object]], repeats: int, *, warm: int = 1) -> dict[str, list[float]]:
    """Time each call `repeats` times, in seconds.

    The calls take turns, so that other load on the machine affects all of them alike. The first `warm` rounds do not
    count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(warm + repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn >= warm:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Return the median time of each call."""
    return {name: statistics.median(times) for name, times in seconds.items()}
