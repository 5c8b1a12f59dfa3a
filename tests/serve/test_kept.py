"""A process that starts while the database is away ranks by the judgments that it last had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinrank.serve import CandidateSet, JudgedQuery, Service
from kinrank.serve._http.app import create_app
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._judgments import Changes, JudgmentRow
from kinrank.serve._learning import KeptCopy
from tests.processes import wait_until
from tests.serve.asgi import Client
from tests.serve.conftest import PATIENT
from tests.serve.databases import sqlite_address
from tests.serve.observers import RecordingObserver

NEW = [JudgmentRow("q1", "z", "first"), JudgmentRow("q1", "", "new")]
UP = CandidateSet(["a", "b", "c"], np.float32([[0.2, 1.0], [0.9, 1.0], [0.5, 1.0]]), text="up")


@pytest.fixture
def start(models: Path, tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Start services on one database."""
    started = []

    def make(model: str = "knn", **settings: Any) -> Service:
        observer = RecordingObserver()
        address = sqlite_address(tmp_path)
        service = Service(
            {"knn": models / model}, settings=replace(PATIENT, **settings), observer=observer, judgments=address
        )
        service.start()
        started.append(service)
        return service

    yield make
    for service in started:
        service.close()


def take_away(tmp_path: Path) -> None:
    """Let nobody read the database any more."""
    for file in tmp_path.glob("judgments.db*"):
        if file.is_file():
            file.unlink()
    (tmp_path / "judgments.db").write_bytes(b"not a database at all" * 100)


def judged(camps: Any, qid: int) -> JudgedQuery:
    candidates = CandidateSet([str(doc) for doc in range(len(camps[0].X))], camps[0].X)
    return JudgedQuery(str(qid), candidates, camps[0].grades.tolist())


def test_judgments_hold_after_a_start_and_a_reload_without_the_database(start, camps, tmp_path: Path):
    service = start()
    revision = service.judge([judged(camps, 900), judged(camps, 901)])
    service.withdraw(qid="901")
    wait_until(lambda: (service.slots["knn"].current.revision or 0) > revision)
    version, n_judged = service.slots["knn"].current.version, service.slots["knn"].current.judged_queries
    service.close()
    take_away(tmp_path)
    service = start(need_database=True)
    assert service.ready
    found = service.slots["knn"].current
    assert (found.version, found.judged_queries) == (version, n_judged)
    assert found.ranker.has_judged([900]).tolist() == [True]
    assert service.slots["knn"].refusal is not None, "it says that the database is away"
    assert service.reload().version == version


def test_a_process_without_a_copy_is_not_ready_if_it_needs_the_database(start, models: Path, tmp_path: Path):
    take_away(tmp_path)
    assert start().ready
    service = start(need_database=True)
    assert not service.ready
    client = Client(create_app(service, metrics=Metrics()))
    answer = client.get("/readyz")
    assert (answer.status, answer.code) == (503, "no-judgments")
    assert client.post("/v1/rank", {"ids": UP.ids, "features": UP.features.tolist()}).status == 200
    (tmp_path / "judgments.db").unlink()  # the next connection makes an empty one
    wait_until(lambda: service.ready)
    assert client.get("/readyz").status == 200
    client.runner.close()


def test_a_copy_of_another_database_or_another_revision_does_not_count(tmp_path: Path):
    failures: list[Exception] = []
    kept = KeptCopy(tmp_path / "new", "postgresql://one/db", failures.append)
    rows = [JudgmentRow("q1", "", "old"), JudgmentRow("q2", "me", None)]
    kept.keep_judgments("m:current", 5, Changes({row.query: [row] for row in rows}, 7, 9, "aa"))
    kept.keep_judgments("m:current", 7, Changes({"q1": NEW}, 9, 9, "bb"))
    kept.keep_judgments("m:current", 5, Changes({"q1": [JudgmentRow("q1", "", "old")]}, 7, 9, "aa"))  # a slower process
    found = KeptCopy(tmp_path / "new", "postgresql://one/db", failures.append).judgments("m:current", 5)
    assert found == Changes({"q2": [rows[1]], "q1": NEW}, 9, 9, "bb")
    assert kept.judgments("m:current", 7) == Changes({"q1": NEW}, 9, 9, "bb")
    assert kept.judgments("m:current", 9) == Changes({}, 9, 9, "bb")
    for name, revision in (("m:current", 4), ("m:current", 10), ("other:current", 5)):
        assert kept.judgments(name, revision) is None
    assert KeptCopy(tmp_path / "new", "postgresql://two/db", failures.append).judgments("m:current", 5) is None
    kept.keep_judgments("m:current", 20, Changes({}, 21, 21, "cc"))  # 10 to 20 are missing
    assert kept.judgments("m:current", 5) is None
    assert kept.judgments("m:current", 20) == Changes({}, 21, 21, "cc")
    assert failures == []
    [file] = (tmp_path / "new").glob("*.db")
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_copy_that_cannot_be_used_stops_nothing(tmp_path: Path):
    failures: list[Exception] = []
    kept = KeptCopy(tmp_path, "postgresql://one/db", failures.append)
    kept.keep_judgments("m:current", 0, Changes({}, 1, 1, ""))
    [file] = tmp_path.glob("*.db")
    file.write_bytes(b"not a database at all" * 100)
    assert kept.judgments("m:current", 0) is None
    kept.keep_judgments("m:current", 0, Changes({}, 1, 1, ""))
    assert kept.judgments("m:current", 0) is None
    assert [type(each).__name__ for each in failures] == ["DatabaseError"], "reported once"
    nowhere = KeptCopy(None, "postgresql://one/db", failures.append)
    nowhere.keep_judgments("m:current", 0, Changes({}, 1, 1, ""))
    assert nowhere.judgments("m:current", 0) is None
