"""Judged queries on disk in many small blocks, the model that one undisturbed process makes of them, disturbances."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kinrank import CellRanker, QuerySet
from kinrank.datasets import make_intents
from kinrank.scale import train

BLOCK_ROWS = 200
SETTINGS = CellRanker(60, n_cells=12, reference="reference")
BEFORE = 34  # pieces of work before the first block is summed: 33 blocks are read for the sample, cells found
PIECES = 37  # 33 blocks, 3 sums of 16, 1 of those


@pytest.fixture(scope="session")
def queries() -> QuerySet:
    made = make_intents(600, 100, n_docs=10, n_features=6, spread=1.0, seed=3)
    return made.replace(doc_id=None, query_columns={})


@pytest.fixture(scope="session")
def judged(queries: QuerySet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 queries of 10 rows in 3 files; row groups of 93 rows cut queries anywhere."""
    folder = tmp_path_factory.mktemp("judged")
    table = queries[:600].to_table()
    for number in range(3):
        part = table.slice(2000 * number, 2000)
        pq.write_table(part, folder / f"part-{number}.parquet", row_group_size=93, write_page_checksum=True)
    return folder


@pytest.fixture(scope="session")
def undisturbed(judged: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the model."""
    model = tmp_path_factory.mktemp("undisturbed") / "model"
    train(judged, model, SETTINGS, block_rows=BLOCK_ROWS)
    return model_bytes(model)


def model_bytes(model: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(model.iterdir())}


class Chaotic:
    """Answers in any order, does some items twice, and may die after some."""

    def __init__(self, seed: int, dies_after: int | None = None) -> None:
        self.random = random.Random(seed)
        self.left = dies_after

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


def plan_alone(data: Path, model: Path) -> None:
    """Leave a job that was stopped when its plan was settled: who goes on begins with summing, reads nothing before."""
    with pytest.raises(KeyboardInterrupt):
        train(data, model, SETTINGS, block_rows=BLOCK_ROWS, executor=Chaotic(0, BEFORE))
    assert {file.name for file in Path(f"{model}.job").iterdir()} == {"job.json", "plan.npz"}


def blocks_kept(model: Path) -> set[int]:
    """The blocks that a job has summed so far."""
    return {int(file.stem.removeprefix("sums-0-")) for file in Path(f"{model}.job").glob("sums-0-*.npz")}


@contextmanager
def damaged(file: Path, group: int) -> Iterator[None]:
    """A wrong byte in a row group of a Parquet file, which its size and time do not show; mended at the end."""
    good, times = file.read_bytes(), file.stat()
    bad = bytearray(good)
    bad[pq.ParquetFile(file).metadata.row_group(group).column(4).data_page_offset + 40] ^= 0xFF
    _rewrite(file, bad, times)
    yield
    _rewrite(file, good, times)


def _rewrite(file: Path, content: bytes | bytearray, times: os.stat_result) -> None:
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
