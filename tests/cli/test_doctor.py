from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from kinrank import QuerySet, engines, read_parquet
from kinrank.datasets import make_two_camps, simulate_clicks
from kinrank.registry import import_extra
from tests.engines.toy import ToyEngine


def test_doctor_lists_what_is_there_and_how_to_get_the_rest(kinrank, monkeypatch: pytest.MonkeyPatch) -> None:
    from kinrank.cli import doctor

    found = json.loads(kinrank("doctor", "--json").stdout)
    assert found["system"]["numpy"] == np.__version__
    assert "lightgbm" in found["extras"]["lightgbm"]
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    assert "pip install '.[lightgbm]'" in kinrank("doctor").stdout


@pytest.fixture
def own_table(camps: QuerySet, workdir: Path) -> pa.Table:
    """A table with names of its own that contain spaces, and with columns that are no features."""
    table = camps.to_table().rename_columns(["Search ID", "label", "sku", "title score", "body"])
    queries = table["Search ID"].to_pylist()
    return (
        table.append_column("search query", pa.array([f"it's {qid}" for qid in queries]))
        .append_column("n clicks", pa.array([1, 0] * (len(queries) // 2)))
        .append_column("title", pa.array([f"title {row}" for row in range(len(queries))]))
    )


def test_the_printed_command_reads_the_table(kinrank, own_table: pa.Table) -> None:
    pacsv.write_csv(own_table, "own table.csv")
    done = kinrank("doctor", "own table.csv", "--columns", "qid=Search ID")
    assert done.exit_code == 0, done.stderr
    assert "'n clicks' looks like clicks on the document: dropped" in done.stdout
    headroom, train = (shlex.split(line) for line in done.stdout.splitlines() if line.startswith("kinrank"))
    assert headroom[:3] == ["kinrank", "headroom", "own table.csv"]
    assert "'title' has their titles, by which explanations name them" in done.stdout
    assert headroom[-2] == train[-2] == "--columns"
    assert headroom[-1] == train[-1]
    assert "title=title,drop=n clicks" in train[-1]
    trained = kinrank(*train[1:], "--ranker", "single")
    assert trained.exit_code == 0, trained.stderr
    assert "2 features, judged): title score, body" in trained.stderr


def test_column_of_titles_is_kept(kinrank, own_table: pa.Table) -> None:
    table = own_table.rename_columns([name.replace("title", "doc_title") for name in own_table.column_names])
    pacsv.write_csv(table, "titled.csv")
    done = kinrank("doctor", "titled.csv", "--columns", "qid=Search ID")
    assert "'doc_title' has their titles" in done.stdout
    assert "'doc_title' is text" not in done.stdout
    assert "doc_title" not in done.stdout.splitlines()[-1]


def test_judgments_without_features_lead_to_a_log(kinrank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engines, "connect", lambda *_, **__: ToyEngine())
    Path("mine.csv").write_text("query,document,grade\nred car,d1,1\nred car,d7,1\nblue car,d3,1\nblue car,d2,1\n")
    done = kinrank("doctor", "mine.csv")
    assert "2 of 2 queries have one grade only: hits of the engine without a grade count as 0" in done.stdout
    command = shlex.split(done.stdout.splitlines()[-1])
    assert command[:2] == ["kinrank", "log"]
    done = kinrank(*command[1:])
    assert done.exit_code == 0, done.stderr
    assert read_parquet("logged.parquet").qid.tolist() == ["red car", "blue car"]


def test_problems_are_listed_at_once_and_no_command_is_printed(kinrank, workdir: Path) -> None:
    Path("bad.csv").write_text("search_id,sku,bm25\n1,a,2.5\n1,,1.5\n")
    done = kinrank("doctor", "bad.csv", "--json")
    assert done.exit_code == 2
    assert "solve the problems above" in done.stderr
    found = json.loads(done.stdout)
    assert (found["ready"], found["commands"]) == (False, [])
    assert [finding["subject"] for finding in found["findings"] if finding["level"] == "problem"] == ["grades"]


def test_files_without_column_names_are_checked_too(kinrank, workdir: Path) -> None:
    done = kinrank("doctor", "test.txt")
    assert "20 queries, 200 rows" in done.stdout
    assert done.stdout.endswith("kinrank train test.txt --model model\n")


def test_a_click_log_is_recognized_and_the_printed_command_reads_it(kinrank, tmp_path: Path, monkeypatch) -> None:
    import_extra("duckdb", "clicks")  # a missing one is a failure, but where there are no extras
    monkeypatch.chdir(tmp_path)
    queries = make_two_camps(n_queries=60, n_docs=6)
    table = simulate_clicks(queries, queries.X[:, 0], n_lists=20, tail=0.2, depth=4, shuffle=0.6)
    table = table.rename_columns(["search_term", "session_id", "sku", "position", "click", "timestamp"])
    pacsv.write_csv(table, "clicklog.csv")
    done = kinrank("doctor", "clicklog.csv")
    assert done.exit_code == 0, done.stderr
    assert "this looks like a click log" in done.stdout
    [command] = [line for line in done.stdout.splitlines() if line.startswith("kinrank clicks")]
    made = kinrank(*shlex.split(command)[1:])
    assert made.exit_code == 0, made.stderr
    assert Path("judgments.parquet").exists()
    again = json.loads(kinrank("doctor", "clicklog.csv", "--json").stdout)
    assert (again["ready"], again["commands"]) == (False, [command])
    Path("ubi_queries.ndjson").write_text('{"user_query": "alien", "query_id": "1"}\n')
    assert "kinrank clicks ubi_queries.ndjson" in kinrank("doctor", "ubi_queries.ndjson").stdout
