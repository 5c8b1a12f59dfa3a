"""`kinrank admin forget` says which models and folders of evidence still hold what a client asked."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kinrank import KinRanker, KnnRanker, QuerySet
from kinrank.cli.app import app
from kinrank.memory.evidence import Evidence
from kinrank.serve._events.log import EventLog, Shown
from tests.serve.databases import sqlite_address


def save_models(folder: Path, texts: list[str]) -> None:
    """Write models in which these texts are ids, texts or evidence, and one with other texts."""
    rng = np.random.default_rng(0)
    n = 4 * len(texts)
    X, y, documents = (
        rng.standard_normal((n, 2)),
        np.tile([0, 1, 0, 1], len(texts)),
        np.tile(["a", "b", "c", "d"], n // 4),
    )
    plain = QuerySet.from_arrays(X, y, qid=np.repeat(np.arange(len(texts)), 4), doc_id=documents)
    named = plain.replace(query_columns={"text": np.array(texts)})
    by_text = QuerySet.from_arrays(X, y, qid=np.repeat(texts, 4), doc_id=documents)
    evidence = Evidence.from_cells(texts, ["a"] * len(texts), [10] * len(texts), [5] * len(texts), 20_700)
    KnnRanker(5).fit(plain).save(folder / "plain", examples=plain[:3])
    KnnRanker(5).fit(named).save(folder / "named")
    KnnRanker(5).fit(plain).save(folder / "examples", examples=named[:3])
    KnnRanker(5).fit(by_text).save(folder / "ids")
    KinRanker(
        evidence=evidence,
        memory=False,
        local=False,
        trees="lambdamart(n_trees=5)",
        settings={"n_members": 2, "n_repeats": 1},
    ).fit(named).save(folder / "choices")
    evidence.save(folder / "evidence")


@pytest.mark.parametrize("name", ["named", "examples", "ids", "choices", "evidence", "plain"])
def test_folders_that_hold_what_only_this_client_asked_are_named(name: str, tmp_path: Path):
    address = sqlite_address(tmp_path)
    log = EventLog(address)
    asked = {"ann": ["My Secret", "alien"], "bob": ["alien"], "cid": ["alien"], "dan": ["alien"]}
    log.record(
        [
            Shown(f"{client}-{text}", "knn", text, ["a", "b"], client, time.time())
            for client, texts in asked.items()
            for text in texts
        ],
        [],
    )
    log.close()
    save_models(tmp_path, ["my secret", "alien", *(f"movie {i}" for i in range(10))])
    done = CliRunner().invoke(app, ["admin", "forget", address, "--client", "ann", "--folder", str(tmp_path / name)])
    assert done.exit_code == 0, done.output
    assert done.stdout == "2\n"
    said = " ".join(done.stderr.split())
    held, what = (0, "it can stay") if name == "plain" else (1, "write it again from logs and judgments without them")
    assert f"{name}: holds {held} of the 1 queries that this client and too few others asked: {what}" in said


def test_without_folders_it_says_that_models_may_hold_what_the_client_asked(tmp_path: Path):
    address = sqlite_address(tmp_path)
    log = EventLog(address)
    log.record([Shown("q1", "knn", "my secret", ["a"], "ann", time.time())], [])
    log.close()
    done = CliRunner().invoke(app, ["admin", "forget", address, "--client", "ann"])
    assert "name their folders with --folder" in " ".join(done.stderr.split())
    done = CliRunner().invoke(app, ["admin", "forget", address, "--client", "nobody"])
    assert "models" not in done.stderr
