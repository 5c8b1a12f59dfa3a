from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kinrank import CellRanker, QuerySet
from kinrank.cli.report import DEFAULT_MEASURES
from kinrank.registry import import_extra
from tests.cli.conftest import Run


@pytest.fixture
def report(kinrank: Run, workdir: Path) -> Run:
    import_extra("jinja2", "report")  # the command would turn its absence into an exit code
    return lambda *args: kinrank("report", *args)


def test_a_report_of_two_models(report: Run, workdir: Path):
    done = report("test", "./single", "./knn", "--title", "Two camps")
    assert done.exit_code == 0, done.stderr
    answer, evidence = done.stdout.splitlines()
    assert answer.startswith("Per-query ranking gains +0.")
    assert evidence.startswith("NDCG@10 is 0.")
    assert "with single and 1.0000 with knn, measured on 20 test queries" in evidence
    page = (workdir / "report.html").read_text("utf-8")
    assert f"<title>Two camps: {answer}</title>" in page
    for measure in DEFAULT_MEASURES:
        assert f">{measure} <small>" in page
    assert done.stderr == "report.html: 0.1 MB\n"


def test_rankers_by_name_learn_from_the_training_data(report: Run, workdir: Path):
    (workdir / "models").mkdir()
    done = report(
        "test.txt", "single()", "knn(n_neighbors=5)", "./knn", "--train", "train.parquet", "--out", "models/r.html"
    )
    assert done.exit_code == 0, done.stderr
    page = (workdir / "models" / "r.html").read_text("utf-8")
    assert "knn(n_neighbors=5)" in page
    assert "None of the test queries is among those that were learned from, nor anything very like one." in page


def test_a_run_takes_part_and_its_gaps_are_told(report: Run, kinrank: Run, workdir: Path):
    assert kinrank("rank", "single", "test", "--out", "single.run").exit_code == 0
    lines = (workdir / "single.run").read_text().splitlines(keepends=True)
    (workdir / "single.run").write_text("".join(lines[1:]))
    done = report("test", "single.run", "./knn", "--measure", "AP")
    assert done.exit_code == 0, done.stderr
    page = (workdir / "report.html").read_text("utf-8")
    assert "1 judged candidates are not in the run" in page
    assert "warning: single.run: 1 of the 200 documents of the data are not in the run" in done.stderr


@pytest.mark.parametrize(
    ("args", "knowing"),
    [
        (["./single", "./knn"], "single, knn"),
        (["./single", "./other"], "single, other"),
        (["./single", "knn()", "--train", "test"], "single"),
    ],
    ids=["neighbors", "one model each", "beside other training queries"],
)
def test_test_queries_that_were_learned_from_are_warned_of(report: Run, workdir: Path, args: list[str], knowing: str):
    shutil.copytree("single", "other")
    done = report("train.parquet", *args)
    said = f"40 of the 40 test queries are among those that were learned from (known to {knowing}): what is measured"
    assert f"warning: {said}" in done.stderr
    assert f'class="warning"><strong>Warning.</strong> {said}' in (workdir / "report.html").read_text("utf-8")


def test_what_cannot_say_what_it_learned_from_is_warned_of(report: Run, camps: QuerySet, workdir: Path):
    CellRanker(5, n_cells=4).fit(camps[:40]).save("cells")
    done = report("test", "./single", "./cells")
    assert "warning: None of the test queries" in done.stderr
    assert "What cells learned from is not known" in done.stderr


def test_paths_are_called_by_their_last_part_unless_two_are_alike(report: Run, workdir: Path):
    (workdir / "old").mkdir()
    (workdir / "single").rename(workdir / "old" / "knn")
    done = report("test", "old/knn", "./knn")
    assert "with old/knn and" in done.stdout
    assert "with ./knn," in done.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["test", "./single"], "name two entrants or more"),
        (["test", "./single", "nobody"], "'nobody' is neither a model folder"),
        (["test", "./single", "./knn", "--measure", "XDCG"], "XDCG"),
        (["test", "./single", "./knn", "--names", "title"], "no query column 'title'"),
        (["test", "./single", "knn(n_neighbors=5)x", "--train", "train.parquet"], "cannot read ranker"),
        (["nowhere", "./single", "./knn"], "nowhere: no such file or folder"),
        (
            ["test", "./single", "./knn", "--out", "nowhere/r.html"],
            "nowhere/r.html: there is no such folder to write to",
        ),
    ],
)
def test_what_cannot_be_right_is_said_and_nothing_is_written(report: Run, workdir: Path, args: list[str], said: str):
    done = report(*args)
    assert done.exit_code == 2
    assert said in done.stderr
    assert not (workdir / "report.html").exists()
