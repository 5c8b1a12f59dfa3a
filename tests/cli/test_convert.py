from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinrank.data import source as source_module
from kinrank.data.queryset import QuerySet
from kinrank.data.source import Source, write_sources


def assert_same(got: QuerySet, expected: QuerySet) -> None:
    assert got.feature_names == expected.feature_names
    for part in ("X", "y", "offsets", "qid", "doc_id"):
        np.testing.assert_array_equal(getattr(got, part), getattr(expected, part), err_msg=part)


@pytest.mark.parametrize("source", ["a.txt", "a.txt.gz", "a.parquet", "a"])
@pytest.mark.parametrize("target", ["b.letor", "b.svm.xz", "b.parquet", "b", "b.folder/"])
def test_every_format_converts_to_every_format(kinrank, camps: QuerySet, workdir: Path, source: str, target: str):
    write_sources([Source("test")], source)
    done = kinrank("data", "convert", source, target)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    assert "QuerySet(20 queries, 200 rows, 2 features, judged)" in done.stderr
    assert_same(Source(target).read(), camps[40:])


@pytest.mark.parametrize("target", ["all", "all.parquet", "all.txt"])
def test_several_inputs_are_concatenated(kinrank, camps: QuerySet, workdir: Path, target: str):
    assert kinrank("data", "convert", "train.parquet", "test.txt", target).exit_code == 0
    assert_same(Source(target).read(), camps)


@pytest.mark.parametrize("source", ["whole", "whole.parquet"])
def test_block_size_does_not_change_the_output(
    kinrank, camps: QuerySet, workdir: Path, source: str, monkeypatch: pytest.MonkeyPatch
):
    write_sources([Source("train.parquet"), Source("test")], source)
    monkeypatch.setattr(source_module, "ROWS_PER_BLOCK", 35)
    sizes = [block.n_rows for block in Source(source).blocks()]
    assert max(sizes) <= 35
    assert len(sizes) == 20
    assert kinrank("data", "convert", source, "out").exit_code == 0
    assert_same(QuerySet.open("out"), camps)


def test_long_query_is_a_block_of_its_own(workdir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(source_module, "ROWS_PER_BLOCK", 3)
    assert [block.n_rows for block in Source("test").blocks()] == [10] * 20


def test_folder_of_parquet_files_with_custom_column_names(kinrank, workdir: Path):
    for part, query in enumerate(["a", "b"]):
        table = pa.table({"query": [query, query], "label": [1, 0], "doc": ["x", "y"], "bm25": [2.0, 1.0]})
        Path("lake").mkdir(exist_ok=True)
        pq.write_table(table, f"lake/{part}.parquet")
    done = kinrank("data", "convert", "lake", "out", "--columns", "qid=query,y=label,doc_id=doc")
    assert done.exit_code == 0, done.stderr
    queries = QuerySet.open("out")
    assert (queries.qid.tolist(), queries.feature_names) == (["a", "b"], ("bm25",))
    assert queries.grades.tolist() == [1, 0, 1, 0]


def test_small_parquet_file_may_have_rows_in_any_order(kinrank, workdir: Path):
    pq.write_table(pa.table({"qid": [7, 8, 7], "bm25": [1.0, 2.0, 3.0]}), "mixed.parquet")
    assert kinrank("data", "convert", "mixed.parquet", "out").exit_code == 0
    assert QuerySet.open("out").X.ravel().tolist() == [1.0, 3.0, 2.0]


def test_features_option_sets_the_number_of_letor_features(kinrank, workdir: Path):
    Path("a.txt").write_text("1 qid:1 1:1 3:1\n")
    Path("b.txt").write_text("1 qid:2 1:1\n")
    assert "features differ" in kinrank("data", "convert", "a.txt", "b.txt", "out").stderr
    assert kinrank("data", "convert", "a.txt", "b.txt", "out", "--n-features", 3).exit_code == 0
    assert QuerySet.open("out").X.tolist() == [[1, 0, 1], [1, 0, 0]]
