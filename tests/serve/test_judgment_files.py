"""Stored judgments as a training table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from kinrank.cli import app
from kinrank.data.parquet import read_parquet
from kinrank.serve._judgments import Entry, JudgmentRow, merge_records, open_store
from tests.serve.databases import sqlite_address

RECORD = {"base": "f00", "feature_names": ["bm25", "age"], "vector": None, "columns": {}, "text": None, "keys": {}}


def row(qid: str, **grades: float) -> JudgmentRow:
    rows = [[0.5, None]] * len(grades)
    record = {**RECORD, "qid": qid, "ids": list(grades), "features": rows, "grades": [*grades.values()]}
    return JudgmentRow(qid, "", Entry.parse(json.dumps(record)).dump())


def test_judgments_are_exported_and_withdrawn(tmp_path: Path) -> None:
    table, address = tmp_path / "live.parquet", sqlite_address(tmp_path)
    store = open_store(address)
    store.append("default", [row("q1", a=0, b=2), row("q2", a=1, c=0), row("q1", b=1)], merge_records)  # q1 twice
    store.close()

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["admin", "judgments", address, *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout.strip()

    assert run("--export", str(table)) == "1"
    queries = read_parquet(table)
    assert (queries.qid.tolist(), queries.feature_names) == (["q1", "q2"], ("bm25", "age"))
    assert (queries.doc_id.tolist(), queries.grades.tolist()) == (["a", "b", "a", "c"], [0, 1, 1, 0])
    np.testing.assert_array_equal(queries.X[:, 1], np.full(4, np.nan))
    assert run("--withdraw-query", "q1") == "2"
    run("--export", str(table))
    assert read_parquet(table).qid.tolist() == ["q2"]
