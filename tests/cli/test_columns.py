"""Tables of one's own: names of columns, and columns that must not become features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from kinrank.cli.app import EXAMPLES
from kinrank.cli.options import parse_columns
from kinrank.data.queryset import QuerySet

OWN = ("--columns", "qid=query_id,y=grade,text=search")


@pytest.fixture
def own_table(camps: QuerySet, workdir: Path) -> pa.Table:
    """A table with other names, and with clicks that were left in."""
    table = camps.to_table().rename_columns(["query_id", "grade", "doc_id", "title", "body"])
    texts = pa.array([f"words {qid}" for qid in table["query_id"].to_pylist()])
    table = table.append_column("search", texts)
    pacsv.write_csv(table, "mine.csv")
    pacsv.write_csv(table.append_column("clicks", pa.array(camps.grades.astype(int))), "clicks.csv")
    pacsv.write_csv(table.append_column("boost", pa.array(2.0 * camps.grades + 1)), "leak.csv")
    return table


def test_a_csv_with_other_names_is_trained_on_and_ranked(kinrank, own_table: pa.Table) -> None:
    done = kinrank("train", "mine.csv", "--model", "model", "--ranker", "knn", *OWN)
    assert done.exit_code == 0, done.stderr
    assert "2 features, judged): title, body" in done.stderr
    done = kinrank("rank", "model", "mine.csv", *OWN)
    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()) == own_table.num_rows


def test_the_names_hold_for_every_file_of_a_command(kinrank, own_table: pa.Table) -> None:
    done = kinrank("headroom", "mine.csv", "--test", "mine.csv", "--leaks", "warn", "--linear", *OWN)
    assert done.exit_code == 0, done.stderr


def test_a_column_of_clicks_is_refused_until_it_is_named_or_dropped(kinrank, own_table: pa.Table) -> None:
    words = ("train", "clicks.csv", "--model", "model", "--ranker", "single", *OWN)
    done = kinrank(*words)
    assert done.exit_code == 2
    assert "column 'clicks' looks like clicks" in done.stderr
    assert "--columns drop=clicks" in done.stderr
    assert "title, body\n" in kinrank(*words, "--columns", "drop=clicks").stderr
    assert "title, body, clicks\n" in kinrank(*words, "--columns", "features=*").stderr


def test_a_name_with_a_space_is_quoted_in_the_advice(kinrank, own_table: pa.Table) -> None:
    pacsv.write_csv(own_table.append_column("n clicks", pa.array([1, 0] * (own_table.num_rows // 2))), "spaces.csv")
    done = kinrank("train", "spaces.csv", "--model", "model", "--ranker", "single", *OWN)
    assert "add --columns 'drop=n clicks', or name all features" in done.stderr


def test_a_column_that_holds_the_grade_and_perfect_results_are_called_out(kinrank, own_table: pa.Table) -> None:
    done = kinrank("headroom", "leak.csv", "--linear", *OWN)
    assert "feature 'boost' alone ranks at NDCG@10 = 1.0000" in done.stderr
    assert "one linear model reaches 1.0000, which is too good to be believed" in done.stderr
    honest = kinrank("headroom", "leak.csv", "--linear", "--columns", "drop=boost", *OWN)
    assert "too good" not in honest.stderr


@pytest.mark.parametrize("option", [["--group", "shop"], ["--columns", "query=shop"]], ids=" ".join)
def test_a_number_that_belongs_to_the_query_is_no_feature(kinrank, own_table: pa.Table, option: list[str]) -> None:
    shops = pa.array([int(qid) // 3 for qid in own_table["query_id"].to_pylist()])
    pacsv.write_csv(own_table.append_column("shop", shops), "shops.csv")
    done = kinrank("headroom", "shops.csv", "--linear", *option, *OWN)
    assert done.exit_code == 0, done.stderr
    assert "2 features, judged): title, body\n" in done.stderr


def test_a_missing_column_is_asked_for_by_its_option(kinrank, own_table: pa.Table) -> None:
    assert "--columns qid=COLUMN" in kinrank("headroom", "mine.csv").stderr


def test_every_command_that_reads_tables_has_the_options(kinrank) -> None:
    other = {"clicks", "demo", "serve"}  # they read logs or models, or no data
    assert other < set(EXAMPLES)
    for name in EXAMPLES.keys() - other:
        if name.startswith(("admin ", "memory ")):  # of these, import and replay read votes
            continue
        shown = kinrank(*name.split(), "--help").stdout
        assert "--columns" in shown, name


@pytest.mark.parametrize("wrong", ["label", "y=", "z=label", "y=a,b", "=label"])
def test_wrong_columns_are_refused(kinrank, own_table: pa.Table, wrong: str) -> None:
    done = kinrank("headroom", "mine.csv", "--columns", wrong)
    assert done.exit_code == 2
    assert "--columns takes NAME=COLUMN with NAME one of qid, y, doc_id, text, title, features," in done.stderr
    assert done.stderr.endswith(f"got {wrong!r}\n")


def test_names_of_columns_may_have_commas() -> None:
    columns = parse_columns([r"y=a\,b,drop=c\,d,e=f", "keys=brand"])
    assert (columns["y"], columns["drop"], columns["keys"]) == ("a,b", ["c,d", "e=f"], ["brand"])


def test_labels_ids_and_clicks_are_told_from_features() -> None:
    from kinrank.study._table_check import suspect_names

    features = [
        "bm25",
        "title_score",
        "idf",
        "recency",
        "rank_feature",
        "video",
        "popularity",
        "rating",
        "grid_size",
        "f1",
    ]
    assert not list(suspect_names(features))
    suspects = ["label", "Relevance", "judgments", "relevance_score", "clicks", "n_clicks", "doc-id", "product id"]
    assert [name for name, _ in suspect_names(suspects)] == suspects
    assert np.unique([meaning for _, meaning in suspect_names(suspects)]).tolist() == [
        "a grade",
        "an id",
        "clicks on the document",
    ]
