"""What several claims share: where the data is, folds, timing side by side."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from kinrank import QuerySet, read_letor


def data_dir() -> Path:
    """The judged collections: the setting KINRANK_DATA, or shared/data beside the checkout."""
    return Path(os.environ.get("KINRANK_DATA", Path(__file__).parents[2] / "shared" / "data"))


def say(text: str) -> None:
    """A line of progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


@cache
def letor_part(collection: str, part: int) -> QuerySet:
    """Part 1..5 of a LETOR collection."""
    return read_letor(data_dir() / "letor" / collection / f"S{part}.txt.xz")


def letor_folds(collection: str) -> Iterator[tuple[QuerySet, QuerySet, QuerySet]]:
    """The five official (train, validation, test) folds: fold f trains on S_f .. S_f+2 and so on, wrapping after 5."""
    for fold in range(5):
        parts = [letor_part(collection, (fold + step) % 5 + 1) for step in range(5)]
        yield QuerySet.concat(parts[:3]), parts[3], parts[4]


@cache
def msrd() -> dict[str, QuerySet]:
    """MSRD's 20 ready features, its fixed split by movie: ``train``, ``vali``, ``test``.

    Query columns: ``words`` (how many), ``movie`` (the group), ``vector`` (the text of the query).
    """
    folder = data_dir() / "text" / "msrd"
    arrays = np.load(folder / "features20.npz")
    queries = QuerySet.from_arrays(
        arrays["X"],
        arrays["y"],
        qid=np.repeat(arrays["qid"], np.diff(arrays["offsets"])),
        doc_id=arrays["doc_id"],
        feature_names=arrays["names"].tolist(),
        query_columns={
            "words": arrays["query_words"],
            "movie": arrays["movie"],
            "vector": np.load(folder / "query_vectors.f16.npy").astype(np.float32),
        },
    )
    return {part: queries[arrays["split"] == part] for part in ("train", "vali", "test")}


def judged_text(collection: str) -> tuple[QuerySet, np.ndarray]:
    """The ready features of ``mwmbl`` or ``icecat``, and the fold (0..4) of each query."""
    arrays = np.load(data_dir() / "text" / collection / "features.npz")
    columns = {
        "words": arrays["query_words"],
        "text": arrays["query"],
        "vector": arrays["query_vectors"].astype(np.float32),
    }
    if "intent" in arrays:
        columns["intent"] = arrays["intent"]
    queries = QuerySet.from_arrays(
        arrays["X"],
        arrays["y"],
        qid=np.repeat(arrays["qid"], np.diff(arrays["offsets"])),
        doc_id=arrays["doc_id"],
        feature_names=arrays["names"].tolist(),
        query_columns=columns,
    )
    return queries, arrays["fold"]


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
