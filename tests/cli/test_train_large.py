"""``kinrank train`` by blocks: the same model, and what cannot go together is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kinrank as library
from kinrank.data.queryset import QuerySet
from kinrank.registry import import_extra

CELLS = ["--set", "n_neighbors=5", "--set", "n_cells=4"]


def test_blocks_give_the_model_of_memory(kinrank, camps: QuerySet, workdir: Path):
    kinrank("train", "train.parquet", "--ranker", "cells", "--model", "memory", *CELLS)
    done = kinrank("train", "train.parquet", "--model", "blocks", "--workers", 1, *CELLS)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    assert "train.parquet: 40 queries, 400 rows read now" in done.stderr
    assert "blocks: ranker 'cells', 4 cells, learned in" in done.stderr
    np.testing.assert_array_equal(library.load("blocks").predict(camps), library.load("memory").predict(camps))


@pytest.mark.slow
def test_ray_gives_the_model_of_memory(kinrank, camps: QuerySet, workdir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_worker_niceness", "0")  # in a busy suite nice workers would never have a turn
    kinrank("train", "train.parquet", "--ranker", "cells", "--model", "memory", *CELLS)
    done = kinrank("train", "train.parquet", "--model", "cluster", "--ray", "local", *CELLS)
    assert done.exit_code == 0, done.stderr
    assert not import_extra("ray", "ray").is_initialized()
    np.testing.assert_array_equal(library.load("cluster").predict(camps), library.load("memory").predict(camps))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", 2, "--ray", "local", *CELLS], "--ray and --workers: give one of them"),
        (
            ["--workers", 2, "--ranker", "single"],
            "'single' cannot train from disk: with --ray or --workers, use --ranker cells",
        ),
        (["--workers", 2, "--validate", "test", *CELLS], "--validate needs the data in memory"),
    ],
)
def test_what_cannot_go_together_is_refused(kinrank, workdir: Path, options: list[object], message: str):
    done = kinrank("train", "train.parquet", "--model", "m", *options)
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")
    assert not Path("m").exists()


def test_a_cluster_that_is_not_there_is_told(kinrank, workdir: Path):
    import_extra("ray", "ray")
    done = kinrank("train", "train.parquet", "--model", "m", "--ray", "127.0.0.1:1", *CELLS)
    assert done.exit_code == 2
    assert "no Ray cluster at '127.0.0.1:1'" in done.stderr.replace("\n", " ")
    assert not Path("m").exists()
