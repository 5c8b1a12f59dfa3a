"""What several claims share: where the data is, folds, timing side by side."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kinrank import QuerySet
from reproduction.catalog import PARTS
from reproduction.data_folder import DataFolder
from reproduction.keep import Keeper
from reproduction.run import measure, usable_cores


def data_dir() -> Path:
    """The judged collections: the setting KINRANK_DATA, or shared/data beside the checkout."""
    return Path(os.environ.get("KINRANK_DATA", Path(__file__).parents[2] / "shared" / "data"))


def say(text: str) -> None:
    """A line of progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def collections() -> DataFolder:
    """The judged collections."""
    return DataFolder(data_dir())


def letor_part(collection: str, part: int) -> QuerySet:
    """Part 1..5 of a LETOR collection."""
    return collections().letor_part(collection, part)


def letor_folds(collection: str) -> Iterator[tuple[QuerySet, QuerySet, QuerySet]]:
    """The five official (train, validation, test) folds."""
    return collections().letor_folds(collection)


def msrd() -> dict[str, QuerySet]:
    """MSRD's 20 ready features, its fixed split by movie: ``train``, ``vali``, ``test``."""
    return dict(zip(("train", "vali", "test"), collections().msrd(), strict=True))


def judged_text(collection: str) -> tuple[QuerySet, np.ndarray]:
    """The ready features of ``mwmbl`` or ``icecat``, and the fold (1..5) of each query."""
    return collections().judged_text(collection)


def reproduced(part: str) -> dict[str, Any]:
    """The figures of an experiment of ``python -m reproduction``, measured anew on all cores."""
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(Path(folder), collections())
        measured = measure([PARTS[part]], keeper, jobs=usable_cores(), done=lambda _, piece: say(f"{part}: {piece}"))
    return measured[part].figures


def interleaved(calls: dict[str, Callable[[], object]], repeats: int, *, warm: int = 1) -> dict[str, list[float]]:
    """Seconds of each call, `repeats` times, taking turns, so that a busy machine is busy for all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(warm + repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn >= warm:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    """The median of each call's seconds."""
    return {name: statistics.median(times) for name, times in seconds.items()}
