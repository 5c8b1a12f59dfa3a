"""The service without HTTP: it ranks as the ranker does, and every query gets a result."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import MutableMapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import kinrank
import kinrank.serve._models
import kinrank.serve._served_model
from kinrank import KinRanker, KnnRanker, QuerySet, SingleRanker
from kinrank.engines import FeatureSet
from kinrank.errors import ParameterError, RejectedModelError, UnknownModelError, UnsupportedByModelError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.serve import CandidateSet, Fallback, Ranking, Service, Settings
from tests.processes import PATIENCE, wait_until
from tests.serve.conftest import PATIENT
from tests.serve.observers import Deliveries, RecordingObserver


def to_candidates(query: QuerySet) -> CandidateSet:
    return CandidateSet([f"d{row}" for row in range(query.n_rows)], np.asarray(query.X))


def test_service_ranks_as_the_ranker_does(service: Service, models: Path, camps: QuerySet):
    ranker = kinrank.load(models / "knn")
    for query in camps[:10]:
        ranking = service.rank(to_candidates(query))
        scores = ranker.predict(query)
        assert ranking.ids == [f"d{row}" for row in np.argsort(-scores, kind="stable")]
        np.testing.assert_allclose(ranking.scores, np.sort(scores)[::-1])
        assert (ranking.model, ranking.fallback) == ("knn", None)
        assert ranking.novelty is not None


def test_batches_are_ranked_like_single_queries(service: Service, camps: QuerySet):
    queries = [to_candidates(query) for query in camps]
    single = [service.rank(query) for query in queries]
    batched: dict[int, Ranking] = {}
    done = threading.Event()

    def deliver(place: int, ranking: Ranking) -> None:
        batched[place] = ranking
        if len(batched) == len(queries):
            done.set()

    for place, query in enumerate(queries):
        service.submit(query, None, partial(deliver, place))
    assert done.wait(PATIENCE)
    for place, ranking in enumerate(single):
        assert batched[place].ids == ranking.ids
        np.testing.assert_allclose(batched[place].scores, ranking.scores)


def test_named_features_may_be_in_any_order(service: Service, up: CandidateSet):
    swapped = CandidateSet(up.ids, up.features[:, ::-1], ("camp", "value"))
    assert service.rank(swapped).ids == service.rank(up).ids == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("candidates", "reason"),
    [
        (CandidateSet(["a", "b"], np.float32([[1, 2, 3], [4, 5, 6]])), Fallback.UNKNOWN_FEATURE),
        (CandidateSet(["a", "b"], np.float32([[1], [2]]), ("price",)), Fallback.UNKNOWN_FEATURE),
        (CandidateSet(["a", "b"], np.float32([[1], [2]]), ("value",)), Fallback.NOT_FINITE),
        (CandidateSet(["a", "b"], np.float32([[1, np.nan], [2, 1]])), Fallback.NOT_FINITE),
        (CandidateSet(["a", "b"], np.float32([[1, np.inf], [2, 1]])), Fallback.NOT_FINITE),
        (CandidateSet(["a", "b"], np.float32([[1e6, 1], [2e6, 1]])), Fallback.NOVEL),
    ],
)
def test_queries_that_cannot_be_ranked_stay_in_the_engines_order(
    service: Service, candidates: CandidateSet, reason: Fallback
):
    ranking = service.rank(candidates)
    assert (ranking.ids, ranking.scores, ranking.fallback) == (["a", "b"], None, reason)
    assert ranking.detail
    weights = service.weights(candidates)
    assert (weights.weights, weights.fallback) == (None, reason)
    assert weights.detail


def test_bad_query_does_not_affect_the_rest_of_its_batch(service: Service, up: CandidateSet):
    bad = CandidateSet(["x", "y"], np.float32([[np.nan, 1], [1, 1]]))
    deliveries = Deliveries()
    for candidates in (up, bad, up):
        service.submit(candidates, None, deliveries)
    by_first = {ranking.ids[0]: ranking.fallback for ranking in deliveries.wait(3)}
    assert by_first == {"b": None, "x": Fallback.NOT_FINITE}


def test_missing_and_unknown_models_leave_the_engines_order(tmp_path: Path, up: CandidateSet):
    service = Service({"later": tmp_path / "later"}, settings=PATIENT)
    service.start(strict=False)
    assert not service.ready
    assert service.rank(up).fallback == Fallback.NO_MODEL
    assert service.rank(up, model="unknown").fallback == Fallback.NO_MODEL
    assert service.weights(up).fallback == Fallback.NO_MODEL
    service.close()


def test_start_that_raises_leaves_no_thread_behind(models: Path, tmp_path: Path):
    before = set(threading.enumerate())
    service = Service({"knn": models / "knn", "later": tmp_path / "later"}, settings=PATIENT)
    with pytest.raises(RejectedModelError, match="later does not exist"):
        service.start()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {name for name in left if name.startswith(("rank-", "watch", "learn", "poll-"))}


def test_model_with_other_features_replaces_the_current_one_only_if_that_is_accepted(
    models: Path, camps: QuerySet, up: CandidateSet
):
    renamed = camps.replace(feature_names=("worth", "camp"))
    swapped = camps.replace(X=camps.X[:, ::-1].copy(), feature_names=("camp", "value"))
    for other, problem in ((renamed, "'worth'.*'value'"), (swapped, "in another order")):
        with Service({"knn": models / "knn"}, settings=PATIENT) as service:
            before = service.slots["knn"].loaded().version
            KnnRanker(5).fit(other).save(models / "knn", examples=other[:5])
            with pytest.raises(RejectedModelError, match=rf"{problem}.*set accept_features=True"):
                service.reload()
            assert service.slots["knn"].loaded().version == before
            assert service.rank(CandidateSet(up.ids, up.features, ("value", "camp"))).fallback is None
        KnnRanker(5).fit(camps).save(models / "knn", examples=camps[:5])
    with Service({"knn": models / "knn"}, settings=replace(PATIENT, accept_features=True)) as service:
        KnnRanker(5).fit(renamed).save(models / "knn", examples=renamed[:5])
        assert service.reload().ranker.feature_names_ == ("worth", "camp")


def test_model_without_examples_is_flagged(models: Path, camps: QuerySet):
    observer = RecordingObserver()
    KnnRanker(5).fit(camps).save(models / "knn")
    with Service({"knn": models / "knn", "single": models / "single"}, settings=PATIENT, observer=observer):
        assert ("knn", "untested") in observer.models
        assert ("single", "untested") not in observer.models


def test_model_that_cannot_explore_is_flagged(models: Path):
    for share, flagged in ((0.1, True), (0.0, False)):
        observer = RecordingObserver()
        with Service({"knn": models / "knn"}, settings=replace(PATIENT, explore=share), observer=observer) as service:
            assert service.ready
        assert (("knn", "not-exploring") in observer.models) == flagged


def test_model_that_appears_later_is_loaded(tmp_path: Path, camps: QuerySet, up: CandidateSet):
    service = Service({"later": tmp_path / "later"}, settings=PATIENT)
    service.start(strict=False)
    KnnRanker(5).fit(camps).save(tmp_path / "later", examples=camps[:2])
    wait_until(lambda: service.ready)
    assert service.rank(up).ids == ["b", "c", "a"]
    service.close()


def test_deadline_and_backlog_limit_the_wait_for_a_model_that_hangs(models: Path, up: CandidateSet):
    with Service({"knn": models / "knn"}, settings=PATIENT) as patient:
        served = patient.slots["knn"].current
    service = Service({"knn": models / "knn"}, settings=Settings(deadline=0.05, backlog=2))
    service.start(strict=False)
    service.slots["knn"].current = served
    hanging, release = threading.Event(), threading.Event()

    def hang(_: Ranking) -> None:
        hanging.set()
        release.wait(PATIENCE)

    service.submit(up, None, hang, expires=np.inf)
    assert hanging.wait(PATIENCE)
    for detail in ("not ranked within 50 ms", "not ranked within 50 ms", "too many queries are waiting"):
        ranking = service.rank(up)
        assert (ranking.fallback, ranking.detail) == (Fallback.LATE, detail)
    release.set()
    service.close()


def test_weights_reproduce_the_ranking(service: Service, up: CandidateSet):
    weights = service.weights(up).weights
    assert weights is not None
    scores = up.features @ [weights["value"], weights["camp"]]
    assert [up.ids[i] for i in np.argsort(-scores)] == service.rank(up).ids


def test_weights_that_would_change_the_ranking_are_refused(tmp_path: Path, camps: QuerySet, up: CandidateSet):
    KnnRanker(5, missing="mean").fit(camps).save(tmp_path / "mean")
    holes = CandidateSet(up.ids, np.where([[True], [False], [False]], [np.nan, 1.0], up.features).astype(np.float32))
    with Service({"mean": tmp_path / "mean"}, settings=PATIENT) as service:
        assert service.weights(up).weights is not None
        refused = service.weights(holes)
        assert (refused.weights, refused.fallback) == (None, Fallback.NOT_FINITE)
        assert "fills in the mean, but in a weighted sum the feature counts 0" in str(refused.detail)
        assert service.rank(holes).fallback is None


def test_weights_of_trees_report_their_fidelity_and_poor_ones_are_refused(
    tmp_path: Path, camps: QuerySet, up: CandidateSet
):
    KinRanker(5, trees=LambdaMART(n_trees=5, n_leaves=3, n_threads=1)).fit(camps).save(tmp_path / "kin")
    with Service({"kin": tmp_path / "kin"}, settings=PATIENT) as service:
        found = service.weights(up)
        assert found.weights is not None
        scores = up.features @ [found.weights["value"], found.weights["camp"]]
        assert [up.ids[i] for i in np.argsort(-scores)] == service.rank(up).ids
        assert found.fidelity == 1.0
    with Service({"kin": tmp_path / "kin"}, settings=replace(PATIENT, min_fidelity=1.1)) as service:
        refused = service.weights(up)
        assert (refused.weights, refused.fallback, refused.fidelity) == (None, Fallback.UNFAITHFUL, 1.0)
        assert "fidelity 1.00, below 1.1" in str(refused.detail)


def test_model_without_weights_raises(tmp_path: Path, camps: QuerySet, up: CandidateSet):
    KnnRanker(5, learner="lambdamart", prior="none", scale="none").fit(camps).save(tmp_path / "trees")
    with (
        Service({"trees": tmp_path / "trees"}, settings=PATIENT) as service,
        pytest.raises(UnsupportedByModelError, match="no weights"),
    ):
        service.weights(up)


def test_explanation_lists_neighbors_of_the_same_camp(service: Service, up: CandidateSet, camps: QuerySet):
    explanation = service.explain(up)
    assert explanation is not None
    camp = dict(zip(camps.qid.tolist(), camps.query_columns["camp"].tolist(), strict=True))
    assert {camp[int(neighbor.qid)] for neighbor in explanation.neighbors} == {1}
    assert explanation.local_weights.keys() == explanation.global_weights.keys() == {"value", "camp"}


def test_invalid_names_and_missing_models_raise(tmp_path: Path):
    with pytest.raises(ParameterError, match="at least one model"):
        Service({})
    with pytest.raises(ParameterError, match="letters, digits"):
        Service({"../up": tmp_path})
    with pytest.raises(RejectedModelError, match="does not exist"):
        Service({"a": tmp_path / "nothing"}).start()


# --- swaps ----------------------------------------------------------------------------------------------------------


PLAIN_FEATURES = '[features]\nvalue = { match = "v" }\ncamp = { field = "c" }'


def test_model_that_does_not_fit_the_attached_engine_is_refused(tmp_path: Path, camps: QuerySet, up: CandidateSet):
    plain = FeatureSet.parse(PLAIN_FEATURES)
    path = tmp_path / "model"
    KnnRanker(5).fit(camps).save(path)
    texts = np.array([f"query {i}" for i in range(len(camps))])
    vectors = np.random.default_rng(0).normal(size=(len(camps), 4)).astype(np.float32)
    with Service({"model": path}, settings=PATIENT, search=plain) as service:
        first = service.slots["model"].current
        renamed = camps.replace(feature_names=("price", "camp"))
        for queries, reason in (
            (renamed, "the model has features that the engine does not compute: price"),
            (camps.replace(query_columns={"vector": vectors}), "cannot rank what the attached engine finds"),
        ):
            KnnRanker(5).fit(queries).save(path)
            with pytest.raises(RejectedModelError, match=reason):
                service.slots["model"].refresh(force=True)
            assert service.slots["model"].current is first
            assert service.rank(up).fallback is None
        KnnRanker(5).fit(camps.replace(query_columns={"text": texts})).save(path)
        service.slots["model"].refresh(force=True)
        assert service.slots["model"].current is not first
    more = FeatureSet.parse(f'{PLAIN_FEATURES}\nnear = {{ vector = "v" }}')
    with Service({"model": path}, search=more) as service:  # computes those of its models
        assert service.feature_names() == set(camps.feature_names)


def test_spellings_are_made_while_a_model_is_loaded_and_only_with_an_engine(
    tmp_path: Path, camps: QuerySet, monkeypatch: pytest.MonkeyPatch
):
    path, made = tmp_path / "model", list[int]()
    texts = np.array([f"query {i}" for i in range(len(camps))])
    KnnRanker(5).fit(camps.replace(query_columns={"text": texts})).save(path)
    monkeypatch.setattr(kinrank.serve._served_model, "Spellings", lambda known: made.append(len(list(known))))
    for search, expected in ((None, []), (FeatureSet.parse(PLAIN_FEATURES), [len(camps)])):
        with Service({"model": path}, settings=PATIENT, search=search) as service:
            assert made == expected
            model = service.slots["model"].current
            assert model.spellings() is replace(model, judgments=1).spellings()
            assert made == [len(camps)]
            made.clear()


def test_changed_folder_is_loaded_and_damaged_one_refused(
    service: Service, models: Path, camps: QuerySet, up: CandidateSet
):
    before = service.slots["knn"].current
    KnnRanker(7).fit(camps).save(models / "knn", examples=camps[:5])
    wait_until(lambda: service.slots["knn"].current is not before)
    loaded = service.slots["knn"].current
    [damaged] = (models / "knn").rglob("examples.scores.npy")
    raw = bytearray(damaged.read_bytes())
    raw[-1] ^= 1
    (models / "new").write_bytes(raw)
    (models / "new").rename(damaged)
    wait_until(lambda: service.slots["knn"].refusal is not None)
    assert "has changed since it was written" in str(service.slots["knn"].refusal)
    assert service.slots["knn"].current is loaded
    assert service.rank(up).ids == ["b", "c", "a"]
    with pytest.raises(RejectedModelError, match="has changed since"):
        service.reload("knn")
    with pytest.raises(UnknownModelError, match="unknown model name; this service has: knn, single"):
        service.reload("unknown")


def test_files_truncated_in_place_do_not_crash_the_process(service: Service, models: Path, up: CandidateSet):
    for file in (models / "knn").rglob("*.npy"):
        os.truncate(file, 0)
    assert service.rank(up).ids == ["b", "c", "a"]
    wait_until(lambda: service.slots["knn"].refusal is not None)
    assert service.rank(up).ids == ["b", "c", "a"]


def test_model_that_does_not_reproduce_its_scores_is_refused(service: Service, models: Path, camps: QuerySet):
    before = service.slots["knn"].current
    original = KnnRanker(5).fit(camps)
    reversed_ = KnnRanker(5).fit(camps.replace(y=4 - camps.grades))
    reversed_.predict = original.predict  # type: ignore[method-assign] - so that its stored scores are wrong
    reversed_.save(models / "knn", examples=camps[:5])
    with pytest.raises(RejectedModelError, match="does not reproduce the scores of its stored examples"):
        service.reload("knn")
    assert service.slots["knn"].current is before


def test_slow_model_is_refused(models: Path):
    service = Service({"knn": models / "knn"}, settings=Settings(deadline=1e-6))
    with pytest.raises(RejectedModelError, match=r"the deadline is 0\.0 ms"):
        service.start()


def test_slow_model_is_retried_until_it_is_fast_enough(models: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kinrank.serve._models, "RETRY_PAUSE", 0.0)
    observer = RecordingObserver()
    checks: list[None] = []
    service = Service(
        {"knn": models / "knn"},
        settings=Settings(deadline=1e-6, watch_interval=0.01),
        observer=observer,
        watch=[lambda: checks.append(None)],
    )
    service.start(strict=False)
    slot = service.slots["knn"]
    assert "the deadline is" in str(slot.refusal)
    wait_until(lambda: observer.models.count(("knn", "refused")) >= 3)
    slot.settings = PATIENT  # the machine is no longer busy
    wait_until(lambda: service.ready)
    assert slot.refusal is None
    assert observer.models[-1] == ("knn", "loaded")
    n_events, n_checks = len(observer.models), len(checks)
    wait_until(lambda: len(checks) >= n_checks + 5)
    assert len(observer.models) == n_events  # not loaded again
    service.close()


def test_unexpected_error_while_loading_is_reported(models: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(kinrank.serve._models, "from_record", fail)
    observer = RecordingObserver()
    with pytest.raises(RejectedModelError, match="knn: broken"):
        Service({"knn": models / "knn"}, observer=observer).start()
    assert observer.models == [("knn", "refused")]
    assert observer.errors == ["load: broken"]


def test_kin_ranker_is_served_with_novelty_and_explanation(tmp_path: Path, camps: QuerySet, up: CandidateSet):
    ranker = KinRanker(n_neighbors=10).fit(camps)
    ranker.save(tmp_path / "kin", examples=camps[:5])
    with Service({"kin": tmp_path / "kin"}, settings=PATIENT) as service:
        ranking = service.rank(up)
        scores = ranker.predict(up.features)
        assert ranking.ids == [up.ids[i] for i in np.argsort(-scores, kind="stable")]
        assert ranking.novelty is not None
        explanation = service.explain(up)
        assert explanation is not None
        assert len(explanation.neighbors) == 10
        assert sum(explanation.shares.values()) == pytest.approx(1)
        assert service.weights(up).fidelity == 1.0


def test_no_request_compiles_code_after_the_model_is_loaded(tmp_path: Path, camps: QuerySet, up: CandidateSet):
    trees = LambdaMART(n_trees=5, n_leaves=3, n_threads=1)
    KinRanker(5, trees=trees).fit(camps).save(tmp_path / "kin", examples=camps[:2])
    # In a new process, which has compiled nothing for another test.
    code = f"""
import numpy as np
from numba.core.dispatcher import Dispatcher
from kinrank.serve import CandidateSet, Service, Settings
compiled = []
compile = Dispatcher.compile
Dispatcher.compile = lambda self, signature: (compiled.append((self, signature)), compile(self, signature))[1]
plain = CandidateSet(["a", "b"], np.array([[0.2, 1], [0.9, 1]], dtype=np.float32))
packed = CandidateSet(["a", "b"], np.frombuffer(plain.features.tobytes(), dtype=np.float32).reshape(2, 2))
with Service({{"kin": {str(tmp_path / "kin")!r}}}, settings=Settings(deadline=60.0)) as service:
    assert compiled
    compiled.clear()
    for candidates in (packed, plain):
        assert service.rank(candidates).fallback is None
        assert service.weights(candidates).fallback is None
        assert service.explain(candidates) is not None
    service.submit(packed, None, lambda ranking: None)
    assert service.rank(plain).fallback is None
    assert not compiled, compiled
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


def test_single_ranker_is_served_without_novelty(service: Service, up: CandidateSet, models: Path):
    ranking = service.rank(up, model="single")
    scores = SingleRanker.predict(kinrank.load(models / "single"), up.features)
    assert ranking.ids == [up.ids[i] for i in np.argsort(-scores, kind="stable")]
    assert ranking.novelty is None


def test_application_starts_before_its_models_are_loaded(models: Path):
    from kinrank.serve._http.app import create_app
    from kinrank.serve._http.metrics import Metrics

    release, loaded = threading.Event(), threading.Event()
    service = Service({"knn": models / "knn"}, settings=PATIENT)
    refresh = service.slots["knn"].refresh
    service.slots["knn"].refresh = lambda **options: release.wait(PATIENCE) and refresh(**options)  # type: ignore[method-assign]
    app = create_app(service, metrics=Metrics(), on_load=loaded.set, on_shutdown=lambda: events.append("shutdown"))
    events: list[object] = []

    async def receive() -> dict[str, str]:
        if not events:
            return {"type": "lifespan.startup"}
        events.append(service.ready)
        release.set()
        assert loaded.wait(PATIENCE)
        events.append(service.ready)
        return {"type": "lifespan.shutdown"}

    async def send(message: MutableMapping[str, object]) -> None:
        events.append(message["type"])

    asyncio.run(app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send))
    assert events == ["lifespan.startup.complete", False, True, "shutdown", "lifespan.shutdown.complete"]


def test_frozen_objects_are_left_out_of_collections():
    from kinrank.serve._http.run import freeze_loaded

    try:
        freeze_loaded()
        assert gc.get_freeze_count() > 100_000
        assert len(gc.get_objects()) < 10_000
    finally:
        gc.unfreeze()
