"""New judgments: learned without refitting, kept over a restart, never in the way of a model."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kinrank
from kinrank import CellRanker, KinRanker, KnnRanker, QuerySet, SingleRanker
from kinrank.errors import DataError, NotStoredError, UnsupportedByModelError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.serve import CandidateSet, JudgedQuery, Service
from kinrank.serve import _learning as learning
from kinrank.serve._database import DATABASES as STORES
from kinrank.serve._judgments import Changes, Entry, JudgmentRow, JudgmentStore, learn, open_store
from kinrank.serve._sources import Checkpoints
from tests.processes import wait_until
from tests.serve.conftest import PATIENT
from tests.serve.databases import DATABASES, sqlite_address, stored_queries
from tests.serve.observers import RecordingObserver


def judged(qid: str, values: list[float], camp: int, *, reverse: bool = False) -> JudgedQuery:
    grades = np.argsort(np.argsort(np.array(values) * camp)).astype(float)
    rows = np.column_stack([values, np.full(len(values), camp)]).astype(np.float32)
    ids = [f"{qid}-{i}" for i in range(len(values))]
    return JudgedQuery(qid, CandidateSet(ids, rows), (grades[::-1] if reverse else grades).tolist())


def test_judgments_are_learned_and_kept_over_a_restart(models: Path, tmp_path: Path, camps: QuerySet):
    def start() -> Service:
        service = Service({"knn": models / "knn"}, settings=PATIENT, judgments=sqlite_address(tmp_path))
        service.start()
        return service

    service = start()
    new = [judged(str(1000 + i), [0.1, 0.4, 0.8], 3) for i in range(6)]  # a camp that the model has not seen
    service.judge(new)
    wait_until(lambda: service.slots["knn"].current.judgments == 6)
    candidates = CandidateSet(["a", "b"], np.float32([[0.2, 3], [0.7, 3]]))
    explanation = service.explain(candidates)
    assert explanation is not None
    assert {neighbor.qid for neighbor in explanation.neighbors} <= {query.qid for query in new}
    ranking = service.rank(candidates)
    service.close()
    restarted = start()
    assert restarted.slots["knn"].current.judgments == 6
    assert restarted.rank(candidates).scores == ranking.scores
    restarted.close()
    # Adding them to the ranker at once gives the same scores.
    ranker = kinrank.load(models / "knn")
    rows = QuerySet.from_arrays(
        np.concatenate([query.candidates.features for query in new]),
        np.concatenate([query.grades for query in new]),
        qid=np.repeat([int(query.qid) for query in new], 3),
        feature_names=("value", "camp"),
    )
    np.testing.assert_allclose(np.sort(ranker.add(rows).predict(candidates.features))[::-1], ranking.scores)


def test_kin_ranker_learns_judgments_and_recommends_a_fit(tmp_path: Path, camps: QuerySet):
    trees = LambdaMART(n_trees=5, n_leaves=3, n_threads=1)
    KinRanker(5, trees=trees).fit(camps).save(tmp_path / "kin", examples=camps[:5])
    with Service({"kin": tmp_path / "kin"}, settings=PATIENT, judgments=sqlite_address(tmp_path)) as service:
        slot = service.slots["kin"]
        assert (slot.current.unseen_judgments, slot.current.fit_recommended) == (0, False)
        service.judge([judged(str(1000 + i), [0.1, 0.4, 0.8], 3) for i in range(10)])
        wait_until(lambda: slot.current.judgments == 10)
        assert (slot.current.unseen_judgments, slot.current.fit_recommended) == (10, True)
        candidates = CandidateSet(["a", "b"], np.float32([[0.2, 3], [0.7, 3]]))
        assert {neighbor.qid for neighbor in service.explain(candidates).neighbors} <= {
            str(i) for i in range(1000, 1010)
        }
        assert service.rank(candidates).fallback is None


def test_query_judged_again_is_replaced_unless_the_model_is_newer(models: Path, tmp_path: Path, camps: QuerySet):
    service = Service({"knn": models / "knn"}, settings=PATIENT, judgments=sqlite_address(tmp_path))
    service.start()
    again = judged(str(camps.qid[0]), [0.1, 0.4, 0.8], 1, reverse=True)
    service.judge([again])
    wait_until(lambda: service.slots["knn"].current.judgments == 1)
    assert len(service.slots["knn"].current.ranker.qid_) == len(camps)
    assert not np.allclose(
        service.slots["knn"].current.ranker.global_.coef_, service.slots["knn"].current.base.global_.coef_
    )
    KnnRanker(6).fit(camps).save(models / "knn", examples=camps[:5])
    served = service.reload()
    np.testing.assert_array_equal(served.ranker.global_.coef_, served.base.global_.coef_)
    service.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        *[
            (JudgedQuery(qid, CandidateSet(["a", "b"], np.float32([[1, 1], [2, 1]])), [0, 1]), "integers from -9223")
            for qid in ("01000", " 1000", "1_000", "+1000", str(2**63), "9" * 400)
        ],
        (JudgedQuery("word", CandidateSet(["a", "b"], np.float32([[1, 1], [2, 1]])), [0, 1]), "query ids are integers"),
        (
            JudgedQuery("7000", CandidateSet(["a", "b"], np.float32([[1], [2]]), ("price",)), [0, 1]),
            "no feature 'price'",
        ),
        (JudgedQuery("7000", CandidateSet(["a", "b"], np.float32([[1, np.nan], [2, 1]])), [0, 1]), "missing"),
    ],
)
def test_no_judgment_is_kept_if_one_does_not_fit(service: Service, wrong: JudgedQuery, message: str, tmp_path: Path):
    with pytest.raises(DataError, match=message):
        service.judge([judged("5000", [0.1, 0.2], 1), wrong])
    assert stored_queries(sqlite_address(tmp_path), "knn") == []


def row(query: JudgedQuery, base: str = "an-older-model") -> JudgmentRow:
    named = CandidateSet(query.candidates.ids, query.candidates.features, ("value", "camp"))
    return JudgmentRow(query.qid, "", Entry(base, JudgedQuery(query.qid, named, query.grades)).dump())


def test_store_with_unusual_query_ids_is_learned(models: Path, tmp_path: Path):
    store = open_store(sqlite_address(tmp_path))
    store.append("knn", [row(judged(qid, [0.1, 0.4], 1)) for qid in ("1000", "01000", " 1000", str(2**63), "1001")])
    store.close()
    with Service({"knn": models / "knn"}, settings=PATIENT, judgments=sqlite_address(tmp_path)) as service:
        known = service.slots["knn"].current.ranker.qid_.tolist()
        assert known[-2:] == [1000, 1001]
        assert len(known) == 62


def test_bad_record_is_skipped(models: Path):
    ranker = kinrank.load(models / "knn")
    queries = [judged(qid, [0.1, 0.4], 1) for qid in ("1000", "1001", "1002")]
    queries[1].candidates.features[0, 0] = np.nan
    result = learn(ranker, [Changes({query.qid: [row(query)] for query in queries}, 3, 3)], ranker, "base")
    assert result.ranker.qid_.tolist()[-2:] == [1000, 1002]
    assert (result.revision, result.learned, result.skipped) == (3, 2, 1)


def test_document_judged_again_is_replaced_and_others_stay(service: Service):
    def learned(query: JudgedQuery, source: str) -> dict[str, float]:
        revision = service.judge([query], source=source)
        wait_until(lambda: service.slots["knn"].current.revision == revision)
        rows = service.slots["knn"].learner._store.read("knn").queries[query.qid]
        entries = [Entry.parse(each.record).judged for each in rows if each.record]
        return {
            doc_id: grade for each in entries for doc_id, grade in zip(each.candidates.ids, each.grades, strict=True)
        }

    def query(**grades: float) -> JudgedQuery:
        rows = np.float32([[0.1 * len(name), 1] for name in grades])
        return JudgedQuery("900", CandidateSet(list(grades), rows), list(grades.values()))

    assert learned(query(a=0, bb=2), "panel") == {"a": 0, "bb": 2}
    assert learned(query(bb=1, ccc=2), "panel") == {"a": 0, "bb": 1, "ccc": 2}
    assert learned(query(a=2), "clicks") == {"a": 2, "bb": 1, "ccc": 2}
    before = service.slots["knn"].current.revision
    assert service.judge([query(a=2)], source="clicks") == before  # the same again is no change
    assert service.withdraw(source="clicks") == (1, before + 1)
    assert service.withdraw(qid="900") == (1, before + 2)
    wait_until(lambda: service.slots["knn"].current.revision == before + 2)
    assert not service.slots["knn"].current.ranker.has_judged([900])[0]


def test_refitted_model_learns_only_later_judgments(models: Path, tmp_path: Path, camps: QuerySet):
    with Service({"knn": models / "knn"}, settings=PATIENT, judgments=sqlite_address(tmp_path)) as service:
        slot = service.slots["knn"]
        through = service.judge([judged(qid, [0.1, 0.4], 1) for qid in ("1000", "1001")])
        wait_until(lambda: slot.current.revision == through)
        # The new fit leaves 1000 out on purpose, and was given the judgments of 1001 with the other data.
        fitted = KnnRanker(5).fit(camps)
        fitted.save(models / "knn", examples=camps[:5], judgments_through=through)
        service.reload()
        assert not slot.current.ranker.has_judged([1000, 1001]).any()
        assert slot.current.version.startswith(f"{slot.current.fitted}+{through}.")
        later = service.judge([judged("1002", [0.1, 0.4], 1)])
        wait_until(lambda: slot.current.revision == later)
        assert slot.current.ranker.has_judged([1000, 1001, 1002]).tolist() == [False, False, True]


def test_withdrawn_query_is_forgotten_by_every_later_start(models: Path, tmp_path: Path, camps: QuerySet):
    known = int(camps.qid[0])
    store = open_store(sqlite_address(tmp_path))
    store.append("knn", [row(judged(str(known), [0.1, 0.4], 1))])
    store.delete("knn", query=str(known))
    store.close()
    for _ in range(2):
        with Service({"knn": models / "knn"}, settings=PATIENT, judgments=sqlite_address(tmp_path)) as service:
            assert not service.slots["knn"].current.ranker.has_judged([known])[0]


def test_model_whose_judgments_are_all_withdrawn_waits_for_another(models: Path, tmp_path: Path, camps: QuerySet):
    def start() -> Service:
        service = Service({"knn": models / "knn"}, settings=PATIENT, judgments=sqlite_address(tmp_path))
        service.start()
        return service

    service = start()
    slot = service.slots["knn"]
    learned = service.judge([judged(str(qid), [0.1, 0.4], 1) for qid in camps.qid], source="panel")
    wait_until(lambda: slot.current.revision == learned)
    service.withdraw(source="panel")
    wait_until(lambda: "all of its judged queries were withdrawn" in str(slot.refusal))
    assert slot.current.revision == learned  # it does not claim to have forgotten them
    last = service.judge([judged("1000", [0.1, 0.4, 0.8], 3)])
    wait_until(lambda: slot.current.revision == last)
    restarted = start()
    for each in (slot, restarted.slots["knn"]):
        assert (each.refusal, each.current.judged_queries) == (None, 1)
        assert each.current.ranker.has_judged([1000])[0]
    service.close()
    restarted.close()


def test_replicas_with_equal_versions_rank_alike(models: Path, tmp_path: Path):
    address = sqlite_address(tmp_path)
    services = [Service({"knn": models / "knn"}, settings=PATIENT, judgments=address) for _ in range(3)]
    for service in services:
        service.start()
    for number, service in enumerate(services):
        revision = service.judge([judged(str(1000 + i), [0.1, 0.4, 0.8], number - 1 or 3) for i in range(3)])
    for service in services:
        wait_until(lambda service=service: service.slots["knn"].current.revision == revision)
    candidates = CandidateSet(["a", "b"], np.float32([[0.2, 3], [0.7, 3]]))
    rankings = [service.rank(candidates) for service in services]
    assert len({ranking.version for ranking in rankings}) == 1
    np.testing.assert_allclose([ranking.scores for ranking in rankings], [rankings[0].scores] * 3, rtol=1e-9)
    for service in services:
        service.close()


@pytest.mark.parametrize("name", [pytest.param(name, marks=DATABASES[name].marks) for name in STORES])
def test_replicas_agree_after_an_older_dump_was_restored(models: Path, tmp_path: Path, name: str):
    database = DATABASES[name]
    observers = [RecordingObserver() for _ in range(3)]

    def start(number: int) -> Service:
        folder = str(tmp_path / f"checkpoints-{number}")
        service = Service(
            {"knn": models / "knn"},
            settings=PATIENT,
            judgments=address,
            checkpoints=folder,
            observer=observers[number],
        )
        service.start()
        return service

    def judge(service: Service, first: int, count: int, camp: int) -> int:
        queries = [judged(str(qid), [0.1, 0.4, 0.8], camp) for qid in range(first, first + count)]
        while True:
            try:
                return [service.judge([query]) for query in queries][-1]
            except NotStoredError:  # the connection was cut by the restore
                time.sleep(0.05)

    with database.empty(tmp_path) as address:
        services = [start(number) for number in range(3)]
        judge(services[0], 1000, 4, 3)
        database.dump(address)
        lost = judge(services[1], 2000, 3, 3)
        for service in services:
            wait_until(lambda service=service: service.slots["knn"].current.revision == lost)
        database.restore(address)
        services[0].close()
        services[0] = start(0)
        last = judge(services[0], 3000, 5, -3)
        assert last > lost
        for service in services:
            wait_until(lambda service=service: service.slots["knn"].current.revision == last)
        served = [service.slots["knn"].current for service in services]
        assert len({each.version for each in served}) == 1
        assert all(each.ranker.has_judged([1000, 2000, 3000]).tolist() == [True, False, True] for each in served)
        candidates = CandidateSet(["a", "b"], np.float32([[0.2, 3], [0.7, 3]]))
        scores = [service.rank(candidates).scores for service in services]
        np.testing.assert_allclose(scores, [scores[0]] * 3, rtol=1e-9)
        for service, observer in zip(services[1:], observers[1:], strict=True):
            assert ("knn", "relearned") in observer.models
            service.close()
        services[0].close()


@pytest.mark.parametrize("strict", [True, False])
def test_store_that_cannot_be_read_does_not_stop_any_model(
    models: Path, tmp_path: Path, camps: QuerySet, up, strict: bool
):
    file = tmp_path / "judgments.db"
    with Service({"knn": models / "knn"}, settings=PATIENT, judgments=sqlite_address(tmp_path)) as first:
        first.judge([judged("1000", [0.1, 0.4], 1)])
    intact = file.read_bytes()
    file.write_bytes(b"0" * len(intact))
    observer = RecordingObserver()
    folders = {"knn": models / "knn", "single": models / "single", "later": models / "later"}
    service = Service(
        folders if not strict else {"knn": folders["knn"], "single": folders["single"]},
        settings=PATIENT,
        judgments=sqlite_address(tmp_path),
        observer=observer,
    )
    service.start(strict=strict)
    assert service.rank(up).ids == ["b", "c", "a"]
    assert "not a database" in str(service.slots["knn"].refusal)
    with pytest.raises(NotStoredError, match="not a database"):
        service.judge([judged("1001", [0.1, 0.4], 1)])
    versions = {name: slot.current.version for name, slot in service.slots.items() if slot.current}
    KnnRanker(7).fit(camps).save(models / "knn", examples=camps[:5])
    SingleRanker("rankrls", scale="none").fit(camps).save(models / "single", examples=camps[:5])
    for name, version in versions.items():
        wait_until(lambda name=name, version=version: service.slots[name].current.version != version)
    assert observer.models.count(("knn", "learn-failed")) == 1  # not at every check
    assert (("later", "missing") in observer.models) is not strict
    restored = tmp_path / "restored.db"
    restored.write_bytes(intact)
    restored.replace(file)  # at once: an empty file is a new store
    wait_until(lambda: service.slots["knn"].refusal is None)
    assert service.slots["knn"].current.judgments == 1
    assert observer.errors == []
    service.close()


def test_model_that_cannot_learn_raises(service: Service, models: Path, tmp_path: Path, camps: QuerySet):
    with pytest.raises(
        UnsupportedByModelError, match=r"\(SingleRanker\) cannot learn without refitting.*base of the ranker kin"
    ):
        service.judge([judged("5000", [0.1, 0.2], 1)], model="single")
    CellRanker(5, n_cells=10).fit(camps).save(models / "cells", examples=camps[:5])
    with Service({"cells": models / "cells"}, settings=PATIENT, judgments=sqlite_address(tmp_path)) as celled:
        with pytest.raises(UnsupportedByModelError, match="cannot learn without refitting"):
            celled.judge([judged("5000", [0.1, 0.2], 1)])
        assert celled.slots["cells"].current.judged_queries is None
    with (
        Service({"knn": models / "knn"}, settings=PATIENT) as other,
        pytest.raises(UnsupportedByModelError, match="does not accept judgments"),
    ):
        other.judge([judged("5000", [0.1, 0.2], 1)])


def test_checkpoints_that_cannot_be_read_do_not_stop_a_model(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def forbidden(*_: object) -> None:
        raise PermissionError("checkpoints: permission denied")

    monkeypatch.setattr(Checkpoints, "latest", forbidden)
    with Service({"knn": models / "knn"}, settings=PATIENT, judgments=sqlite_address(tmp_path)) as service:
        assert service.ready
        assert "permission denied" in str(service.slots["knn"].refusal)


def test_restart_reads_a_checkpoint_and_not_the_history(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(learning, "CHECKPOINT_QUERIES", 4)
    address = sqlite_address(tmp_path)
    folder = tmp_path / "judgments.db.checkpoints"
    candidates = CandidateSet(["a", "b"], np.float32([[0.2, 3], [0.7, 3]]))
    with Service({"knn": models / "knn"}, settings=PATIENT, judgments=address) as service:
        slot = service.slots["knn"]
        first = service.judge([judged(str(1000 + i), [0.1, 0.4, 0.8], 3) for i in range(5)])
        wait_until(lambda: list(folder.glob("knn-*-5-*")) and slot.current.consolidated == 5)
        service.withdraw(qid="1000")
        last = service.judge([judged("1001", [0.1, 0.4, 0.8], 3, reverse=True)])
        wait_until(lambda: slot.current.revision == last)
        before = service.rank(candidates)
    read: list[int] = []
    original = JudgmentStore.read
    monkeypatch.setattr(
        JudgmentStore, "read", lambda *args, **named: (read.append(args[2]), original(*args, **named))[1]
    )
    with Service({"knn": models / "knn"}, settings=PATIENT, judgments=address) as service:
        assert read[0] == first
        again = service.rank(candidates)
        assert (again.version, service.slots["knn"].current.judgments) == (before.version, 6)
        np.testing.assert_allclose(again.scores, before.scores, rtol=1e-9)


@pytest.mark.parametrize("name", ["knn", "knn-2", "knn-*"])
@pytest.mark.parametrize("mark", ["", "1234", "12ab"])
def test_checkpoint_is_found_whatever_its_mark_looks_like(models: Path, tmp_path: Path, name: str, mark: str):
    with Service({"knn": models / "knn"}, settings=PATIENT) as service:
        served = service.slots["knn"].loaded()
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.write(name, replace(served, revision=7, judgments=3, mark=mark))
    latest = checkpoints.latest(name, replace(served, revision=0))
    assert latest is not None
    assert (latest.revision, latest.judgments, latest.mark) == (7, 3, mark)


def test_a_ranker_of_choices_obeys_judgments_of_a_query_at_once(tmp_path: Path, camps: QuerySet):
    camps = camps.replace(query_columns={"text": np.array([f"query {qid}" for qid in camps.qid])})
    KinRanker(
        encoder=None,
        memory=False,
        local=False,
        trees="lambdamart(n_trees=5)",
        settings={"n_members": 2, "n_repeats": 1},
    ).fit(camps).save(tmp_path / "choices", examples=camps[:3])
    service = Service({"choices": tmp_path / "choices"}, settings=PATIENT, judgments=sqlite_address(tmp_path))
    service.start()
    rows = np.column_stack([np.linspace(0, 1, 8), np.ones(8)]).astype(np.float32)
    asked = CandidateSet([f"d{i}" for i in range(8)], rows, text="what an editor cares about")
    other, nameless = replace(asked, text="something else"), replace(asked, text=None)
    before = [service.rank(each) for each in (asked, other, nameless)]
    first, seventh = before[0].ids[0], before[0].ids[6]
    grades = [{first: 0.0, seventh: 4.0}.get(document, float("nan")) for document in asked.ids]
    kept = [row for row, grade in enumerate(grades) if grade == grade]
    judged = CandidateSet([asked.ids[row] for row in kept], rows[kept], text=asked.text)
    service.judge([JudgedQuery("0", judged, [grades[row] for row in kept])])
    wait_until(lambda: service.slots["choices"].current.judgments == 1)
    after = [service.rank(each) for each in (asked, other, nameless)]
    assert after[0].ids[0] == seventh
    assert after[0].ids[-1] == first
    assert [each.scores for each in after[1:]] == [each.scores for each in before[1:]]
    service.close()
