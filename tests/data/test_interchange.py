"""Queries, judgments and runs of other libraries: ranx, ir_datasets, Polars."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator

import ir_datasets
import numpy as np
import polars as pl
import pytest

from kinrank import QuerySet
from kinrank.data.other_libraries import judgments_from_ir_datasets
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
from kinrank.data.other_libraries import qrels_from_ranx, qrels_to_ranx, run_from_ranx, run_to_ranx
from kinrank.data.trec import qrels_from_queries, run_from_scores, scores_from_run

queries = QuerySet.from_arrays([[0], [0], [0]], y=[0, 2, np.nan], qid=[7, 7, 9], doc_id=["a", "b", "a"])
run = run_to_ranx(run_from_scores(queries, [0.5, 1.5, -1], tag="kin"))
assert isinstance(run, ranx.Run)
assert run.to_dict() == {"7": {"b": 1.5, "a": 0.5}, "9": {"a": -1.0}}
back = run_from_ranx(run)
assert (back.tag, back.rank.tolist()) == ("kin", [1, 2, 1])
assert scores_from_run(queries, back).tolist() == [0.5, 1.5, -1]

qrels = qrels_to_ranx(qrels_from_queries(queries))
assert isinstance(qrels, ranx.Qrels)
assert qrels.to_dict() == {"7": {"a": 0, "b": 2}}
back = qrels_from_ranx(qrels)
assert (back.qid.tolist(), back.doc_id.tolist(), back.grade.tolist()) == ([7, 7], ["b", "a"], [2, 0])
"""


def test_ranx_and_back() -> None:
    # ranx compiles for a minute; interpreted, it takes seconds.
    subprocess.run([sys.executable, "-c", RANX], check=True, env={**os.environ, "NUMBA_DISABLE_JIT": "1"})


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


def test_judgments_of_ir_datasets() -> None:
    table = judgments_from_ir_datasets(TinyDataset())
    assert table.to_pylist() == [
        {"qid": "7", "query": "alien", "doc_id": "d1", "y": 2},
        {"qid": "7", "query": "alien", "doc_id": "d2", "y": 0},
    ]
    judged = QuerySet.from_table(table, text="query")
    assert judged.query_columns["text"].tolist() == ["alien"]
    with pytest.raises(DataError, match="has no queries: choose a data set with queries and qrels"):
        judgments_from_ir_datasets(namedtuple("Corpus", "docs_iter")(None))


def test_polars_data_frames() -> None:
    frame = pl.from_arrow(QUERIES.to_table())
    assert isinstance(frame, pl.DataFrame)
    assert_same(QuerySet.from_table(frame), QUERIES)
    categories = frame.with_columns(pl.col("query.text").cast(pl.Categorical))
    assert_same(QuerySet.from_table(categories), QUERIES)
