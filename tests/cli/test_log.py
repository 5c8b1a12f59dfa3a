from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinrank import engines, read_parquet
from kinrank.engines import FeatureSet, connect
from kinrank.registry import import_extra
from tests.engines.conftest import index_body
from tests.engines.engine_sample import FEATURES, VECTOR, sample_documents
from tests.engines.servers import ADDRESSES
from tests.engines.toy import ToyEngine

LINES = ["qid\tquery\tdoc_id\ty"] + [f"q{i}\tred car\td{j}\t{j % 2}" for i in range(4) for j in (0, 3, 5, 99)]


def program(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = "from kinrank.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *words], cwd=cwd, capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "judgments.tsv").write_text("\n".join(LINES) + "\n")
    (tmp_path / "features.toml").write_text(FEATURES)
    pq.write_table(pa.table({"qid": [f"q{i}" for i in range(4)], "vector": [list(VECTOR)] * 4}), tmp_path / "v.parquet")
    return tmp_path


@pytest.mark.engine
@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
def test_log_writes_a_readable_file(folder: Path, name: str):
    address = f"{os.environ.get(f'KINRANK_{name.upper()}', ADDRESSES[name])}/cli-{uuid.uuid4().hex}"
    words = ["log", "--engine", address, "--features", "features.toml", "--judgments", "judgments.tsv"]
    with connect(address) as engine:
        engine.index(sample_documents(), settings=index_body(name))
        try:
            done = program(*words, "--vectors", "v.parquet", "--out", "out.parquet", cwd=folder)
        finally:
            engine.delete_index()  # type: ignore[attr-defined]
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    n_features = len(FeatureSet.parse(FEATURES).names)
    assert f"out.parquet: 4 queries, 156 documents, {n_features} features" in done.stderr
    assert "4 judged documents skipped: not among the engine's first hits" in done.stderr
    assert "144 unjudged documents logged without a grade; they count as grade 0" in done.stderr
    assert "documents without 'title_all'" in done.stderr
    logged = read_parquet(folder / "out.parquet")
    assert (len(logged), logged.n_rows, logged.query_columns["vector"].shape) == (4, 156, (4, 3))
    assert (logged.judged.sum(), logged.grades.sum()) == (12, 8)
    assert np.isfinite(logged.X[:, 0]).all()


@pytest.mark.parametrize(
    ("weighted", "options", "message"),
    [
        (False, [], "they count as grade 0\n"),
        (True, [], "they count as grade 0, weight 0.05\n"),
        (True, ["--unjudged-weight", "0"], "their weight is 0, so nothing is learned from them\n"),
    ],
)
def test_summary_says_what_unjudged_hits_count(
    kinrank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weighted: bool, options: list[str], message: str
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engines, "connect", lambda *_, **__: ToyEngine())
    header, row = ("\tsample_weight", "\t0.5") if weighted else ("", "")
    Path("judged.tsv").write_text(f"qid\tquery\tdoc_id\ty{header}\n1\tred car\td3\t1{row}\n")
    words = ["log", "--engine", "toy", "--features", "f.toml", "--judgments", "judged.tsv", "--out", "out.parquet"]
    done = kinrank(*words, *options)
    assert done.exit_code == 0, done.stderr
    assert f"9 unjudged documents logged without a grade; {message}" in done.stderr


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"--engine": "http://127.0.0.1:9/x"}, "is not an engine address"),
        ({"--engine": "elasticsearch+http://127.0.0.1:9/x"}, "cannot reach any of"),
        ({"--features": "nothing.toml"}, "nothing.toml"),
        ({"--judgments": "nothing.tsv"}, "nothing.tsv"),
        ({"--out": "out.txt"}, "write NAME.parquet or a folder"),
        ({"--candidates": "all"}, "candidates must be 'top' or 'judged'"),
        ({"--columns": "qid=id"}, "no column 'id'"),
        ({"--set": "api_key"}, "write it as name=value"),
    ],
)
def test_wrong_input_is_an_error(folder: Path, changed: dict[str, str], problem: str):
    import_extra("elasticsearch", "engines")
    words = {
        "--engine": "elasticsearch+http://127.0.0.1:9/x",
        "--features": "features.toml",
        "--judgments": "judgments.tsv",
        "--vectors": "v.parquet",
        "--out": "out.parquet",
        "--set": "retry_for=0.1",
    } | changed
    done = program("log", *[word for pair in words.items() for word in pair], cwd=folder)
    assert done.returncode == 2, done.stderr
    assert problem in done.stderr.replace("\n", " ")
    assert json.dumps(done.stdout) == '""'


def test_the_timeout_of_the_command_line_is_that_of_every_request(kinrank, tmp_path: Path, monkeypatch):
    waited: list[float | None] = []

    class Patient(ToyEngine):
        def log(self, query, doc_ids, *, vector=None, timeout=None):
            waited.append(timeout)
            return super().log(query, doc_ids, vector=vector, timeout=timeout)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engines, "connect", lambda *_, **__: Patient())
    Path("judged.tsv").write_text("qid\tquery\tdoc_id\ty\n1\tred car\td3\t1\n")
    words = ["log", "--engine", "toy", "--features", "f.toml", "--judgments", "judged.tsv", "--out", "out.parquet"]
    done = kinrank(*words, "--set", "timeout=45")
    assert done.exit_code == 0, done.stderr
    assert waited == [45.0]


def test_the_rank_of_the_engine_is_logged_and_is_no_feature(kinrank, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engines, "connect", lambda *_, **__: ToyEngine())
    Path("judged.tsv").write_text("qid\tquery\tdoc_id\ty\n1\tred car\td3\t1\n")
    words = ["log", "--engine", "toy", "--features", "f.toml", "--judgments", "judged.tsv"]
    assert kinrank(*words, "--out", "top.parquet").exit_code == 0
    logged = read_parquet("top.parquet")
    assert logged.doc_columns["engine_rank"].tolist() == [int(each[1:]) + 1 for each in logged.doc_id]
    assert logged.feature_names == ("number", "even")
    assert kinrank(*words, "--out", "judged.parquet", "--candidates", "judged").exit_code == 0
    assert not read_parquet("judged.parquet").doc_columns
