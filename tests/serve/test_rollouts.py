"""Canary: a version of a store that ranks a share of the queries."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kinrank import KnnRanker, QuerySet
from kinrank.cli import app
from kinrank.errors import ParameterError
from kinrank.serve import CandidateSet, Fallback, JudgedQuery, Service, Settings
from kinrank.serve._models import SESSION
from kinrank.serve._ranking import Job
from kinrank.store import Arm, VersionStore, fingerprint
from tests.processes import wait_until
from tests.serve.databases import sqlite_address
from tests.serve.observers import Deliveries, RecordingObserver

POLLING = Settings(deadline=60.0, poll_interval=0.02)


class Results(RecordingObserver):
    def __init__(self) -> None:
        super().__init__()
        self.results: Counter[tuple[str, str, Fallback | None]] = Counter()

    def result(self, model: str, version: str, fallback: Fallback | None) -> None:
        self.results[model, version, fallback] += 1


@pytest.fixture
def store(tmp_path: Path, models: Path) -> VersionStore:
    """Version 1, the current one, and version 2."""
    store = VersionStore(tmp_path / "store")
    store.assign("current", Arm(store.publish(models / "knn").name))
    store.publish(models / "single")
    return store


def test_canary_ranks_its_share_and_keeps_its_sessions(
    store: VersionStore, tmp_path: Path, models: Path, up: CandidateSet
):
    current, canary = fingerprint(models / "knn"), fingerprint(models / "single")
    texts = [replace(up, text=None, ids=[f"{query}-{each}" for each in "abc"]) for query in range(300)]
    observer = Results()
    with Service({"default": tmp_path / "store"}, settings=POLLING, observer=observer) as service:
        rollout = service.rollouts["default"]

        def chosen(session: str | None = None) -> list[str]:
            models = [rollout.model_for(query, session) for query in texts]
            return [model.fitted for model in models if model is not None]

        assert set(chosen()) == {current}
        store.assign("canary", Arm(store.find("2").name, 0.2))
        wait_until(lambda: canary in chosen())
        first = chosen()
        assert 30 <= first.count(canary) <= 90  # 60 expected, standard deviation 7
        assert chosen() == first
        assert len(set(chosen("session"))) == 1
        store.assign("canary", Arm(store.find("2").name, 0.6))
        wait_until(lambda: chosen().count(canary) > 130)
        assert all(after == canary for before, after in zip(first, chosen(), strict=True) if before == canary)
        # The version in the response is that of the model that ranked, also among the jobs of one batch.
        answered = {service.rank(query).version for query in texts[:20]}
        assert answered == {current, canary}
        assert {version for _, version, _ in observer.results} == answered
        token = SESSION.set("session")
        assert service.rank(texts[0]).version == service.rank(texts[1]).version == chosen("session")[0]
        SESSION.reset(token)
        store.assign("canary", None)
        wait_until(lambda: set(chosen()) == {current})


def test_canary_learns_live_judgments_and_keeps_its_own_checkpoints(
    store: VersionStore, tmp_path: Path, camps: QuerySet, up: CandidateSet
):
    KnnRanker(7).fit(camps).save(tmp_path / "other", examples=camps[:3])
    store.assign("canary", Arm(store.publish(tmp_path / "other").name, 0.5))
    with Service({"default": tmp_path / "store"}, settings=POLLING, judgments=sqlite_address(tmp_path)) as service:
        rollout = service.rollouts["default"]
        current, canary = rollout.current, rollout.canary
        assert canary is not None
        wait_until(lambda: canary.current is not None)
        revision = service.judge([JudgedQuery("900", up, [0, 2, 1])])
        wait_until(lambda: current.learning()[0].revision == canary.learning()[0].revision == revision)
        service.check_learned(revision)
        for slot in (current, canary):
            served, learner = slot.learning()
            learner._checkpoints.write("default", served)
        for slot in (current, canary):  # the second write has not deleted the first
            served, learner = slot.learning()
            assert learner._checkpoints.latest("default", replace(served, revision=0)) is not None


def test_promoted_canary_gives_up_its_share(store: VersionStore):
    canary = store.find("2").name
    store.assign("canary", Arm(canary, 0.05))
    store.assign("current", Arm(canary))
    assert store.rollout() == {"current": Arm(canary)}


def test_refused_canary_leaves_all_queries_to_the_current_model(
    store: VersionStore, tmp_path: Path, models: Path, up: CandidateSet
):
    version = store.find("2").name
    next((tmp_path / "store" / "versions" / version).glob("*.npy")).write_bytes(b"")
    store.assign("canary", Arm(version, 1.0))
    with Service({"default": tmp_path / "store"}, settings=POLLING) as service:
        wait_until(lambda: str(service.rollouts["default"].refusal).startswith("canary: "))
        assert service.rank(up).version == fingerprint(models / "knn")


def test_canary_has_no_share_once_the_store_names_another_one(
    store: VersionStore, tmp_path: Path, models: Path, camps: QuerySet, up: CandidateSet
):
    store.assign("canary", Arm(store.find("2").name, 0.05))
    KnnRanker(7).fit(camps).save(tmp_path / "third", examples=camps[:3])
    third = store.publish(tmp_path / "third").name
    next((tmp_path / "store" / "versions" / third).glob("*.npy")).write_bytes(b"")
    observer = Results()
    with Service({"default": tmp_path / "store"}, settings=POLLING, observer=observer) as service:
        canary = service.rollouts["default"].canary
        assert canary is not None
        assert canary.current is not None  # loaded before the service is ready
        store.assign("canary", Arm(third, 1.0))
        wait_until(lambda: canary.refusal is not None)
        assert canary.current.fitted == fingerprint(models / "single")
        assert service.rank(up).version == fingerprint(models / "knn")
        store.assign("canary", None)
        wait_until(lambda: ("default:canary", "ended") in observer.models)
        assert (canary.current, canary.refusal) == (None, None)


def test_result_after_the_deadline_counts_as_late(store: VersionStore, tmp_path: Path, up: CandidateSet):
    observer = Results()
    with Service({"default": tmp_path / "store"}, settings=POLLING, observer=observer) as service:
        delivered = Deliveries()
        served = service.slots["default"].current
        assert served is not None
        now = time.perf_counter()
        service.workers.rankers["default"]([Job(up, now, now, delivered)])
        assert delivered.wait(1)[0].fallback is None
        assert observer.results == {("default", served.fitted, Fallback.LATE): 1}


def test_commands_change_the_rollout(store: VersionStore, tmp_path: Path):
    def run(*args: str) -> int:
        return CliRunner().invoke(app, ["admin", "models", str(tmp_path / "store"), *args]).exit_code

    second = store.find("2").name
    assert run("--canary", "2:0.05") == 0
    assert store.rollout()["canary"] == Arm(second, 0.05)
    assert run("--canary", "none") == 0
    assert set(store.rollout()) == {"current"}
    assert run("--canary", "2:much") == run("--canary", "2:1.5") == run("--canary", "9:0.1") == 2
    assert run("--canary", "2") == 2  # all queries would be a rollout
    (tmp_path / "store" / "rollout.json").write_text("{")
    assert run("--canary", "2:0.1") == 2
    assert (tmp_path / "store" / "rollout.json").read_text() == "{"
    assert run("--use", "1") == 0


def test_canary_needs_a_current_version(tmp_path: Path, models: Path):
    command = ["admin", "models", str(tmp_path / "empty"), "--publish", str(models / "knn"), "--canary", "0.1"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert "has no current version" in done.stderr
    assert VersionStore(tmp_path / "empty").versions() == []


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
def test_invalid_share_is_refused(share: float):
    with pytest.raises(ParameterError, match="must be above 0 and at most 1"):
        Arm("000001-0123456789ab", share)
