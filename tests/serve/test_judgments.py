"""Judgments of a service: learned without fitting again, there after a restart, never in the way of a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kinrank
from kinrank import KnnRanker, QuerySet, SingleRanker
from kinrank.errors import DataError, UnableModelError
from kinrank.serve import Candidates, Judged, Service
from kinrank.serve.journal import Journal
from kinrank.serve.judgments import Entry, learn
from tests.serve.conftest import PATIENT
from tests.serve.told import Told, eventually


def judged(qid: str, values: list[float], camp: int, *, reverse: bool = False) -> Judged:
    grades = np.argsort(np.argsort(np.array(values) * camp)).astype(float)
    rows = np.column_stack([values, np.full(len(values), camp)]).astype(np.float32)
    ids = [f"{qid}-{i}" for i in range(len(values))]
    return Judged(qid, Candidates(ids, rows), (grades[::-1] if reverse else grades).tolist())


def test_judgments_are_learned_and_there_after_a_restart(models: Path, tmp_path: Path, camps: QuerySet):
    def start() -> Service:
        service = Service({"knn": models / "knn"}, settings=PATIENT, judgments=tmp_path / "j")
        service.start()
        return service

    service = start()
    new = [judged(str(1000 + i), [0.1, 0.4, 0.8], 3) for i in range(6)]  # a camp that nobody knew
    service.judge(new)
    eventually(lambda: service.slots["knn"].current.judgments == 6)
    asked = Candidates(["a", "b"], np.float32([[0.2, 3], [0.7, 3]]))
    said = service.explain(asked)
    assert said is not None
    assert {neighbor["qid"] for neighbor in said["neighbors"]} <= {judged.qid for judged in new}
    ranking = service.rank(asked)
    service.close()
    again = start()
    assert again.slots["knn"].current.judgments == 6
    assert again.rank(asked).scores == ranking.scores
    again.close()
    # The ranker that was fitted with them in one go ranks alike.
    ranker = kinrank.load(models / "knn")
    rows = QuerySet.from_arrays(
        np.concatenate([j.candidates.features for j in new]),
        np.concatenate([j.grades for j in new]),
        qid=np.repeat([int(j.qid) for j in new], 3),
        feature_names=("value", "camp"),
    )
    np.testing.assert_allclose(np.sort(ranker.add(rows).predict(asked.features))[::-1], ranking.scores)


def test_a_query_judged_again_is_replaced_unless_the_model_is_newer(models: Path, tmp_path: Path, camps: QuerySet):
    service = Service({"knn": models / "knn"}, settings=PATIENT, judgments=tmp_path / "j")
    service.start()
    again = judged(str(camps.qid[0]), [0.1, 0.4, 0.8], 1, reverse=True)
    service.judge([again])
    eventually(lambda: service.slots["knn"].current.judgments == 1)
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
            (Judged(qid, Candidates(["a", "b"], np.float32([[1, 1], [2, 1]])), [0, 1]), "numbers from -9223")
            for qid in ("01000", " 1000", "1_000", "+1000", str(2**63), "9" * 400)
        ],
        (Judged("word", Candidates(["a", "b"], np.float32([[1, 1], [2, 1]])), [0, 1]), "numbers for query ids"),
        (Judged("7000", Candidates(["a", "b"], np.float32([[1], [2]]), ("price",)), [0, 1]), "no feature 'price'"),
        (Judged("7000", Candidates(["a", "b"], np.float32([[1, np.nan], [2, 1]])), [0, 1]), "missing"),
    ],
)
def test_judgments_that_do_not_fit_are_refused_whole(service: Service, wrong: Judged, message: str):
    with pytest.raises(DataError, match=message):
        service.judge([judged("5000", [0.1, 0.2], 1), wrong])
    assert service.slots["knn"].journal.read()[0] == []


def test_a_journal_with_ids_that_mean_the_same_is_learned(models: Path, tmp_path: Path):
    def entry(qid: str) -> Entry:
        asked = judged(qid, [0.1, 0.4], 1)
        named = Candidates(asked.candidates.ids, asked.candidates.features, ("value", "camp"))
        return Entry("an-older-model", Judged(qid, named, asked.grades))

    texts = [entry(qid).dump() for qid in ("1000", "01000", " 1000", str(2**63), "1000", "1001")]
    Journal(tmp_path / "j" / "knn.log").append(texts)
    with Service({"knn": models / "knn"}, settings=PATIENT, judgments=tmp_path / "j") as service:
        known = service.slots["knn"].current.ranker.qid_.tolist()
        assert known[-2:] == [1000, 1001]
        assert len(known) == 62


def test_one_bad_entry_of_a_journal_costs_only_itself(models: Path):
    ranker = kinrank.load(models / "knn")
    some = [judged(qid, [0.1, 0.4], 1) for qid in ("1000", "1001", "1002")]
    some[1].candidates.features[0, 0] = np.nan
    taught, unfit = learn(ranker, [Entry("base", each) for each in some], "base", ranker.qid_)
    assert taught.qid_.tolist()[-2:] == [1000, 1002]
    assert unfit == 1


@pytest.mark.parametrize("strict", [True, False])
def test_a_damaged_journal_keeps_no_model_from_use(models: Path, tmp_path: Path, camps: QuerySet, up, strict: bool):
    journal = Journal(tmp_path / "j" / "knn.log")
    with Service({"knn": models / "knn"}, settings=PATIENT, judgments=tmp_path / "j") as first:
        first.judge([judged("1000", [0.1, 0.4], 1)])
    whole = journal.path.read_bytes()
    journal.path.write_bytes(b"0" * 8 + whole[8:])
    told = Told()
    folders = {"knn": models / "knn", "single": models / "single", "later": models / "later"}
    service = Service(
        folders if not strict else {"knn": folders["knn"], "single": folders["single"]},
        settings=PATIENT,
        judgments=tmp_path / "j",
        observer=told,
    )
    service.start(strict=strict)
    assert service.rank(up).ids == ["b", "c", "a"]
    assert "has changed since it was written" in service.describe()["knn"]["refused"]
    before = dict(service.slots)
    versions = {name: slot.current.version for name, slot in before.items() if slot.current}
    KnnRanker(7).fit(camps).save(models / "knn", examples=camps[:5])
    SingleRanker("rankrls", scale="none").fit(camps).save(models / "single", examples=camps[:5])
    for name, version in versions.items():
        eventually(lambda name=name, version=version: service.slots[name].current.version != version)
    assert told.models.count(("knn", "unlearned")) == 1  # not at every look
    assert (("later", "awaited") in told.models) is not strict
    journal.path.write_bytes(whole)
    eventually(lambda: service.slots["knn"].refusal is None)
    assert service.slots["knn"].current.judgments == 1
    assert told.errors == []
    service.close()


def test_a_model_that_cannot_learn_so_says_so(service: Service, models: Path, tmp_path: Path, camps: QuerySet):
    with pytest.raises(UnableModelError, match="does not learn without fitting again"):
        service.judge([judged("5000", [0.1, 0.2], 1)], model="single")
    KnnRanker(5, cells=10).fit(camps).save(models / "cells", examples=camps[:5])
    with Service({"cells": models / "cells"}, settings=PATIENT, judgments=tmp_path / "c") as celled:
        with pytest.raises(UnableModelError, match="does not learn without fitting again"):
            celled.judge([judged("5000", [0.1, 0.2], 1)])
        assert celled.describe()["cells"]["loaded"]["judged_queries"] is None
    with (
        Service({"knn": models / "knn"}, settings=PATIENT) as other,
        pytest.raises(UnableModelError, match="takes no judgments"),
    ):
        other.judge([judged("5000", [0.1, 0.2], 1)])
