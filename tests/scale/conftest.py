"""Judged queries on disk in many small blocks, their reference model, and ways to disturb training."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from kinrank import CellRanker, KinRanker, QuerySet
from kinrank.datasets import make_intents
from kinrank.learn.lambdamart import LambdaMART
from kinrank.scale import train
from tests.rankers.test_kin_memory import shop

BLOCK_ROWS = 200
SETTINGS = CellRanker(60, n_cells=12, reference="reference")
BEFORE = 34  # tasks before the first block is summed: read 33 blocks for the sample, fit cells
N_TASKS = 37  # 33 blocks, 3 sums of up to 16 blocks, 1 sum of those
TREES = LambdaMART(n_trees=5, n_leaves=4, min_rows_in_leaf=5, n_threads=1)
KIN = KinRanker(
    60,
    trees=TREES,
    settings={"n_cells": 12, "tree_queries": 200, "n_members": 2, "n_repeats": 1, "reference": "reference"},
)
REMEMBERED_ROWS = 600
REMEMBERING = KinRanker(
    60,
    keys=["brand"],
    trees=TREES,
    describe="summaries",
    settings={"n_cells": 12, "tree_queries": 200, "n_members": 2, "n_repeats": 1},
)
N_KIN = N_TASKS + 33 + 2  # a table per block, two tree models


@pytest.fixture(scope="session")
def queries() -> QuerySet:
    intents = make_intents(600, 100, n_docs=10, n_features=6, spread=1.0, seed=3)
    return intents.replace(doc_id=None, query_columns={})


@pytest.fixture(scope="session")
def judged(queries: QuerySet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 600 queries of 10 rows to 3 files; row groups of 93 rows split queries anywhere."""
    folder = tmp_path_factory.mktemp("judged")
    table = queries[:600].to_table()
    for number in range(3):
        part = table.slice(2000 * number, 2000)
        pq.write_table(part, folder / f"part-{number}.parquet", row_group_size=93, write_page_checksum=True)
    return folder


@pytest.fixture(scope="session")
def reference_bytes(judged: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of a model trained without interruption."""
    model = tmp_path_factory.mktemp("reference_bytes") / "model"
    train(judged, model, SETTINGS, block_rows=BLOCK_ROWS)
    return model_bytes(model)


@pytest.fixture(scope="session")
def kin_bytes(judged: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of a KinRanker trained without interruption."""
    model = tmp_path_factory.mktemp("kin_bytes") / "model"
    train(judged, model, KIN, block_rows=BLOCK_ROWS)
    return model_bytes(model)


@pytest.fixture(scope="session")
def known() -> QuerySet:
    """Return queries for things with texts, documents, brands and vectors of their topics."""
    queries = shop(480, seed=1)
    topics = [text.split() for text in queries.query_columns["text"]]
    rng = np.random.default_rng(0)
    of_word = {word: rng.normal(size=8) for word in sorted({word for words in topics for word in words})}
    vectors = np.array([sum(of_word[word] for word in words) for words in topics], dtype=np.float32)
    return queries.replace(query_columns={**queries.query_columns, "vector": vectors})


@pytest.fixture(scope="session")
def remembered(known: QuerySet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 400 queries whose memory pays to a file; row groups split queries anywhere."""
    folder = tmp_path_factory.mktemp("remembered")
    pq.write_table(known[:400].to_table(), folder / "judged.parquet", row_group_size=97)
    return folder


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split known queries into shards of 110."""
    monkeypatch.setattr("kinrank.scale._memory.BLOCK", 110)


@pytest.fixture(scope="session")
def remembering_bytes(remembered: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of a KinRanker with memory, trained without interruption."""
    model = tmp_path_factory.mktemp("remembering_bytes") / "model"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("kinrank.scale._memory.BLOCK", 110)
        train(remembered, model, REMEMBERING, block_rows=REMEMBERED_ROWS)
    return model_bytes(model)


def model_bytes(model: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(model.rglob("*.*"))}


class ChaoticExecutor:
    """Executor that yields in random order, runs some items twice, and may fail after some."""

    def __init__(self, seed: int, fails_after: int | None = None) -> None:
        self.random = random.Random(seed)
        self.left = fails_after

    def map_unordered(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        order = list(range(len(items)))
        self.random.shuffle(order)
        for position in order:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left = None if self.left is None else self.left - 1
            if self.random.random() < 0.3:
                function(items[position])
            yield position, function(items[position])


def interrupt_after_plan(data: Path, model: Path) -> None:
    """Leave a job that was interrupted after planning, so that it resumes with summing."""
    with pytest.raises(KeyboardInterrupt):
        train(data, model, SETTINGS, block_rows=BLOCK_ROWS, executor=ChaoticExecutor(0, BEFORE))
    assert {file.name for file in Path(f"{model}.job").iterdir()} == {"job.json", "plan.npz"}


def summed_blocks(model: Path) -> set[int]:
    """Return the blocks that a job has summed so far."""
    return {int(file.stem.removeprefix("sums-0-")) for file in Path(f"{model}.job").glob("sums-0-*.npz")}


@contextmanager
def damaged(file: Path, group: int) -> Iterator[None]:
    """Flip a byte in a row group of a Parquet file, keeping its size and time; restore it at the end."""
    good, times = file.read_bytes(), file.stat()
    bad = bytearray(good)
    bad[pq.ParquetFile(file).metadata.row_group(group).column(4).data_page_offset + 40] ^= 0xFF
    _rewrite(file, bad, times)
    yield
    _rewrite(file, good, times)


def _rewrite(file: Path, content: bytes | bytearray, times: os.stat_result) -> None:
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
