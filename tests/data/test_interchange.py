"""Queries, judgments and runs of other libraries: ranx, ir_datasets, Polars."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import ir_datasets
import numpy as np
import polars as pl
import pytest

from kinrank import QuerySet
from kinrank.data.trec import qrels_from_queries
from kinrank.errors import DataError
from tests.data.query_sets import assert_same

QUERIES = QuerySet.from_arrays(
    [[0.5], [0.1], [0.7]], y=[0, 2, np.nan], qid=[7, 7, 9], doc_id=["a", "b", "a"], query_columns={"text": ["x", "y"]}
)


RANX = """
import ranx
import numpy as np
from kinrank import QuerySet
from kinrank.data import trec

queries = QuerySet.from_arrays([[0], [0], [0]], y=[0, 2, np.nan], qid=[7, 7, 9], doc_id=["a", "b", "a"])
trec.write_run(trec.run_from_scores(queries, [0.5, 1.5, -1], tag="kin"), "kin.trec")
run = ranx.Run.from_file("kin.trec", kind="trec")
assert run.to_dict() == {"7": {"b": 1.5, "a": 0.5}, "9": {"a": -1.0}}
run.save("back.trec", kind="trec")
back = trec.read_run("back.trec")
assert trec.scores_from_run(queries, back).tolist() == [0.5, 1.5, -1]

trec.write_qrels(trec.qrels_from_queries(queries), "qrels.trec")
qrels = ranx.Qrels.from_file("qrels.trec", kind="trec")
assert qrels.to_dict() == {"7": {"a": 0, "b": 2}}
"""


def test_ranx_and_back(tmp_path: Path) -> None:
    # ranx compiles for a minute; interpreted, it takes seconds.
    environ = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", RANX], check=True, env=environ, cwd=tmp_path)


def test_qrels_need_whole_grades() -> None:
    with pytest.raises(DataError, match=r"grade 0\.5 is no whole number"):
        qrels_from_queries(QUERIES.replace(y=np.float32([0.5, 1, 0])))


class TinyDataset(ir_datasets.datasets.base.Dataset):
    """Two queries with titles and descriptions, as in TREC topics."""

    def queries_iter(self) -> Iterator[ir_datasets.formats.TrecQuery]:
        yield ir_datasets.formats.TrecQuery("7", "alien", "movies with an alien", "any")
        yield ir_datasets.formats.TrecQuery("8", "not judged", "", "")

    def qrels_iter(self) -> Iterator[ir_datasets.formats.TrecQrel]:
        yield ir_datasets.formats.TrecQrel("7", "d1", 2, "0")
        yield ir_datasets.formats.TrecQrel("7", "d2", -2, "0")
        yield ir_datasets.formats.TrecQrel("unknown", "d1", 1, "0")


def test_judgments_of_ir_datasets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "ecosystem.md").read_text()
    recipe = re.search(r"```python\n(import ir_datasets\n.*?)```", page, re.DOTALL)
    assert recipe is not None
    monkeypatch.setattr(ir_datasets, "load", lambda _: TinyDataset())
    monkeypatch.chdir(tmp_path)
    exec(recipe[1], {})
    assert (tmp_path / "judgments.csv").read_text().splitlines()[1:] == ['"7","alien","d1",2', '"7","alien","d2",0']


def test_polars_data_frames() -> None:
    frame = pl.from_arrow(QUERIES.to_table())
    assert isinstance(frame, pl.DataFrame)
    assert_same(QuerySet.from_table(frame), QUERIES)
    categories = frame.with_columns(pl.col("query.text").cast(pl.Categorical))
    assert_same(QuerySet.from_table(categories), QUERIES)
