"""Tables in text files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kinrank import QuerySet
from kinrank.data.delimited import read_csv, write_csv
from kinrank.data.source import Source
from kinrank.errors import DataError, FileFormatError
from tests.data.query_sets import assert_same

ROWS = "query_id,grade,bm25,title,popularity,search\n7,1,2.5,0.5,,2012\n7,,1.0,0.0,3,2012\n9,0,4.0,1.0,1,2010\n"
NAMES = {"qid": "query_id", "y": "grade", "text": "search"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "judged.csv"
    path.write_text(ROWS)
    return path


def test_empty_numbers_are_missing_and_texts_stay_text(table: Path) -> None:
    queries = read_csv(table, **NAMES)
    assert queries.feature_names == ("bm25", "title", "popularity")
    assert queries.query_columns["text"].tolist() == ["2012", "2010"]
    np.testing.assert_array_equal(queries.y, [1.0, np.nan, 0.0])
    np.testing.assert_array_equal(queries.X[:, 2], [np.nan, 3.0, 1.0])


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_ids_titles_and_keys_keep_every_character(tmp_path: Path, suffix: str) -> None:
    rows = ["qid,y,doc_id,doc_title,brand,bm25", "001,1,007,1984,05,2.5", "1,0,7,300,5,1.0", "1,1,+7,0012,5,1.0"]
    path = tmp_path / f"judged{suffix}"
    path.write_text("\n".join(rows).replace(",", "," if suffix == ".csv" else "\t"))
    queries = read_csv(path, keys=["brand"])
    assert queries.qid.tolist() == ["001", "1"]
    assert queries.doc_id is not None
    assert queries.doc_title is not None
    assert queries.doc_id.tolist() == ["007", "7", "+7"]
    assert queries.doc_title.tolist() == ["1984", "300", "0012"]
    assert queries.doc_columns["brand"].tolist() == ["05", "5", "5"]
    assert Source(path).read().qid.tolist() == ["001", "1"]


def test_whole_numbers_are_numbers_and_an_id_that_is_missing_raises(tmp_path: Path) -> None:
    path = tmp_path / "judged.csv"
    path.write_text("qid,y,doc_id,bm25\n1,1,7,2.5\n1,0,8,1.0\n")
    assert read_csv(path).qid.tolist() == [1]
    path.write_text("qid,y,doc_id,bm25\n1,1,7,2.5\n,0,8,1.0\n")
    with pytest.raises(DataError, match="column 'qid' is null in row 1"):
        read_csv(path)


def test_features_by_pattern_and_dropped_columns(table: Path) -> None:
    assert read_csv(table, **NAMES, features=["bm*", "title"]).feature_names == ("bm25", "title")
    assert read_csv(table, **NAMES, drop=["popularity"]).feature_names == ("bm25", "title")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({**NAMES, "features": ["price"]}, "no numeric column 'price'"),
        ({**NAMES, "drop": ["price"]}, "no column 'price'"),
        ({**NAMES, "text": "words"}, "no column 'words'"),
        ({}, "--columns qid=COLUMN"),
    ],
)
def test_an_unknown_column_is_named_with_the_file(table: Path, names: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        read_csv(table, **names)
    assert "judged.csv" in str(error.value)


@pytest.mark.parametrize("name", ["judged.csv", "judged.tsv", "judged.csv.gz", "judged.tsv.xz"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    queries = QuerySet.from_arrays(
        [[1.5, np.nan], [2.0, 0.25], [3.0, 1.0]],
        y=[1, 0, np.nan],
        qid=["a", "a", "b"],
        doc_id=["x", "y", "x"],
        query_columns={"text": ["iron man", "alien, the first"]},
    )
    write_csv(queries, tmp_path / name)
    assert_same(Source(str(tmp_path / name)).read(), queries)


def test_what_a_text_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    queries = QuerySet.from_arrays([[1.0]], qid=["a"], query_columns={"vector": np.ones((1, 2), np.float32)})
    with pytest.raises(DataError, match="vectors"):
        write_csv(queries, tmp_path / "judged.csv")
    tab = QuerySet.from_arrays([[1.0]], qid=["a"], query_columns={"text": ["iron\tman"]})
    with pytest.raises(DataError, match=r"write \.csv instead"):
        write_csv(tab, tmp_path / "judged.tsv")
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "judged.csv").write_text("qid,y\n1,2,3\n")
    with pytest.raises(FileFormatError, match="cannot be read as a table"):
        read_csv(tmp_path / "judged.csv")
    (tmp_path / "judged.csv").write_text("qid,y,bm25\n")
    with pytest.raises(FileFormatError, match="has a header but no rows"):
        read_csv(tmp_path / "judged.csv")
