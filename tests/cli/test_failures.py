from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from kinrank.cli.console import debugging, handle_errors
from kinrank.data.letor import write_letor
from kinrank.data.queryset import QuerySet
from kinrank.registry import import_extra
from tests.processes import PATIENCE


@pytest.fixture
def broken(workdir: Path) -> Path:
    """A working directory with files and folders that are wrong in some way."""
    Path("data.xlsx").write_text("qid,y\n")
    Path("garbage.parquet").write_bytes(b"PAR1 and nothing else")
    Path("garbage.txt.gz").write_bytes(b"not packed")
    Path("line.txt").write_text("1 qid:1 1:1\nnonsense\n")
    Path("empty").mkdir()
    Path("unjudged").mkdir()
    QuerySet.from_arrays([[1.0, 2.0]], qid=[1]).save("unjudged")
    write_letor(QuerySet.from_arrays([[1.0, 2.0, 3.0]], y=[1], qid=[1], doc_id=["a"]), "wide.txt")
    QuerySet.from_arrays([[1.0]], y=[1], qid=[1], doc_id=["a"]).save("narrow")
    QuerySet.from_arrays([[1.0, 2.0]], y=[1], qid=[1]).save("nameless")
    Path("strange.run").write_text("1 Q0 nobody 1 0.5 x\n")
    Path("broken.run").write_text("1 Q0 nobody 1 0.5\n")
    array = next(Path("single").rglob("*.npy"))
    array.write_bytes(array.read_bytes()[:-1] + b"\xff")
    return workdir


TRAIN = ["train", "train.parquet", "--model", "m"]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["data", "convert", "missing.txt", "out"], "missing.txt: no such file or folder"),
        (["data", "convert", "data.xlsx", "out"], "data.xlsx: unknown suffix; expected a table"),
        (["data", "convert", "test.txt", "out.xlsx"], "out.xlsx: unknown suffix; expected a table"),
        (["data", "convert", "test.txt", "out.parquet.gz"], "out.parquet.gz: unknown suffix; expected a table"),
        (["data", "convert", "empty", "out"], "empty: this folder has no manifest.json and no .parquet file"),
        (["data", "convert", "knn", "out"], "knn holds 'model', expected 'queries'"),
        (["data", "convert", "test.txt", "knn"], "knn holds 'model', expected 'queries'"),
        (["data", "convert", "garbage.parquet", "out"], "garbage.parquet: cannot be read as Parquet"),
        (["data", "convert", "garbage.txt.gz", "out"], "garbage.txt.gz: cannot be decompressed"),
        (["data", "convert", "line.txt", "out"], "line.txt, line 2: expected qid:<query>"),
        (["data", "convert", "test.txt", "test", "out"], "query 40 is in more than one block"),
        (["data", "convert", "train.parquet", "out", "--columns", "qid=query"], "no column 'query' for the query ids"),
        (["data", "convert", "test.txt", "nowhere/out.txt"], "nowhere/out.txt: No such file or directory"),
        (["data", "convert", "unjudged", "out.txt"], "these queries are not judged"),
        ([*TRAIN, "--ranker", "nobody"], "unknown ranker 'nobody': choose one of 'kin', 'single'"),
        (
            [*TRAIN, "--ranker", "knn", "--set", "k=3"],
            "unknown parameter 'k'. KnnRanker takes\n  n_neighbors: int | 'auto' = 'auto'\n",
        ),
        ([*TRAIN, "--ranker", "knn", "--set", "n_neighbors=many"], "n_neighbors must be int | 'auto', got 'many'"),
        ([*TRAIN, "--ranker", "knn", "--set", "learner=nobody"], "unknown learner 'nobody'"),
        ([*TRAIN, "--ranker", "knn", "--set", "n_neighbors=0"], "n_neighbors must be a whole number from 1"),
        (["train", "train.parquet", "--model", "test"], "test holds 'queries', expected 'model'"),
        (["train", "train.parquet", "--model", "test.txt"], "test.txt is a file: pass a kinrank model folder"),
        (["train", "unjudged", "--model", "m"], "these queries are not judged"),
        ([*TRAIN, "--validate", "wide.txt"], "feature 3, expected at most 2"),
        (
            [*TRAIN, "--validate", "narrow"],
            "narrow: test queries must be judged and have the training features in the same order",
        ),
        (["rank", "missing", "test"], "missing does not exist: pass a kinrank model folder"),
        (["rank", "test", "test"], "test holds 'queries', expected 'model'"),
        (["rank", "single", "test"], "has changed since it was written (SHA-256 differs)"),
        (["rank", "knn", "narrow"], "fitted on 2 features, got 1: missing ['f2']"),
        (["rank", "knn", "nameless"], "these queries have no document ids"),
        (["compare", "test", "missing.run"], "'missing.run' is not a model folder, a run file or a ranker"),
        (["compare", "test", "broken.run"], "broken.run, line 1: expected 6 words"),
        (["compare", "test", "strange.run"], "strange.run: no document of this run is in the data"),
        (["compare", "test", "strange.run", "--measure", "nDCG@ten"], "cannot read measure 'nDCG@ten'"),
        (["compare", "test", "strange.run", "--measure", "quality"], "unknown measure 'quality'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_prints_one_message_and_exits_with_2(kinrank, broken: Path, args: list[str], problem: str):
    done = kinrank(*args)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.count("error: ") == 1
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("args", [["rank"], ["train", "train.parquet"], ["nonsense"], ["rank", "a", "b", "--nope"]])
def test_wrong_usage_exits_with_2(kinrank, workdir: Path, args: list[str]):
    done = kinrank(*args)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Usage: " in done.stderr


def test_foreign_folder_is_an_error_before_any_work(kinrank, workdir: Path):
    done = kinrank("train", "train.parquet", "--model", "test")
    assert "train.parquet" not in done.stderr


def test_installed_program_prints_one_line(script, workdir: Path):
    done = script("rank", "missing", "test")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: missing does not exist: pass a kinrank model folder")
    assert len(done.stderr.splitlines()) == 1  # long messages are not wrapped


def test_debug_shows_the_traceback(script, workdir: Path):
    done = script("--debug", "rank", "missing", "test")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "ForeignFolderError" in done.stderr


@pytest.mark.slow
def test_only_results_go_to_stdout(script, workdir: Path):
    ranked = script("rank", "knn", "test")
    lines = [line.split() for line in ranked.stdout.splitlines()]
    assert (ranked.returncode, len(lines), {len(words) for words in lines}) == (0, 200, {6})
    Path("part.run").write_text("".join(line + "\n" for line in ranked.stdout.splitlines()[5:]))
    judged = script("compare", "test", "part.run", "--json")
    assert json.loads(judged.stdout)["entrants"][0]["coverage"]["absent_documents"] == 5
    assert "warning: part.run: 5 of the 200 documents" in judged.stderr


@pytest.mark.slow
def test_closed_pipe_prints_no_error(workdir: Path):
    # More than fits into a pipe, so that the program is still writing when `head` exits.
    many = QuerySet.from_arrays(
        np.random.default_rng(0).random((20_000, 2)),
        qid=np.arange(20_000) // 10,
        doc_id=[f"document-{row}" for row in range(20_000)],
    )
    many.save("many")
    program = Path(sys.executable).parent / "kinrank"
    done = subprocess.run(["bash", "-c", f"{program} rank single many | head -1"], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.startswith("0 Q0 document-")


def test_interrupt_exits_with_130(workdir: Path):
    os.mkfifo("endless.txt")
    program = Path(sys.executable).parent / "kinrank"
    process = subprocess.Popen(
        [program, "rank", "single", "endless.txt"],
        stderr=subprocess.PIPE,
        text=True,
        # Children of a background job ignore SIGINT by default.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        with open("endless.txt", "w"):  # blocks until the program reads
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert (process.returncode, stderr) == (130, "stopped\n")


def run_command(command):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(handle_errors(command))
    return CliRunner().invoke(app)


def test_internal_error_exits_with_70():
    def command() -> None:
        raise ZeroDivisionError("division by zero")

    done = run_command(command)
    assert done.exit_code == 70
    assert done.stderr.startswith(
        "error: ZeroDivisionError: division by zero\nThis is a bug in kinrank; run kinrank --debug"
    )


def test_debug_raises_the_error():
    def command() -> None:
        raise ZeroDivisionError("division by zero")

    token = debugging.set(True)
    try:
        assert isinstance(run_command(command).exception, ZeroDivisionError)
    finally:
        debugging.reset(token)


def test_exit_code_of_a_command_is_kept():
    def command() -> None:
        raise typer.Exit(1)

    assert run_command(command).exit_code == 1


def test_warnings_go_to_stderr():
    def command() -> None:
        warnings.warn("few queries [3] left", UserWarning, stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        before = warnings.showwarning
        done = run_command(command)
        assert warnings.showwarning is before
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "warning: few queries [3] left\n")


@pytest.mark.parametrize("command", [["serve", "single"], ["demo", "--no-browser"]])
def test_a_port_in_use_is_one_line_before_anything_is_loaded(kinrank, broken: Path, command: list[str]) -> None:
    for module in ("starlette", "uvicorn"):
        import_extra(module, "serve")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = kinrank(*command, "--port", str(taken.getsockname()[1]))
    assert result.exit_code != 0
    assert "Address already in use): choose another with --port" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
