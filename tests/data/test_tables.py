from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given

from kinrank import QuerySet
from kinrank.errors import DataError
from tests.data.query_sets import assert_same, query_sets


@given(query_sets())
def test_tables_read_back(queries: QuerySet) -> None:
    assert_same(QuerySet.from_table(queries.to_table()), queries)


@given(query_sets())
def test_data_frames_read_back(queries: QuerySet) -> None:
    assert_same(QuerySet.from_table(queries.to_table().to_pandas()), queries)


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "qid": ["b", "a", "b"],
            "y": [0, 1, 2],
            "doc_id": [7, 8, 9],
            "bm25": [0.5, None, 1.5],
            "title": [True, False, True],
            "text": pd.Categorical(["two", "one", "two"]),
            "query.words": [2, 1, 2],
        },
        index=[5, 3, 9],
    )


def test_columns_are_recognized_by_name_and_type() -> None:
    queries = QuerySet.from_table(frame())
    assert queries.qid.tolist() == ["b", "a"]
    assert queries.feature_names == ("bm25", "title")
    np.testing.assert_array_equal(queries.X, np.array([[0.5, 1], [1.5, 1], [np.nan, 0]], dtype=np.float32))
    assert queries.grades.tolist() == [0, 2, 1]
    assert queries.doc_id is not None
    assert queries.doc_id.tolist() == [7, 9, 8]
    assert {k: v.tolist() for k, v in queries.query_columns.items()} == {"text": ["two", "one"], "words": [2, 1]}
    assert queries.in_caller_order(queries.grades).tolist() == [0, 1, 2]


def test_named_index_is_a_column_and_unnamed_index_is_dropped() -> None:
    queries = QuerySet.from_table(frame().set_index("qid"))
    assert queries.qid.tolist() == ["b", "a"]
    assert queries.feature_names == ("bm25", "title")


def test_other_column_names_and_no_grades() -> None:
    table = pa.table({"query": [1, 1], "url": ["u", "v"], "score": [1.0, 2.0]})
    queries = QuerySet.from_table(table, qid="query", doc_id="url")
    assert queries.y is None
    assert queries.doc_id is not None
    assert queries.doc_id.tolist() == ["u", "v"]
    assert queries.feature_names == ("score",)


def test_query_text_can_be_the_id() -> None:
    table = pa.table({"query": ["red", "car", "red"], "y": [1, 0, 0], "bm25": [1.0, 2.0, 3.0]})
    read = QuerySet.from_table(table, qid="query", text="query")
    assert read.qid.tolist() == read.query_columns["text"].tolist() == ["red", "car"]


def test_nullable_columns_and_numbered_columns_of_pandas() -> None:
    table = pd.DataFrame({"qid": [1, 1], 0: pd.array([1, None], dtype="Int64"), 1: [None, None]})
    queries = QuerySet.from_table(table)
    assert queries.feature_names == ("0", "1")
    np.testing.assert_array_equal(queries.X, np.array([[1, np.nan], [np.nan, np.nan]], dtype=np.float32))


def test_null_grades_are_rows_that_are_not_judged() -> None:
    queries = QuerySet.from_table(pa.table({"qid": [1, 1, 2], "y": [None, 2, None], "f": [1.0, 2.0, 3.0]}))
    assert queries.judged.tolist() == [False, True, False]
    assert queries.grades.tolist() == [0, 2, 0]
    assert queries.to_table()["y"].to_pylist() == [None, 2, None]
    assert_same(queries.only_judged(), QuerySet.from_arrays([[2.0]], [2], qid=[1], feature_names=["f"]))


def test_null_query_columns() -> None:
    table = pa.table({"qid": [1, 1, 2], "text": [None, None, "x"], "query.n": [None, None, 2.0]})
    columns = QuerySet.from_table(table).query_columns
    assert columns["text"].tolist() == ["", "x"]
    np.testing.assert_array_equal(columns["n"], [np.nan, 2.0])


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"query": [1], "f": [1.0]}, "no column 'qid' for the query ids among"),
        ({"qid": [1, None], "f": [1.0, 2.0]}, "column 'qid' is null in row 1"),
        ({"qid": ["a", None], "f": [1.0, 2.0]}, "column 'qid' is null in row 1"),
        ({"qid": [1, 1], "doc_id": ["a", None], "f": [1.0, 2.0]}, "column 'doc_id' is null in row 1"),
        ({"qid": [1, 1], "title": ["a", "b"]}, "column 'title' is 'a' and 'b' within query 1"),
        ({"qid": [1, 2, 1], "query.n": [3, 4, 5]}, "column 'query.n' is 3 and 5 within query 1"),
        ({"qid": [1], "when": pa.array([0], pa.timestamp("s"))}, r"column 'when' is timestamp\[s\], expected numbers"),
        ({"qid": [1], "y": ["good"], "f": [1.0]}, "the grades in column 'y' are text .'good'.: map words to numbers"),
        ({"qid": pa.array([[1]]), "f": [1.0]}, "column 'qid' is list<.*>, expected numbers or text"),
    ],
)
def test_invalid_table_raises(columns: dict[str, object], match: str) -> None:
    with pytest.raises(DataError, match=match):
        QuerySet.from_table(pa.table(columns))


def test_duplicate_column_raises() -> None:
    table = pa.table([pa.array([1]), pa.array([1.0]), pa.array([2.0])], names=["qid", "f", "f"])
    with pytest.raises(DataError, match="two columns are named 'f'"):
        QuerySet.from_table(table)


def test_other_types_raise() -> None:
    with pytest.raises(DataError, match="expected an Arrow table or a pandas DataFrame, got dict"):
        QuerySet.from_table({"qid": [1]})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["qid", "y", "doc_id", "query.text"])
def test_feature_with_a_reserved_name_raises(name: str) -> None:
    with pytest.raises(DataError, match=f"feature '{name}' has the name of another column"):
        QuerySet.from_arrays([[1.0]], qid=[1], feature_names=[name]).to_table()


def test_arrow_tables_work_without_pandas() -> None:
    code = (
        "import sys\n"
        "class NoPandas:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'pandas': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, NoPandas())\n"
        "import pyarrow as pa; from kinrank import QuerySet\n"
        "QuerySet.from_table(pa.table({'qid': [1], 'f': [1.0], 'text': ['a']})).to_table()\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_query_vectors_are_written_once_per_query():
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    queries = QuerySet.from_arrays(
        [[1.0], [2.0], [3.0]], qid=["a", "b", "b"], query_columns={"vector": vectors, "text": ["x", "y"]}
    )
    table = queries.to_table()
    assert table["query.vector"].null_count == 1
    for rows in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        back = QuerySet.from_table(table.take(rows))
        by_id = dict(zip(back.qid.tolist(), back.query_columns["vector"].tolist(), strict=True))
        assert by_id == {"a": [0, 1, 2], "b": [3, 4, 5]}


@pytest.mark.parametrize(
    ("lists", "problem"),
    [
        ([[1.0], [2.0, 3.0], None], r"vectors of lengths \[1, 2\]"),
        ([[1.0], None, None], "no vector for query 'b'"),
        ([[1.0], [2.0], [3.0]], "two different vectors for query 'b'"),
    ],
)
def test_invalid_query_vectors_raise(lists: list[list[float] | None], problem: str):
    table = pa.table({"qid": ["a", "b", "b"], "f": [1.0, 2.0, 3.0], "query.vector": lists})
    with pytest.raises(DataError, match=problem):
        QuerySet.from_table(table)
