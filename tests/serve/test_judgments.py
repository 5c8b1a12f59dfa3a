"""New judgments: learned without refitting, kept over a restart, never in the way of a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kinrank
from kinrank import CellRanker, KinRanker, KnnRanker, QuerySet, SingleRanker
from kinrank.errors import DataError, UnsupportedByModelError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.serve import CandidateSet, JudgedQuery, Service
from kinrank.serve.journal import Journal
from kinrank.serve.live_judgments import Entry, learn
from tests.processes import wait_until
from tests.serve.conftest import PATIENT
from tests.serve.observers import RecordingObserver


def judged(qid: str, values: list[float], camp: int, *, reverse: bool = False) -> JudgedQuery:
    grades = np.argsort(np.argsort(np.array(values) * camp)).astype(float)
    rows = np.column_stack([values, np.full(len(values), camp)]).astype(np.float32)
    ids = [f"{qid}-{i}" for i in range(len(values))]
    return JudgedQuery(qid, CandidateSet(ids, rows), (grades[::-1] if reverse else grades).tolist())


def test_judgments_are_learned_and_kept_over_a_restart(models: Path, tmp_path: Path, camps: QuerySet):
    def start() -> Service:
        service = Service({"knn": models / "knn"}, settings=PATIENT, judgments=tmp_path / "j")
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
    with Service({"kin": tmp_path / "kin"}, settings=PATIENT, judgments=tmp_path / "j") as service:
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
    service = Service({"knn": models / "knn"}, settings=PATIENT, judgments=tmp_path / "j")
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
def test_no_judgment_is_kept_if_one_does_not_fit(service: Service, wrong: JudgedQuery, message: str):
    with pytest.raises(DataError, match=message):
        service.judge([judged("5000", [0.1, 0.2], 1), wrong])
    assert service.slots["knn"].journal.read()[0] == []


def test_journal_with_unusual_query_ids_is_learned(models: Path, tmp_path: Path):
    def entry(qid: str) -> Entry:
        query = judged(qid, [0.1, 0.4], 1)
        named = CandidateSet(query.candidates.ids, query.candidates.features, ("value", "camp"))
        return Entry("an-older-model", JudgedQuery(qid, named, query.grades))

    texts = [entry(qid).dump() for qid in ("1000", "01000", " 1000", str(2**63), "1000", "1001")]
    Journal(tmp_path / "j" / "knn.log").append(texts)
    with Service({"knn": models / "knn"}, settings=PATIENT, judgments=tmp_path / "j") as service:
        known = service.slots["knn"].current.ranker.qid_.tolist()
        assert known[-2:] == [1000, 1001]
        assert len(known) == 62


def test_bad_journal_entry_is_skipped(models: Path):
    ranker = kinrank.load(models / "knn")
    queries = [judged(qid, [0.1, 0.4], 1) for qid in ("1000", "1001", "1002")]
    queries[1].candidates.features[0, 0] = np.nan
    updated, skipped = learn(ranker, [Entry("base", query) for query in queries], "base", ranker.qid_)
    assert updated.qid_.tolist()[-2:] == [1000, 1002]
    assert skipped == 1


@pytest.mark.parametrize("strict", [True, False])
def test_damaged_journal_does_not_stop_any_model(models: Path, tmp_path: Path, camps: QuerySet, up, strict: bool):
    journal = Journal(tmp_path / "j" / "knn.log")
    with Service({"knn": models / "knn"}, settings=PATIENT, judgments=tmp_path / "j") as first:
        first.judge([judged("1000", [0.1, 0.4], 1)])
    intact = journal.path.read_bytes()
    journal.path.write_bytes(b"0" * 8 + intact[8:])
    observer = RecordingObserver()
    folders = {"knn": models / "knn", "single": models / "single", "later": models / "later"}
    service = Service(
        folders if not strict else {"knn": folders["knn"], "single": folders["single"]},
        settings=PATIENT,
        judgments=tmp_path / "j",
        observer=observer,
    )
    service.start(strict=strict)
    assert service.rank(up).ids == ["b", "c", "a"]
    assert "has changed since it was written" in str(service.slots["knn"].refusal)
    versions = {name: slot.current.version for name, slot in service.slots.items() if slot.current}
    KnnRanker(7).fit(camps).save(models / "knn", examples=camps[:5])
    SingleRanker("rankrls", scale="none").fit(camps).save(models / "single", examples=camps[:5])
    for name, version in versions.items():
        wait_until(lambda name=name, version=version: service.slots[name].current.version != version)
    assert observer.models.count(("knn", "learn-failed")) == 1  # not at every check
    assert (("later", "missing") in observer.models) is not strict
    journal.path.write_bytes(intact)
    wait_until(lambda: service.slots["knn"].refusal is None)
    assert service.slots["knn"].current.judgments == 1
    assert observer.errors == []
    service.close()


def test_model_that_cannot_learn_raises(service: Service, models: Path, tmp_path: Path, camps: QuerySet):
    with pytest.raises(UnsupportedByModelError, match="cannot learn without refitting"):
        service.judge([judged("5000", [0.1, 0.2], 1)], model="single")
    CellRanker(5, n_cells=10).fit(camps).save(models / "cells", examples=camps[:5])
    with Service({"cells": models / "cells"}, settings=PATIENT, judgments=tmp_path / "c") as celled:
        with pytest.raises(UnsupportedByModelError, match="cannot learn without refitting"):
            celled.judge([judged("5000", [0.1, 0.2], 1)])
        assert celled.slots["cells"].current.judged_queries is None
    with (
        Service({"knn": models / "knn"}, settings=PATIENT) as other,
        pytest.raises(UnsupportedByModelError, match="does not accept judgments"),
    ):
        other.judge([judged("5000", [0.1, 0.2], 1)])
