from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kinrank as library
from kinrank.data.queryset import QuerySet
from kinrank.registry import import_extra
from kinrank.store import read_model_and_examples

CELLS = ["--set", "n_neighbors=5", "--set", "n_cells=4"]


def test_training_from_blocks_gives_the_same_model(kinrank, camps: QuerySet, workdir: Path):
    kinrank("train", "train.parquet", "--ranker", "cells", "--model", "memory", *CELLS)
    done = kinrank("train", "train.parquet", "--ranker", "cells", "--model", "blocks", "--workers", 1, *CELLS)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    assert "train.parquet: 40 queries, 400 rows read in this run" in done.stderr
    assert "blocks: ranker 'cells', 4 cells, fitted in" in done.stderr
    np.testing.assert_array_equal(library.load("blocks").predict(camps), library.load("memory").predict(camps))


def test_kin_is_the_default_and_gives_the_model_of_fit(kinrank, camps: QuerySet, workdir: Path):
    import_extra("lightgbm", "lightgbm")
    settings = [*CELLS, "--set", "tree_queries=30", "--set", "n_repeats=1"]
    kinrank("train", "train.parquet", "--model", "memory", *settings)
    done = kinrank("train", "train.parquet", "--model", "blocks", "--workers", 1, *settings)
    assert done.exit_code == 0, done.stderr
    assert "blocks: ranker 'kin', 4 cells, fitted in" in done.stderr
    assert "NDCG @ 10 out of fold: trees" in done.stderr
    np.testing.assert_array_equal(library.load("blocks").predict(camps), library.load("memory").predict(camps))


@pytest.mark.slow
def test_training_on_ray_gives_the_same_model(kinrank, camps: QuerySet, workdir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_worker_niceness", "0")  # niced workers starve on a busy machine
    kinrank("train", "train.parquet", "--ranker", "cells", "--model", "memory", *CELLS)
    done = kinrank("train", "train.parquet", "--ranker", "cells", "--model", "cluster", "--ray", "local", *CELLS)
    assert done.exit_code == 0, done.stderr
    assert not import_extra("ray", "ray").is_initialized()
    np.testing.assert_array_equal(library.load("cluster").predict(camps), library.load("memory").predict(camps))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", 2, "--ray", "local", *CELLS], "--ray and --workers cannot be combined"),
        (
            ["--workers", 2, "--ranker", "single"],
            "'single' cannot train from disk: with --ray or --workers, use --ranker kin or cells",
        ),
        (["--workers", 2, "--validate", "test", *CELLS], "--validate needs the data in memory"),
    ],
)
def test_conflicting_options_are_an_error(kinrank, workdir: Path, options: list[object], message: str):
    done = kinrank("train", "train.parquet", "--model", "m", *options)
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")
    assert not Path("m").exists()


def test_unreachable_cluster_is_an_error(kinrank, workdir: Path):
    import_extra("ray", "ray")
    done = kinrank("train", "train.parquet", "--model", "m", "--ray", "127.0.0.1:1", *CELLS)
    assert done.exit_code == 2
    assert "no Ray cluster at '127.0.0.1:1'" in done.stderr.replace("\n", " ")
    assert not Path("m").exists()


def test_columns_and_revision_are_those_of_a_fit_in_memory(kinrank, workdir: Path):
    table = library.read_parquet("train.parquet").to_table()
    clicks = pa.array(np.arange(table.num_rows) % 7, type=pa.float32())
    pq.write_table(table.append_column("clicks", clicks), "more.parquet")
    done = kinrank("train", "more.parquet", "--ranker", "cells", "--model", "blocks", "--workers", 1, *CELLS)
    assert done.exit_code == 2
    assert "add --columns drop=clicks" in done.stderr
    options = ["--columns", "drop=clicks", "--judgments-through", 17]
    done = kinrank("train", "more.parquet", "--ranker", "cells", "--model", "blocks", "--workers", 1, *CELLS, *options)
    assert done.exit_code == 0, done.stderr
    trained = library.load("blocks")
    assert "clicks" not in trained.feature_names_
    assert trained.judgments_through_ == 17
    assert read_model_and_examples("blocks")[1] is not None
