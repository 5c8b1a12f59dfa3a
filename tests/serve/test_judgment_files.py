"""Stored judgments as a training table, and the logs of earlier versions."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kinrank.cli import app
from kinrank.data.parquet import read_parquet
from kinrank.errors import FileFormatError
from kinrank.serve.judgments import read_log
from tests.serve.databases import sqlite_address

RECORD = {"base": "f00", "feature_names": ["bm25", "age"], "vector": None, "columns": {}, "text": None}


def line(qid: str, **grades: float) -> bytes:
    rows = [[0.5, None]] * len(grades)
    text = json.dumps(
        {**RECORD, "qid": qid, "ids": list(grades), "features": rows, "grades": [*grades.values()]}
    ).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def test_log_of_an_earlier_version_is_imported_and_exported(tmp_path: Path) -> None:
    log, table, address = tmp_path / "default.log", tmp_path / "live.parquet", sqlite_address(tmp_path)
    # Judged twice; the last line was cut off by a crash.
    log.write_bytes(line("q1", a=0, b=2) + line("q2", a=1, c=0) + line("q1", b=1) + line("q3", a=0, b=1)[:-9])

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["admin", "judgments", address, *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout.strip()

    assert run("--import-log", str(log)) == "1"
    assert run("--import-log", str(log)) == "1"  # the same again is no change
    assert run("--export", str(table)) == "1"
    queries = read_parquet(table)
    assert (queries.qid.tolist(), queries.feature_names) == (["q1", "q2"], ("bm25", "age"))
    assert (queries.doc_id.tolist(), queries.grades.tolist()) == (["a", "b", "a", "c"], [0, 1, 1, 0])
    np.testing.assert_array_equal(queries.X[:, 1], np.full(4, np.nan))
    assert run("--withdraw-query", "q1") == "2"
    run("--export", str(table))
    assert read_parquet(table).qid.tolist() == ["q2"]


def test_damaged_line_of_a_log_raises(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(line("q1", a=0, b=2) + b"0" + line("q2", a=1, c=0)[1:])
    with pytest.raises(FileFormatError, match="line 2: this line was damaged"):
        read_log(tmp_path / "log")
