from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinrank import CellRanker, QuerySet
from kinrank.cli.report import DEFAULT_MEASURES
from kinrank.registry import import_extra
from tests.cli.conftest import Run
from tests.study.worlds import in_families


@pytest.fixture
def report(kinrank: Run, workdir: Path) -> Run:
    import_extra("jinja2", "report")  # skips the test if it is missing
    return lambda *args: kinrank("report", *args)


def test_report_of_two_models(report: Run, workdir: Path):
    done = report("test", "./single", "./knn")
    assert done.exit_code == 0, done.stderr
    answer, evidence, said = done.stdout.splitlines()
    assert re.fullmatch(r"Use knn: \+0\.\d{4} NDCG@10 over single on 20 queries", answer)
    assert said.startswith("knn gains +0.")
    assert said.endswith("Trees were not measured.")
    assert evidence.startswith("NDCG@10 is 0.")
    assert "with single and 1.0000 with knn, measured on 20 test queries" in evidence
    page = (workdir / "report.html").read_text("utf-8")
    assert f"<title>test: {answer}</title>" in page
    for measure in DEFAULT_MEASURES:
        assert f">{measure}</abbr> <small>" in page
    assert "<dt><bdi>Test file</bdi></dt><dd>test</dd>" in page
    perfect = "knn reaches 1.0000, which is too good to be believed"  # it is: the world has no noise
    assert f"warning: {perfect}" in done.stderr
    assert f'class="warning"><strong>Warning.</strong> {perfect}' in page
    assert re.search(r"report\.html: \d\d KB\n$", done.stderr)


def test_report_is_about_the_best_entrant(report: Run, workdir: Path):
    done = report("test", "./single", "single(learner=rankrls,scale=none)", "./knn", "--train", "train.parquet")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("Use knn: +0."), done.stdout


def test_queries_of_a_group_are_tested_together(report: Run, workdir: Path):
    queries = QuerySet.open("test")
    groups = np.arange(len(queries)) // 5
    queries.replace(query_columns={**queries.query_columns, "movie": groups}).save("grouped")
    alone, together = (report("grouped", "./single", "./knn", *args) for args in ((), ("--group", "movie")))
    assert together.exit_code == 0, together.stderr
    intervals = [re.search(r"95% interval (\S+) to (\S+),", done.stdout).groups() for done in (alone, together)]
    assert intervals[0] != intervals[1]
    assert "group 'brand' is not a query column" in report("grouped", "./single", "./knn", "--group", "brand").stderr


def test_titles_of_the_table_are_shown(report: Run, workdir: Path):
    table = QuerySet.open("test").to_table()
    titles = pa.array([f"Title of {document}" for document in table["doc_id"].to_pylist()])
    pq.write_table(table.append_column("name", titles), "named.parquet")
    done = report("named.parquet", "./single", "./knn", "--columns", "title=name")
    assert done.exit_code == 0, done.stderr
    assert "Title of d4" in (workdir / "report.html").read_text("utf-8")


def test_rankers_are_fitted_on_the_training_data(report: Run, workdir: Path):
    (workdir / "models").mkdir()
    done = report(
        "test.txt", "single()", "knn(n_neighbors=5)", "./knn", "--train", "train.parquet", "--out", "models/r.html"
    )
    assert done.exit_code == 0, done.stderr
    page = (workdir / "models" / "r.html").read_text("utf-8")
    assert "knn(n_neighbors=5)" in page
    assert "None of the test queries was seen in training, and none has a near-duplicate there." in page


def test_run_with_missing_documents_causes_a_warning(report: Run, kinrank: Run, workdir: Path):
    assert kinrank("rank", "single", "test", "--out", "single.run").exit_code == 0
    lines = (workdir / "single.run").read_text().splitlines(keepends=True)
    (workdir / "single.run").write_text("".join(lines[1:]))
    done = report("test", "single.run", "./knn", "--measure", "AP")
    assert done.exit_code == 0, done.stderr
    page = (workdir / "report.html").read_text("utf-8")
    assert "1 judged candidates are missing from the run" in page
    assert "warning: single.run: 1 of the 200 documents in the data are missing from the run" in done.stderr


@pytest.mark.parametrize(
    ("args", "knowing"),
    [
        (["./single", "./knn"], "single, knn"),
        (["./single", "./other"], "single, other"),
        (["./single", "knn()", "--train", "test"], "single"),
    ],
    ids=["neighbors", "two models", "other training queries"],
)
def test_seen_test_queries_cause_a_warning(report: Run, workdir: Path, args: list[str], knowing: str):
    shutil.copytree("single", "other")
    done = report("train.parquet", *args)
    warning = f"40 of the 40 test queries were seen in training (by {knowing}): results on them"
    assert f"warning: {warning}" in done.stderr
    assert f'class="warning"><strong>Warning.</strong> {warning}' in (workdir / "report.html").read_text("utf-8")


def test_unknown_training_queries_cause_a_warning(report: Run, camps: QuerySet, workdir: Path):
    CellRanker(5, n_cells=4).fit(camps[:40]).save("cells")
    done = report("test", "./single", "./cells")
    assert "warning: None of the test queries" in done.stderr
    assert "The training queries of cells are unknown" in done.stderr


def test_paths_are_shortened_to_their_last_part_if_unique(report: Run, workdir: Path):
    (workdir / "old").mkdir()
    (workdir / "single").rename(workdir / "old" / "knn")
    done = report("test", "old/knn", "./knn")
    assert "with old/knn and" in done.stdout
    assert "with ./knn," in done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["test", "./single"], "a report needs a baseline and a subject"),
        (["test", "./single", "nobody"], "'nobody' is not a model folder"),
        (["test", "./single", "./knn", "--measure", "XDCG"], "XDCG"),
        (["test", "./single", "knn(n_neighbors=5)x", "--train", "train.parquet"], "cannot read ranker"),
        (["nowhere", "./single", "./knn"], "nowhere: no such file or folder"),
        (
            ["test", "./single", "./knn", "--out", "nowhere/r.html"],
            "--out nowhere/r.html: its folder does not exist",
        ),
    ],
)
def test_wrong_input_is_an_error_and_writes_nothing(report: Run, workdir: Path, args: list[str], message: str):
    done = report(*args)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (workdir / "report.html").exists()


def test_report_tells_queries_with_a_near_training_query_apart(report: Run, workdir: Path):
    queries = in_families(np.concatenate([np.arange(60) // 3, np.arange(20), np.arange(100, 130)]))
    queries[:60].save("before")
    queries[60:].save("after")
    remembering = "lightgbm-memory"
    done = report("after", "single()", remembering, "--train", "before")
    assert done.exit_code == 0, done.stderr
    assert (
        "50 queries are of 50 families of similar texts (similarity above 0.6), the largest of 1: tests are by family"
        in done.stderr
    )
    [line] = [line for line in done.stdout.splitlines() if line.startswith(f"{remembering} vs. single(): +0.")]
    assert line.endswith("for 30 queries without one")
    assert "for 20 queries with a near training query" in (workdir / "report.html").read_text("utf-8")
