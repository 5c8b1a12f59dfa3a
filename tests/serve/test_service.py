"""The service without HTTP: it ranks as the ranker does, and always answers."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

import kinrank
import kinrank.serve.models
from kinrank import KinRanker, KnnRanker, QuerySet, SingleRanker
from kinrank.errors import ParameterError, RefusedModelError, UnableModelError, UnknownModelError
from kinrank.serve import Candidates, Fallback, Ranking, Service, Settings
from tests.serve.conftest import PATIENT
from tests.serve.told import Told, eventually


def ask(query: QuerySet) -> Candidates:
    return Candidates([f"d{row}" for row in range(query.n_rows)], np.asarray(query.X))


def test_it_ranks_as_the_ranker_does(service: Service, models: Path, camps: QuerySet):
    ranker = kinrank.load(models / "knn")
    for query in camps[:10]:
        ranking = service.rank(ask(query))
        scores = ranker.predict(query)
        assert ranking.ids == [f"d{row}" for row in np.argsort(-scores, kind="stable")]
        np.testing.assert_allclose(ranking.scores, np.sort(scores)[::-1])
        assert (ranking.model, ranking.fallback) == ("knn", None)
        assert ranking.novelty is not None


def test_many_at_once_are_ranked_as_one_by_one(service: Service, camps: QuerySet):
    queries = [ask(query) for query in camps]
    alone = [service.rank(query) for query in queries]
    answers: dict[int, Ranking] = {}
    done = threading.Event()

    def deliver(place: int, ranking: Ranking) -> None:
        answers[place] = ranking
        if len(answers) == len(queries):
            done.set()

    for place, query in enumerate(queries):
        service.submit(query, None, lambda ranking, place=place: deliver(place, ranking))
    assert done.wait(10)
    for place, ranking in enumerate(alone):
        assert answers[place].ids == ranking.ids
        np.testing.assert_allclose(answers[place].scores, ranking.scores)


def test_features_by_name_in_any_order(service: Service, up: Candidates):
    swapped = Candidates(up.ids, up.features[:, ::-1], ("camp", "value"))
    assert service.rank(swapped).ids == service.rank(up).ids == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("candidates", "reason"),
    [
        (Candidates(["a", "b"], np.float32([[1, 2, 3], [4, 5, 6]])), Fallback.UNKNOWN_FEATURE),
        (Candidates(["a", "b"], np.float32([[1], [2]]), ("price",)), Fallback.UNKNOWN_FEATURE),
        (Candidates(["a", "b"], np.float32([[1], [2]]), ("value",)), Fallback.NOT_FINITE),
        (Candidates(["a", "b"], np.float32([[1, np.nan], [2, 1]])), Fallback.NOT_FINITE),
        (Candidates(["a", "b"], np.float32([[1, np.inf], [2, 1]])), Fallback.NOT_FINITE),
        (Candidates(["a", "b"], np.float32([[1e6, 1], [2e6, 1]])), Fallback.FAR),
    ],
)
def test_what_cannot_be_ranked_stays_in_the_engines_order(service: Service, candidates: Candidates, reason: Fallback):
    ranking = service.rank(candidates)
    assert (ranking.ids, ranking.scores, ranking.fallback) == (["a", "b"], None, reason)
    assert ranking.detail


def test_one_bad_query_does_not_spoil_its_batch(service: Service, up: Candidates):
    bad = Candidates(["x", "y"], np.float32([[np.nan, 1], [1, 1]]))
    answers: list[Ranking] = []
    done = threading.Semaphore(0)
    for candidates in (up, bad, up):
        service.submit(candidates, None, lambda ranking: (answers.append(ranking), done.release()))
    for _ in range(3):
        assert done.acquire(timeout=10)
    by_first = {ranking.ids[0]: ranking.fallback for ranking in answers}
    assert by_first == {"b": None, "x": Fallback.NOT_FINITE}


def test_no_model_and_an_unknown_model_leave_the_engines_order(tmp_path: Path, up: Candidates):
    service = Service({"later": tmp_path / "later"}, settings=PATIENT)
    service.start(strict=False)
    assert not service.ready
    assert service.rank(up).fallback == Fallback.NO_MODEL
    assert service.rank(up, model="nobody").fallback == Fallback.NO_MODEL
    assert service.weights(up).fallback == Fallback.NO_MODEL
    service.close()


def test_a_model_that_comes_later_is_taken(tmp_path: Path, camps: QuerySet, up: Candidates):
    service = Service({"later": tmp_path / "later"}, settings=PATIENT)
    service.start(strict=False)
    KnnRanker(5).fit(camps).save(tmp_path / "later", examples=camps[:2])
    eventually(lambda: service.ready)
    assert service.rank(up).ids == ["b", "c", "a"]
    service.close()


def test_late_is_answered_in_time_and_a_full_backlog_at_once(models: Path, up: Candidates):
    settings = Settings(deadline=0.05, backlog=2)
    with Service({"knn": models / "knn"}, settings=Settings(deadline=5.0)) as patient:
        served = patient.slots["knn"].current
    service = Service({"knn": models / "knn"}, settings=settings)
    service.start(strict=False)
    service.slots["knn"].current = served
    stuck = threading.Event()
    service.submit(up, None, lambda _: stuck.wait(2))  # a model that hangs
    time.sleep(0.2)
    start = time.perf_counter()
    assert service.rank(up).fallback == Fallback.LATE
    assert 0.05 <= time.perf_counter() - start < 1.5
    assert service.rank(up).fallback == Fallback.LATE
    ranking = service.rank(up)
    assert (ranking.fallback, ranking.detail) == (Fallback.LATE, "too many queries wait")
    stuck.set()
    service.close()


def test_two_models_take_turns(service: Service, up: Candidates):
    answers: list[Ranking] = []
    done = threading.Event()
    service.submit_interleaved(up, ("knn", "single"), "r1", lambda ranking: (answers.append(ranking), done.set()))
    assert done.wait(10)
    assert sorted(answers[0].ids) == ["a", "b", "c"]
    assert set(answers[0].teams or []) == {"knn", "single"}
    done.clear()
    service.submit_interleaved(up, ("knn", "nobody"), "r1", lambda ranking: (answers.append(ranking), done.set()))
    assert done.wait(10)
    assert (answers[1].ids, answers[1].teams, answers[1].fallback) == (up.ids, None, Fallback.NO_MODEL)


def test_weights_rank_as_the_ranking_does(service: Service, up: Candidates):
    weights = service.weights(up).weights
    assert weights is not None
    scores = up.features @ [weights["value"], weights["camp"]]
    assert [up.ids[i] for i in np.argsort(-scores)] == service.rank(up).ids


def test_weights_that_would_rank_otherwise_are_not_given(tmp_path: Path, camps: QuerySet, up: Candidates):
    KnnRanker(5, missing="mean").fit(camps).save(tmp_path / "mean")
    holes = Candidates(up.ids, np.where([[True], [False], [False]], [np.nan, 1.0], up.features).astype(np.float32))
    with Service({"mean": tmp_path / "mean"}, settings=PATIENT) as service:
        assert service.weights(up).weights is not None
        refused = service.weights(holes)
        assert (refused.weights, refused.fallback) == (None, Fallback.NOT_FINITE)
        assert "takes its mean, which weights cannot say" in str(refused.detail)
        assert service.rank(holes).fallback is None


def test_a_model_without_weights_says_so(tmp_path: Path, camps: QuerySet, up: Candidates):
    KnnRanker(5, learner="lambdamart", scale="none").fit(camps).save(tmp_path / "trees")
    with (
        Service({"trees": tmp_path / "trees"}, settings=PATIENT) as service,
        pytest.raises(UnableModelError, match="no weights"),
    ):
        service.weights(up)


def test_the_explanation_names_the_neighbors_that_decided(service: Service, up: Candidates, camps: QuerySet):
    said = service.explain(up)
    assert said is not None
    camp = dict(zip(camps.qid.tolist(), camps.query_columns["camp"].tolist(), strict=True))
    assert {camp[int(neighbor["qid"])] for neighbor in said["neighbors"]} == {1}
    assert said["weights"].keys() == said["global_weights"].keys() == {"value", "camp"}


def test_names_and_models_are_checked(tmp_path: Path):
    with pytest.raises(ParameterError, match="at least one model"):
        Service({})
    with pytest.raises(ParameterError, match="letters, digits"):
        Service({"../up": tmp_path})
    with pytest.raises(RefusedModelError, match="is not there"):
        Service({"a": tmp_path / "nothing"}).start()


# --- swaps ----------------------------------------------------------------------------------------------------------


def test_a_changed_folder_is_taken_and_a_damaged_one_refused(service: Service, models: Path, camps: QuerySet, up):
    before = service.slots["knn"].current
    KnnRanker(7).fit(camps).save(models / "knn", examples=camps[:5])
    eventually(lambda: service.slots["knn"].current is not before)
    taken = service.slots["knn"].current
    broken = models / "knn" / "examples.scores.npy"
    raw = bytearray(broken.read_bytes())
    raw[-1] ^= 1
    (models / "new").write_bytes(raw)
    (models / "new").rename(broken)
    eventually(lambda: service.slots["knn"].refusal is not None)
    assert "has changed since it was written" in str(service.slots["knn"].refusal)
    assert service.slots["knn"].current is taken
    assert service.rank(up).ids == ["b", "c", "a"]
    with pytest.raises(RefusedModelError, match="has changed since"):
        service.reload("knn")
    with pytest.raises(UnknownModelError, match="no model of this name"):
        service.reload("nobody")


def test_a_model_that_scores_otherwise_than_when_written_is_refused(service: Service, models: Path, camps: QuerySet):
    before = service.slots["knn"].current
    honest = KnnRanker(5).fit(camps)
    turned = KnnRanker(5).fit(camps.replace(y=4 - camps.grades))
    turned.predict = honest.predict  # type: ignore[method-assign] - so that its examples do not fit it
    turned.save(models / "knn", examples=camps[:5])
    with pytest.raises(RefusedModelError, match="scores its stored examples otherwise"):
        service.reload("knn")
    assert service.slots["knn"].current is before


def test_a_slow_model_is_refused(models: Path, camps: QuerySet):
    service = Service({"knn": models / "knn"}, settings=Settings(deadline=1e-6))
    with pytest.raises(RefusedModelError, match=r"the deadline is 0\.0 ms"):
        service.start()


def test_a_model_that_was_slow_once_is_tried_again(models: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kinrank.serve.models, "SLOW_PAUSE", 0.3)
    told = Told()
    service = Service({"knn": models / "knn"}, settings=Settings(deadline=1e-6, watch=0.01), observer=told)
    service.start(strict=False)
    slot = service.slots["knn"]
    assert "the deadline is" in str(slot.refusal)
    eventually(lambda: told.models.count(("knn", "refused")) >= 3)
    slot._deadline = 5.0  # the machine has breath again
    eventually(lambda: service.ready)
    assert slot.refusal is None
    tries = len(told.models)
    assert told.models[-1] == ("knn", "taken")
    time.sleep(0.5)
    assert len(told.models) == tries  # and then left alone
    service.close()


def test_a_kin_ranker_is_served_with_all_it_can_say(tmp_path: Path, camps: QuerySet, up: Candidates):
    ranker = KinRanker(n_neighbors=10).fit(camps)
    ranker.save(tmp_path / "kin", examples=camps[:5])
    with Service({"kin": tmp_path / "kin"}, settings=PATIENT) as service:
        ranking = service.rank(up)
        scores = ranker.predict(up.features)
        assert ranking.ids == [up.ids[i] for i in np.argsort(-scores, kind="stable")]
        assert ranking.novelty is not None
        said = service.explain(up)
        assert said is not None
        assert len(said["neighbors"]) == 10
        assert sum(said["shares"].values()) == pytest.approx(1)
        with pytest.raises(UnableModelError, match="no weights"):
            service.weights(up)


def test_a_single_model_is_served_too(service: Service, up: Candidates, models: Path):
    ranking = service.rank(up, model="single")
    scores = SingleRanker.predict(kinrank.load(models / "single"), up.features)
    assert ranking.ids == [up.ids[i] for i in np.argsort(-scores, kind="stable")]
    assert ranking.novelty is None
