from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinrank.data.tables import ColumnNames
from kinrank.engines._logger import agreement, read_judgments, read_vectors
from kinrank.errors import DataError, FileFormatError

LINES = 'qid,query,doc_id,y\n1,"red, car",007,2\n1,"red, car",9,0\n2,7,007,1\n'


def test_numeric_ids_and_queries_stay_text(tmp_path: Path):
    (tmp_path / "j.csv").write_text(LINES)
    judged = read_judgments(tmp_path / "j.csv")
    assert judged.qid.tolist() == ["1", "2"]
    assert judged.doc_id is not None
    assert judged.doc_id.tolist() == ["007", "9", "007"]
    assert judged.query_columns["text"].tolist() == ["red, car", "7"]
    assert judged.grades.tolist() == [2, 0, 1]


def test_other_column_names_and_a_quote_in_a_query(tmp_path: Path):
    (tmp_path / "j.tsv").write_text('id\ttyped\tdoc\tgrade\tgroup\nq\t12" disc\tx\t1\tmusic\n')
    judged = read_judgments(tmp_path / "j.tsv", qid="id", text="typed", doc_id="doc", y="grade")
    assert judged.query_columns["text"].tolist() == ['12" disc']
    assert judged.query_columns["group"].tolist() == ["music"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("j.csv", "qid,query,doc_id\n1,a,b\n", "no column 'y' for the grades among"),
        ("j.csv", "qid,query,doc_id,y,bm25\n1,a,b,1,2.5\n", "column 'bm25' is numeric, but features come from the"),
        ("j.csv", "qid,query,doc_id,y\n1,a,b,1\n1,a,b,0\n", "document 'b' is judged twice for query '1'"),
        ("j.csv", "qid,query,doc_id,y\n1,a,b,1\n2,a,b,\n", "a judgment of query '2' has no grade"),
        ("j.csv", "qid,query,doc_id,y\n1,a\n", "cannot be read as a table"),
        ("j.parquet", "nonsense", "cannot be read as Parquet"),
        ("j.xml", "", "unknown format of judgments"),
    ],
)
def test_invalid_table_raises(tmp_path: Path, name: str, text: str, problem: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=problem):
        read_judgments(tmp_path / name)


def test_vectors_are_matched_by_query_id(tmp_path: Path):
    (tmp_path / "j.csv").write_text(LINES)
    judged = read_judgments(tmp_path / "j.csv")
    pq.write_table(pa.table({"qid": [2, 1, 3], "vector": [[0.0, 1.0], [1.0, 0.0], [5.0, 5.0]]}), tmp_path / "v.parquet")
    with_vectors = read_vectors(tmp_path / "v.parquet", judged)
    np.testing.assert_array_equal(with_vectors.query_columns["vector"], [[1, 0], [0, 1]])
    pq.write_table(pa.table({"qid": [1], "vector": [[1.0, 0.0]]}), tmp_path / "v.parquet")
    with pytest.raises(DataError, match="no vector for query '2'"):
        read_vectors(tmp_path / "v.parquet", judged)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "v.parquet")
    with pytest.raises(FileFormatError, match="expected the columns 'qid' and 'vector'"):
        read_vectors(tmp_path / "v.parquet", judged)


@pytest.mark.parametrize("columns", [{}, {"qid": "query"}, {"qid": "qid", "text": "query"}])
def test_query_texts_can_be_the_ids(tmp_path: Path, columns: ColumnNames):
    (tmp_path / "j.csv").write_text("query,doc_id,y\nred car,007,2\nred car,9,0\n7,007,1\n")
    judged = read_judgments(tmp_path / "j.csv", **columns)
    assert judged.qid.tolist() == judged.query_columns["text"].tolist() == ["red car", "7"]
    pq.write_table(pa.table({"query": ["7", "red car"], "vector": [[0.0], [1.0]]}), tmp_path / "v.parquet")
    with_vectors = read_vectors(tmp_path / "v.parquet", judged, **columns)
    np.testing.assert_array_equal(with_vectors.query_columns["vector"], [[1], [0]])


def test_missing_column_names_the_option(tmp_path: Path):
    (tmp_path / "j.csv").write_text("query,document,grade\nred car,007,2\n")
    with pytest.raises(
        FileFormatError, match=r"no column 'doc_id' for the document ids .*--columns doc_id=COLUMN on the"
    ):
        read_judgments(tmp_path / "j.csv")
    with pytest.raises(FileFormatError, match=r"no column 'y' for the grades .* \(--columns y=COLUMN on the"):
        read_judgments(tmp_path / "j.csv", doc_id="document")
    with pytest.raises(FileFormatError, match=r"no column 'id' for the query ids .* \(--columns qid=COLUMN on the"):
        read_judgments(tmp_path / "j.csv", qid="id", doc_id="document", y="grade")


def test_other_columns_are_dropped_or_belong_to_the_query(tmp_path: Path):
    (tmp_path / "j.csv").write_text("qid,text,doc_id,y,price,month\n1,a,b,1,2.5,7\n1,a,c,1,3.5,7\n")
    with pytest.raises(DataError, match=r"column 'price' is numeric.*--columns drop=price or query=price"):
        read_judgments(tmp_path / "j.csv")
    judged = read_judgments(tmp_path / "j.csv", drop=["price"], query=["month"])
    assert {name: values.tolist() for name, values in judged.query_columns.items()} == {"text": ["a"], "month": [7]}


def test_exports_of_quepid_are_read(tmp_path: Path):
    (tmp_path / "q.csv").write_text('query,docid,rating\nstar wars,007,3\nstar wars,12,0\n"no, hits",,\nunrated,5,\n')
    judged = read_judgments(tmp_path / "q.csv")
    assert judged.query_columns["text"].tolist() == ["star wars"]
    assert (judged.doc_id.tolist(), judged.grades.tolist()) == (["007", "12"], [3, 0])  # type: ignore[union-attr]


RATINGS = {"query": "red dress", "ratings": [{"docId": "B07", "rating": "0.700"}, {"docId": "B08", "rating": "0.0"}]}
LIST = {"name": "n", "type": "LLM_JUDGMENT", "judgmentRatings": [RATINGS]}


@pytest.mark.parametrize("body", [LIST, {"hits": {"hits": [{"_id": "1", "_source": LIST}]}}])
def test_judgments_of_the_search_relevance_workbench_are_read(tmp_path: Path, body: dict[str, object]):
    (tmp_path / "j.json").write_text(json.dumps(body))
    judged = read_judgments(tmp_path / "j.json")
    assert judged.query_columns["text"].tolist() == ["red dress"]
    assert judged.doc_id.tolist() == ["B07", "B08"]  # type: ignore[union-attr]
    np.testing.assert_allclose(judged.grades, [0.7, 0.0])


@pytest.mark.parametrize("text", ["{", "[]", '{"judgmentRatings": [{"query": "a", "ratings": [{"docId": "b"}]}]}'])
def test_other_json_is_refused(tmp_path: Path, text: str):
    (tmp_path / "j.json").write_text(text)
    with pytest.raises(FileFormatError, match="not judgments of the Search Relevance Workbench"):
        read_judgments(tmp_path / "j.json")


def test_ratings_weigh_as_much_as_they_agree_with_people(tmp_path: Path):
    (tmp_path / "people.csv").write_text("query,docid,rating\nAlien,a,2\nAlien,b,1\nAlien,c,0\nheat,a,1\n")
    people = read_judgments(tmp_path / "people.csv")
    for ratings, weight in (("9,5,1", 1.0), ("1,5,9", 0.0), ("5,5,5", 0.0), ("9,3,5", 1 / 3)):
        rows = "".join(f"alien ,{name},{value}\n" for name, value in zip("abc", ratings.split(","), strict=True))
        (tmp_path / "model.csv").write_text(f"query,docid,rating\n{rows}dune,a,4\n")
        assert agreement(read_judgments(tmp_path / "model.csv"), people) == pytest.approx(weight)
    (tmp_path / "model.csv").write_text("query,docid,rating\ndune,a,4\n")
    with pytest.raises(DataError, match="no two documents have different grades in both"):
        agreement(read_judgments(tmp_path / "model.csv"), people)
