from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kinrank
import kinrank.kin.indexes
from kinrank import CellRanker, KinRanker, KnnRanker, QueryClassRanker, QuerySet, SingleRanker
from kinrank.checks import linear_queries
from kinrank.datasets import make_intents, make_two_camps
from kinrank.errors import DataError, ParameterError
from kinrank.kin import Describer
from kinrank.kin.indexes import INDEXES
from kinrank.learn.lambdamart import LambdaMART
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.ranksvm import RankSVM
from kinrank.rankers import Ranker
from kinrank.rankers._local.choose import choose_neighbors
from kinrank.rankers.knn import Mode
from reproduction.bounds import change_ratio, loss_difference_bound
from reproduction.knn import uniform_knn

MODES: list[Mode] = ["online", "offline-1", "offline-2"]
TIGHT = RankSVM(tol=1e-10)


def train_and_test() -> tuple[QuerySet, QuerySet]:
    return linear_queries(50), linear_queries(20, seed=1)


@pytest.mark.parametrize("prior", ["none", "global"])
@pytest.mark.parametrize("learner", [RankRLS(), RankRLS(balance="queries"), TIGHT], ids=["rls", "rls queries", "svm"])
@pytest.mark.parametrize("mode", MODES)
def test_all_neighbors_equal_single(mode: Mode, learner: RankRLS | RankSVM, prior: str) -> None:
    train, test = train_and_test()
    single = SingleRanker(learner).fit(train)
    local = uniform_knn(len(train), mode=mode, learner=learner, prior=prior).fit(train)
    np.testing.assert_allclose(local.predict(test), single.predict(test), atol=1e-6)
    np.testing.assert_allclose(local.weights(test), single.weights(test), atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("learner", ["rankrls", "ranksvm"])
def test_every_mode_ranks_two_camps_perfectly(mode: Mode, learner: str) -> None:
    camps = make_two_camps(n_queries=60, seed=0)
    ranker = KnnRanker(12, mode=mode, learner=learner).fit(camps[:40])
    assert ranker.score(camps[40:]) == pytest.approx(1.0)
    assert SingleRanker("rankrls").fit(camps[:40]).score(camps[40:]) < 0.9


def test_local_trees_rank_two_camps_almost_perfectly() -> None:
    # Trees score in steps, so a few documents with close values stay tied.
    camps = make_two_camps(n_queries=60, seed=0)
    learner = LambdaMART(n_trees=20, min_rows_in_leaf=5)
    assert uniform_knn(12, learner=learner).fit(camps[:40]).score(camps[40:]) > 0.98


def test_huge_radius_equals_single() -> None:
    train, test = train_and_test()
    single, local = SingleRanker("rankrls").fit(train), uniform_knn(radius=1e6).fit(train)
    np.testing.assert_allclose(local.predict(test), single.predict(test), atol=1e-6)


def test_query_without_neighbors_in_radius_is_ranked_globally() -> None:
    train, test = train_and_test()
    single, local = SingleRanker("rankrls").fit(train), KnnRanker(radius=1e-9).fit(train)
    np.testing.assert_allclose(local.predict(test), single.predict(test), atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_one_query_at_a_time_equals_batch(mode: Mode) -> None:
    train, test = train_and_test()
    ranker = KnnRanker(7, mode=mode).fit(train)
    np.testing.assert_allclose(
        ranker.predict(test), np.concatenate([ranker.predict(query) for query in test]), atol=1e-6
    )


def frozen_refit(ranker: KnnRanker, queries: QuerySet) -> KnnRanker:
    """Return a ranker fitted on other queries with the scaling and description of this one."""
    twin = KnnRanker(**ranker.get_params(deep=False)).fit(queries)
    training_set = type(ranker.model_.training_set).of(twin.learner_, ranker.preparer_.apply(queries))
    model = replace(
        twin.model_, preparer=ranker.preparer_, describer=ranker.model_.describer, training_set=training_set
    )
    model.index.fit(model.points(queries))
    model._learn_again()
    twin.model_ = model
    return twin._learn_again()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("learner", ["rankrls", TIGHT, LambdaMART(n_trees=5)], ids=["rls", "svm", "trees"])
def test_add_equals_refit_and_remove_undoes_add(mode: Mode, learner: str | RankSVM | LambdaMART) -> None:
    queries, test = linear_queries(30), linear_queries(10, seed=1)
    if isinstance(learner, LambdaMART) and mode != "online":
        queries = queries[:12]
    known, new = queries[:8], queries[8:]
    prior = "none" if isinstance(learner, LambdaMART) else "global"
    ranker = KnnRanker(5, mode=mode, learner=learner, prior=prior).fit(known)
    before = ranker.predict(test)
    ranker.add(new)
    assert ranker.qid_.tolist() == queries.qid.tolist()
    if not isinstance(learner, LambdaMART):
        np.testing.assert_allclose(ranker.predict(test), frozen_refit(ranker, queries).predict(test), atol=1e-6)
    ranker.remove(new.qid)
    np.testing.assert_allclose(ranker.predict(test), before, atol=1e-6)


@pytest.mark.parametrize("index", ["exact", "faiss-ivf(n_cells=2)"])
def test_copies_change_alone_and_share_what_was_fitted(index: str) -> None:
    queries, test = linear_queries(40), linear_queries(10, seed=1)
    queries = queries.replace(qid=np.array([f"q{i}" for i in range(40)]))
    fitted = KnnRanker(5, index=index).fit(queries[:20])
    before = fitted.predict(test)
    grown = fitted.copy().add(queries[20:30])
    one = grown.copy().remove(["q3", "q25"]).add(queries[[3]])
    other = grown.copy().add(queries[30:])
    assert grown.model_.training_set.statistics is fitted.model_.training_set.statistics  # nothing of the fit is copied
    assert (grown.n_judged_, one.n_judged_, other.n_judged_) == (30, 29, 40)
    assert one.has_judged(["q3", "q25", "q30", "nothing"]).tolist() == [True, False, False, False]
    np.testing.assert_array_equal(fitted.predict(test), before)
    for ranker in (grown, one, other):
        judged = queries[[int(qid[1:]) for qid in ranker.qid_]]
        expected = frozen_refit(ranker, judged)
        np.testing.assert_allclose(ranker.predict(test), expected.predict(test), atol=1e-6)
        assert [why.neighbors.tolist() for why in ranker.explain(test)] == [
            why.neighbors.tolist() for why in expected.explain(test)
        ]


def test_adding_known_or_removing_unknown_queries_raises() -> None:
    queries = linear_queries()
    ranker = KnnRanker(5).fit(queries)
    with pytest.raises(DataError, match="query 'q0' is known already"):
        ranker.add(queries[:1])
    with pytest.raises(DataError, match="query 'nobody' is not among the 40 judged queries"):
        ranker.remove(["q1", "nobody"])
    with pytest.raises(DataError, match="cannot remove every judged query"):
        ranker.remove(queries.qid)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_offline_1_uses_the_model_that_shares_most_pairs(seed: int, k: int) -> None:
    # Eq. 1 by brute force, with sets of pairs.
    train, test = linear_queries(15, seed=seed), linear_queries(5, seed=seed + 1)
    ranker = uniform_knn(k, mode="offline-1").fit(train)
    assert ranker.offline_ is not None
    points = ranker.points(test)
    pairs = [
        {(q, i, j) for i in range(len(y)) for j in range(len(y)) if y[i] > y[j]}
        for q, y in enumerate(query.grades for query in train)
    ]
    _, of_train = ranker.model_.index.query(ranker.model_.index.points_, k)
    _, of_test = ranker.model_.index.query(points, k)
    for chosen, near in zip(ranker.offline_choice(points), of_test, strict=True):
        mine = set().union(*(pairs[q] for q in near))
        shared = [len(mine & set().union(*(pairs[q] for q in members))) for members in of_train]
        assert shared[chosen] == max(shared)


def test_offline_2_uses_the_model_of_the_nearest_query() -> None:
    train, test = train_and_test()
    ranker = KnnRanker(7, mode="offline-2").fit(train)
    nearest = ranker.model_.index.query(ranker.points(test), 1)[1][:, 0]
    assert ranker.offline_ is not None
    for weights, model in zip(ranker.weights(test), nearest, strict=True):
        np.testing.assert_allclose(weights, ranker.preparer_.raw_weights(ranker.offline_.models[model].coef_))


def test_local_model_is_learned_from_the_neighbors() -> None:
    train, test = train_and_test()
    ranker = uniform_knn(9).fit(train)
    prepared = ranker.preparer_.apply(train)
    for query in test:
        near = ranker.model_.index.query(ranker.points(query), 9)[1][0]
        expected = RankRLS().fit(prepared[np.sort(near)]).predict(ranker.preparer_.transform(query.X))
        np.testing.assert_allclose(ranker.predict(query), expected, atol=1e-6)


def test_kernel_changes_the_scores() -> None:
    train, test = train_and_test()
    uniform = uniform_knn(30).fit(train)
    kernel = KnnRanker(30, neighbor_weights="gaussian").fit(train)
    assert np.abs(uniform.predict(test) - kernel.predict(test)).max() > 1e-3


def test_query_vectors_are_given_by_id_or_by_row() -> None:
    train, test = train_and_test()
    rng = np.random.default_rng(0)
    vectors = {qid: rng.standard_normal(4) for qid in np.concatenate([train.qid, test.qid]).tolist()}
    ranker = KnnRanker(7, describe="mean+text").fit(train, query_vectors=vectors)
    by_id = ranker.predict(test, query_vectors=vectors)
    by_row = ranker.predict(test, query_vectors=np.array([vectors[qid] for qid in test.qid.tolist()]))
    np.testing.assert_allclose(by_id, by_row)
    with pytest.raises(DataError, match="query_vectors"):
        ranker.predict(test)
    with pytest.raises(DataError, match="no vector for query 'q0'"):
        ranker.predict(test, query_vectors={})


@pytest.mark.parametrize("weights", ["uniform", "gaussian"])
def test_choosing_k_in_one_pass_equals_trying_each_k(weights: str) -> None:
    train, test = train_and_test()
    ranker = KnnRanker(5, neighbor_weights=weights).fit(train)
    choice = choose_neighbors(ranker, test, [3, 10, 50, 999], prior_strengths=[None, 0.5])
    assert {k for k, _ in choice.quality} == {3, 10, 50}
    for (k, strength), quality in choice.quality.items():
        prior = {"prior": "none"} if strength is None else {"prior": "global", "prior_strength": strength}
        alone = KnnRanker(k, neighbor_weights=weights, **prior).fit(train)
        assert quality == pytest.approx(alone.score(test), abs=1e-9)
    assert choice.single == pytest.approx(SingleRanker("rankrls").fit(train).score(test), abs=1e-9)
    assert choice.apply(ranker).score(test) == pytest.approx(max(choice.quality.values()), abs=1e-9)


def test_k_is_chosen_in_fit_and_kept_in_a_model_folder(tmp_path: Path) -> None:
    queries = make_intents(400, 100, n_docs=20, n_features=10, spread=1.0, seed=0)
    ranker = KnnRanker().fit(queries[:400])
    assert ranker.k == ranker.n_neighbors_ < 400
    assert ranker.score(queries[400:]) > KnnRanker(400).fit(queries[:400]).score(queries[400:])
    ranker.save(tmp_path / "model")
    loaded = kinrank.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(queries[400:]), ranker.predict(queries[400:]))
    assert KnnRanker().fit(linear_queries(8)).k == 10


def test_groups_stay_together_when_k_is_chosen() -> None:
    # Every query twice: apart from its copy, one neighbor is perfect; together, more neighbors are better.
    queries = make_intents(60, 0, n_docs=10, n_features=10, noise=3.0, seed=2)
    twice = QuerySet.concat([queries, queries.replace(qid=queries.qid + 1000)])
    twice = twice.replace(query_columns={"about": np.tile(np.arange(60), 2)})
    assert KnnRanker(group_column="about").fit(twice).k > KnnRanker().fit(twice).k


def test_choosing_k_without_rankrls_raises() -> None:
    with pytest.raises(ParameterError, match="n_neighbors='auto' needs learner='rankrls', got 'ranksvm'"):
        KnnRanker(learner="ranksvm").fit(linear_queries())
    train, test = train_and_test()
    with pytest.raises(ParameterError, match="needs mode='online', learner='rankrls'"):
        choose_neighbors(KnnRanker(5, learner="ranksvm").fit(train), test, [3])


def test_explanation_names_neighbors_and_weights() -> None:
    train, test = train_and_test()
    ranker = KnnRanker(7).fit(train)
    first, *_ = ranker.explain(test)
    assert first.qid == "q0"
    assert len(first.neighbors) == 7
    assert np.all(np.diff(first.distances) >= 0)
    assert first.weights is not None
    np.testing.assert_allclose(first.weights, ranker.weights(test)[0])
    np.testing.assert_allclose(first.global_weights, SingleRanker("rankrls").fit(train).weights(test)[0], atol=1e-9)
    assert "learned from 7 judged queries" in str(first)
    assert first.effects is not None
    deviations = test[0].X.astype(float).std(axis=0)
    np.testing.assert_allclose(first.effects[0], first.weights * deviations)
    largest = int(np.argmax(np.abs(first.effects).max(axis=0)))
    assert (
        str(first)
        .splitlines()[2]
        .startswith(f"  {test.feature_names[largest]}: effect {first.effects[0][largest]:+.3g}")
    )
    far = ranker.explain(test.replace(X=test.X + 1000.0))[0]
    assert far.unusual == 1.0
    assert 0.0 <= first.unusual < 1.0


def test_offline_models_are_saved_and_loaded(tmp_path: Path) -> None:
    train, test = train_and_test()
    for learner in ("rankrls", LambdaMART(n_trees=2)):
        ranker = uniform_knn(7, mode="offline-1", learner=learner).fit(train[:12])
        ranker.save(tmp_path / "model")
        np.testing.assert_array_equal(kinrank.load(tmp_path / "model").predict(test), ranker.predict(test))


def test_change_ratio_is_zero_for_equal_sets_and_bounds_the_loss() -> None:
    pairs = np.array([3.0, 5.0, 2.0])
    assert change_ratio(np.array([0, 1]), np.array([1, 0]), pairs) == 0.0
    assert change_ratio(np.array([0]), np.array([1]), pairs) == pytest.approx(8 / 3)
    assert loss_difference_bound(0.0, penalty=0.01, radius=2.0) == 0.0
    assert loss_difference_bound(0.25, penalty=0.5, radius=2.0) == pytest.approx(2.0)


def test_add_that_raises_changes_nothing() -> None:
    train, test = train_and_test()
    ranker = KnnRanker(5, missing="error").fit(train)
    before = ranker.predict(test)
    new = test.replace(qid=np.array([f"new {qid}" for qid in test.qid]))
    with pytest.raises(DataError, match="not judged"):
        ranker.add(new.replace(y=None))
    with pytest.raises(DataError, match="missing"):
        ranker.add(new.replace(X=np.full_like(new.X, np.nan)))
    with pytest.raises(DataError, match="the judged queries have ids like 'q0', got 0"):
        ranker.add(new.replace(qid=np.arange(len(new))))
    np.testing.assert_array_equal(ranker.predict(test), before)
    assert len(ranker.model_.index.points_) == len(ranker.model_.training_set.pairs) == len(ranker.qid_) == len(train)


def test_add_that_a_learner_refuses_changes_nothing() -> None:
    train, test = train_and_test()
    ranker = KnnRanker(5, learner=LambdaMART(n_trees=5), prior="none").fit(train)
    before = ranker.predict(test)
    new = test.replace(qid=np.array([f"new {qid}" for qid in test.qid]), y=test.grades + 0.5)
    for learn in (ranker.check_learnable, ranker.add):
        with pytest.raises(DataError, match=r"whole grades from 0 to 30, got 1\.5 in query 'new q0'"):
            learn(new)
    np.testing.assert_array_equal(ranker.predict(test), before)
    assert len(ranker.model_.index.points_) == len(ranker.model_.training_set.pairs) == len(ranker.qid_) == len(train)


def test_missing_values_are_learnable_by_trees() -> None:
    train, test = train_and_test()
    ranker = KnnRanker(5, learner=LambdaMART(n_trees=5), prior="none").fit(train)
    missing = test.replace(qid=np.array([f"new {qid}" for qid in test.qid]), X=np.full_like(test.X, np.nan))
    ranker.check_learnable(missing)
    assert ranker.add(missing).n_judged_ == len(train) + len(test)


@pytest.mark.parametrize("mode", MODES)
def test_query_far_from_all_others_is_ranked_globally(mode: Mode) -> None:
    train, test = train_and_test()
    far = test.replace(X=test.X + 1000.0)
    ranker = KnnRanker(radius=2.0, mode=mode).fit(train)
    np.testing.assert_allclose(ranker.predict(far), SingleRanker("rankrls").fit(train).predict(far), atol=1e-3)


@pytest.mark.parametrize("mode", MODES)
def test_query_whose_neighbors_have_no_pairs_is_ranked_globally(mode: Mode) -> None:
    train, test = train_and_test()
    flat = train.replace(y=np.where(train.query_of_row < 40, 1.0, train.grades).astype(np.float32))
    ranker = uniform_knn(1, mode=mode).fit(flat)
    weights = ranker.weights(test)
    assert np.all(np.abs(weights).sum(axis=1) > 0)
    single = SingleRanker("rankrls").fit(flat).weights(test)
    assert np.isclose(weights, single).all(axis=1).any()
    choice = choose_neighbors(uniform_knn(1).fit(flat), test, [1])
    assert choice.quality[1, None] == pytest.approx(uniform_knn(1).fit(flat).score(test), abs=1e-9)


def test_mode_can_change_after_fit_if_the_models_exist() -> None:
    train, test = train_and_test()
    offline = KnnRanker(7, mode="offline-1").fit(train)
    online = KnnRanker(7).fit(train)
    np.testing.assert_allclose(offline.set_params(mode="online").predict(test), online.predict(test))
    with pytest.raises(ParameterError, match="there are no models in advance: fit again"):
        online.set_params(mode="offline-2").predict(test)


def test_offline_explanation_names_the_neighbors_of_the_model() -> None:
    train, test = train_and_test()
    ranker = KnnRanker(7, mode="offline-2").fit(train)
    chosen = ranker.offline_choice(ranker.points(test))
    for explanation, model in zip(ranker.explain(test), chosen, strict=True):
        assert set(explanation.neighbors) == set(ranker.qid_[ranker.offline_.neighbors_of(model)])
        assert np.all(np.diff(explanation.distances) >= 0)


def test_choosing_k_with_unsupported_input_raises() -> None:
    train, test = train_and_test()
    with pytest.raises(ParameterError, match="learner='rankrls' and radius=None"):
        choose_neighbors(KnnRanker(radius=1.0).fit(train), test, [3])
    with pytest.raises(ParameterError, match=r"n_neighbors must be a list of whole numbers from 1, got \[0, 5\]"):
        choose_neighbors(KnnRanker(3).fit(train), test, [0, 5])
    with pytest.raises(DataError, match="another order"):
        choose_neighbors(KnnRanker(3).fit(train), test.replace(feature_names=test.feature_names[::-1]), [3])


def test_prior_with_trees_raises() -> None:
    with pytest.raises(ParameterError, match="this learner has none"):
        KnnRanker(3, learner="lambdamart", prior="global").fit(linear_queries())


def test_n_jobs_does_not_change_the_scores() -> None:
    train, test = train_and_test()
    one, every = (KnnRanker(7, mode="offline-2", n_jobs=n).fit(train).predict(test) for n in (1, -1))
    np.testing.assert_array_equal(one, every)
    with pytest.raises(ParameterError, match="n_jobs must be at least 1"):
        KnnRanker(7, mode="offline-2", n_jobs=0).fit(train)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"mode": "sometimes"}, "mode must be 'online', 'offline-1' or 'offline-2', got 'sometimes'"),
        ({"n_neighbors": 0}, "n_neighbors must be a whole number from 1, got 0"),
        ({"radius": -1.0}, r"radius must be a positive number, got -1\.0"),
        ({"neighbor_weights": "gauss"}, "neighbor_weights must be one of 'uniform', 'gaussian', .*, got 'gauss'"),
        ({"prior": "local"}, "prior must be 'none' or 'global', got 'local'"),
        ({"prior": "global", "prior_strength": 0.0}, r"prior_strength must be positive, got 0\.0"),
    ],
)
def test_invalid_settings_raise(settings_: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        KnnRanker(**settings_).fit(linear_queries())


def _kin(reference: str | None = None, n_cells: int | None = None, **params: Any) -> KinRanker:
    return KinRanker(settings={"reference": reference, "n_cells": n_cells}, **params)


@pytest.mark.parametrize("make", [KnnRanker, CellRanker, _kin, partial(_kin, n_cells=8), QueryClassRanker])
def test_reference_of_a_ranker_must_be_that_of_its_describer(make: Callable[..., Ranker]) -> None:
    queries = linear_queries()
    with pytest.raises(ParameterError, match=r"reference='f1' .*Describer\(reference='f1'\)"):
        make(describe=Describer("mean"), reference="f1").fit(queries)
    make(describe=Describer("mean", reference="f1"), reference="f1").fit(queries)
    make(describe=Describer("mean", reference="f1")).fit(queries)


def test_offline_choice_in_online_mode_raises() -> None:
    ranker = KnnRanker(5).fit(linear_queries())
    with pytest.raises(ParameterError, match="there are no models in advance"):
        ranker.offline_choice(ranker.model_.index.points_)


@pytest.mark.parametrize("first", ["exact", "faiss-ivf"])
@pytest.mark.parametrize("then", ["exact", "faiss-ivf"])
def test_automatically_chosen_index_is_restored(
    first: str, then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # "auto" may choose differently now, because FAISS was installed or queries were added.
    train, test = train_and_test()
    monkeypatch.setattr(kinrank.kin.indexes, "choose_index", lambda *_: first)
    ranker = KnnRanker(7).fit(train)
    ranker.save(tmp_path / "model")
    monkeypatch.setattr(kinrank.kin.indexes, "choose_index", lambda *_: then)
    for other in (ranker.copy(), kinrank.load(tmp_path / "model")):
        assert isinstance(other, KnnRanker)
        assert type(other.model_.index) is INDEXES[first]
        np.testing.assert_array_equal(other.predict(test), ranker.predict(test))


def test_automatic_faiss_index_is_exact_if_faiss_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = train_and_test()
    monkeypatch.setattr(kinrank.kin.indexes, "choose_index", lambda *_: "faiss-ivf")
    KnnRanker(7).fit(train).save(tmp_path / "model")
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "faiss", None)
    loaded = kinrank.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(test), KnnRanker(7).fit(train).predict(test))


@pytest.mark.parametrize("kernel", ["uniform", "gaussian"])
def test_neighbors_are_chosen_after_queries_come_and_go(kernel: str, tmp_path: Path):
    train, test = train_and_test()
    changed = KnnRanker(5, neighbor_weights=kernel).fit(train[:40]).add(train[40:]).remove(train.qid[:10])
    changed.save(tmp_path / "model")  # in one piece
    chosen, expected = (
        choose_neighbors(each, test, [3, 10, 40, 50]) for each in (changed, kinrank.load(tmp_path / "model"))
    )
    assert chosen.quality == pytest.approx(expected.quality)
    assert max(k for k, _ in chosen.quality) == 40


def test_unknown_group_column_raises():
    with pytest.raises(ParameterError, match="group 'typo' is not a query column"):
        KnnRanker(group_column="typo").fit(linear_queries(50))
