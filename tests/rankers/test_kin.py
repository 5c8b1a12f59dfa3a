from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import kinrank
from kinrank import KinRanker, KinSettings, QuerySet, SingleRanker
from kinrank.datasets import make_intents, make_two_camps
from kinrank.errors import DataError, ParameterError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import NDCG, compare_paired
from kinrank.progress import on_progress
from kinrank.rankers._local.choose import assign_folds
from kinrank.rankers.kin._blend import best_shares
from kinrank.rankers.kin._model import INGREDIENTS

FEW = LambdaMART(n_trees=40, n_leaves=7, min_rows_in_leaf=5, n_threads=1)


@pytest.fixture(scope="module")
def camps() -> tuple[QuerySet, QuerySet, KinRanker]:
    queries = make_two_camps(n_queries=120, seed=0)
    train, test = queries[:80], queries[80:]
    return train, test, KinRanker(10, local=True, trees=FEW).fit(train)


def test_two_camps_are_ranked_perfectly(camps):
    _, test, ranker = camps
    assert ranker.score(test) == 1.0


def test_kin_is_not_worse_than_single_if_queries_do_not_differ():
    queries = make_intents(300, 300, n_docs=20, n_features=10, spread=0.0, seed=1)
    train, test = queries[:300], queries[300:]
    measure = NDCG @ 10
    ours, single = (
        measure.per_query(ranker.fit(train).predict(test), test.grades, test.offsets)
        for ranker in (KinRanker(trees=FEW), SingleRanker())
    )
    low, _ = compare_paired(ours, single).interval
    assert low > -0.005


def test_shares_sum_to_one_and_the_blend_is_best_out_of_fold(camps):
    ranker = camps[2]
    assert sum(ranker.shares_.values()) == pytest.approx(1)
    assert tuple(ranker.shares_) == INGREDIENTS[:3]  # without a base
    assert ranker.record_["blend"] >= max(ranker.record_[part] for part in INGREDIENTS[:3])


def test_contributions_sum_to_the_scores(camps):
    _, test, ranker = camps
    explained = ranker.explain(test[:5])
    np.testing.assert_allclose(np.concatenate([each.scores for each in explained]), ranker.predict(test[:5]), atol=1e-9)
    assert len(explained[0].neighbors) == 10
    assert sum(explained[0].shares.values()) == pytest.approx(1)
    assert "the order comes from" in str(explained[0])


def test_query_far_from_all_others_is_ranked_globally(camps):
    train, test, _ = camps
    ranker = KinRanker(10, trees=FEW).fit(train)
    ranker.model_ = replace(ranker.model_, shares={"trees": 0.0, "local": 1.0, "global": 0.0})
    near = ranker.predict(test)
    far = test.replace(X=test.X + 1e4)
    by_local = ranker.predict(far)
    ranker.model_ = replace(ranker.model_, shares={"trees": 0.0, "local": 0.0, "global": 1.0})
    np.testing.assert_allclose(by_local, ranker.predict(far))
    explanation = ranker.explain(far[:1])[0]
    np.testing.assert_array_equal(explanation.weights, explanation.global_weights)
    assert "no judged query is near" in str(explanation)
    assert "no judged query is near" not in str(ranker.explain(test[:1])[0])
    assert not np.allclose(near, ranker.predict(test))


def test_loaded_ranker_ranks_and_explains_the_same(camps, tmp_path):
    _, test, ranker = camps
    ranker.save(tmp_path / "model")
    again = kinrank.load(tmp_path / "model")
    assert isinstance(again, KinRanker)
    np.testing.assert_array_equal(again.predict(test), ranker.predict(test))
    assert again.record_ == ranker.record_
    assert str(again.explain(test[:1])[0]) == str(ranker.explain(test[:1])[0])


def test_same_seed_gives_same_ranker(camps):
    train, test, ranker = camps
    np.testing.assert_array_equal(KinRanker(10, local=True, trees=FEW).fit(train).predict(test), ranker.predict(test))


def test_too_few_queries_for_folds_use_the_global_model():
    queries = make_two_camps(n_queries=5, seed=0)
    ranker = KinRanker(trees=FEW).fit(queries)
    assert ranker.members_ == []
    assert ranker.shares_["global"] == 1.0
    global_order = np.argsort(SingleRanker().fit(queries).predict(queries[:1]))
    np.testing.assert_array_equal(np.argsort(ranker.predict(queries[:1])), global_order)


def test_one_group_with_most_queries_is_one_fold_and_the_others_share_the_rest():
    queries = make_two_camps(n_queries=60, seed=0)
    together = np.where(np.arange(60) < 42, 0, np.arange(60))
    queries = queries.replace(query_columns={"g": together})
    assert sorted(np.bincount(assign_folds(queries, 4, "g", 0))) == [6, 6, 6, 42]
    assert len(KinRanker(trees=FEW, group_column="g", settings={"n_repeats": 1}).fit(queries).members_) == 4


def test_folds_do_not_split_groups():
    queries = make_two_camps(n_queries=40, seed=0)
    groups = np.arange(40) // 4
    fold = assign_folds(queries.replace(query_columns={"about": groups}), 4, "about", 0)
    assert all(len(np.unique(fold[groups == group])) == 1 for group in range(10))


def test_group_column_keeps_duplicates_out_of_the_record():
    # Each query occurs twice. Without the group column, models are tested on copies of their training queries.
    queries = make_intents(60, 0, n_docs=20, n_features=10, noise=3.0, seed=2)
    twice = QuerySet.concat([queries, queries.replace(qid=queries.qid + 1000)])
    twice = twice.replace(query_columns={"about": np.tile(np.arange(60), 2)})
    grouped = KinRanker(5, trees=FEW, group_column="about").fit(twice).record_["trees"]
    ungrouped = KinRanker(5, trees=FEW).fit(twice).record_["trees"]
    assert grouped < ungrouped


def test_best_shares_keep_the_first_ranking_unless_a_blend_is_clearly_better():
    queries = QuerySet.from_arrays(np.zeros((8, 1)), [0, 1] * 4, group=[2] * 4)
    right = np.tile([-1.0, 1.0], 4)
    mostly_right = np.concatenate([-right[:2], right[2:]])
    # One of four queries gains: less than one standard error. All of them: clear, and the last ranking is preferred.
    assert best_shares(np.column_stack([mostly_right, right]), queries)[0].tolist() == [1.0, 0.0]
    assert best_shares(np.column_stack([-right, right]), queries) == (pytest.approx([0.0, 1.0]), 1.0)


def test_repeats_use_other_folds_and_all_their_members_rank():
    queries = make_two_camps(n_queries=40, seed=0)
    ranker = KinRanker(5, trees=FEW, settings={"n_members": 2, "n_repeats": 3}).fit(queries)
    assert len(ranker.members_) == 6
    table = np.random.default_rng(0).normal(size=(50, ranker.members_[0].booster_.num_feature()))
    assert len({model.predict(table).tobytes() for model in ranker.members_}) > 1
    first = KinRanker(5, trees=FEW, settings={"n_members": 2, "n_repeats": 1}).fit(queries)
    for one, other in zip(first.members_, ranker.members_, strict=False):
        np.testing.assert_array_equal(one.keep_trees(1).predict(table), other.keep_trees(1).predict(table))


def test_cross_fitting_is_repeated_when_queries_are_few():
    few = make_intents(60, 0, n_docs=5, n_features=5, seed=0)
    assert len(KinRanker(5, trees=FEW).fit(few).members_) == 12
    assert len(KinRanker(5, trees=FEW, settings={"n_repeats": 1}).fit(few).members_) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors must be 'auto' or a whole number from 1, got 0"),
        ({"settings": {"n_members": 1}}, "n_members must be a whole number from 2, got 1"),
        ({"settings": {"n_repeats": 0}}, "n_repeats must be 'auto' or a whole number from 1, got 0"),
        ({"trees": "rankrls"}, "trees must be a LambdaMART, got 'rankrls'"),
        ({"group_column": "movie"}, "group 'movie' is not a query column"),
    ],
)
def test_invalid_settings_raise(settings, message):
    with pytest.raises(ParameterError, match=message):
        KinRanker(**settings).fit(make_two_camps(n_queries=20))


def test_fractional_grades_raise():
    queries = make_two_camps(n_queries=40)
    with pytest.raises(DataError, match="whole grades"):
        KinRanker(5).fit(queries.replace(y=queries.grades + 0.5))


def test_without_local_models_neighbors_do_not_matter(camps):
    train, test, _ = camps
    few, many = (KinRanker(k, local=False, trees=FEW).fit(train) for k in (5, 60))
    assert few.shares_["local"] == 0.0
    np.testing.assert_array_equal(few.predict(test), many.predict(test))
    explained = few.explain(test[:1])[0]
    assert explained.shares["trees: local score"] == explained.shares["local"] == 0.0
    np.testing.assert_allclose(explained.scores, few.predict(test[:1]), atol=1e-9)


def test_local_models_gain_if_queries_differ():
    queries = make_intents(400, 200, n_docs=20, n_features=10, spread=1.0, seed=0)
    with_local, without = (
        KinRanker(50, local=local, trees=FEW).fit(queries[:400]).score(queries[400:]) for local in (True, False)
    )
    assert with_local > without + 0.02


def test_fit_reports_its_stages() -> None:
    seen: list[tuple[str, int, int]] = []
    with on_progress(lambda *step: seen.append(step)):
        KinRanker(trees=FEW, settings={"n_repeats": 2}).fit(make_two_camps(60, seed=0))
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    assert stages == ["folds to choose k", "weights per query", "local scores", "tree models"]
    tried = [step for step in seen if step[0] == "weights per query"]
    # Folds are held out one after the other, until the difference is clear.
    assert tried == [("weights per query", number, 4) for number in range(1, len(tried) + 1)]
    assert 1 <= len(tried) <= 4
    made = [step for step in seen if step[0] == "tree models"]
    assert made == [("tree models", number, 8) for number in range(1, 9)]


def test_trees_that_cannot_split_do_not_rank():
    for seed in range(4):
        queries = make_intents(10, 20, n_docs=4, n_features=5, seed=seed)
        ranker = KinRanker(seed=seed).fit(queries[:10])
        assert ranker.shares_["trees"] == 0.0
        assert len(np.unique(ranker.predict(queries[10:]))) > 4


def test_validation_of_trees_does_not_depend_on_further_metrics():
    queries = make_intents(40, 0, n_docs=10, n_features=5)
    for params in ({"eval_at": [5, 10]}, {"metric": ["map", "ndcg"]}):
        assert KinRanker(trees=LambdaMART(10, min_rows_in_leaf=5, params=params)).fit(queries).members_
    ranker = KinRanker(trees=LambdaMART(10, min_rows_in_leaf=5, params={"early_stopping_round": 2}))
    with pytest.raises(ParameterError, match="params must leave metric, eval_at and early stopping out"):
        ranker.fit(queries)


def weighted_camps(weights_of_relevant: tuple[float, float]) -> QuerySet:
    """Return queries whose relevant documents have these weights in turn, and the others weight 0.1."""
    queries = make_two_camps(n_queries=40, seed=0)
    turns = np.where(np.arange(queries.n_rows) % 2, *weights_of_relevant)
    return queries.replace(sample_weight=np.where(queries.grades > 0, turns, 0.1))


def test_trees_do_not_see_the_standing_if_weights_of_relevant_documents_differ(tmp_path):
    clicked = weighted_camps((0.9, 0.2))
    ranker = KinRanker(5, local=True, trees=FEW).fit(clicked)
    assert ranker.model_.forest.n_features == clicked.n_features + 1
    explained = ranker.explain(clicked[:2])
    assert explained[0].shares["trees: standing"] == 0.0
    np.testing.assert_allclose(
        np.concatenate([each.scores for each in explained]), ranker.predict(clicked[:2]), atol=1e-9
    )
    assert len(ranker.feature_importances_) == clicked.n_features
    ranker.save(tmp_path / "model")
    np.testing.assert_array_equal(kinrank.load(tmp_path / "model").predict(clicked), ranker.predict(clicked))


def test_trees_see_the_standing_if_only_unjudged_documents_weigh_less():
    judged = weighted_camps((1.0, 1.0))
    assert KinRanker(5, local=True, trees=FEW).fit(judged).model_.forest.n_features == 3 * (judged.n_features + 1)


def test_later_repeats_grow_only_as_many_trees_as_the_first_needs():
    queries = make_two_camps(n_queries=40, seed=0)
    once, twice = (
        KinRanker(10, local=True, trees=FEW, settings={"n_repeats": repeats}).fit(queries) for repeats in (1, 2)
    )
    grown = [member.booster_.num_trees() for member in twice.members_]
    assert once.n_trees_ < FEW.n_trees
    assert grown == [FEW.n_trees] * 4 + [once.n_trees_] * 4
    assert twice.n_trees_ <= once.n_trees_


def test_settings_are_one_parameter_as_an_object_or_a_dict(tmp_path: Path) -> None:
    queries = make_two_camps(40, seed=0)
    given = KinRanker(10, trees=FEW, settings=KinSettings(n_repeats=1, n_members=2))
    assert len(given.get_params(deep=False)) <= 14
    assert clone(given).settings == given.settings
    by_dict = clone(given).set_params(settings={"n_repeats": 1, "n_members": 2})
    scores = given.fit(queries).predict(queries)
    np.testing.assert_array_equal(by_dict.fit(queries).predict(queries), scores)
    given.save(tmp_path / "model")
    loaded = kinrank.load(tmp_path / "model")
    assert KinSettings.of(loaded.get_params()["settings"]) == given.settings
    np.testing.assert_array_equal(loaded.predict(queries), scores)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_member": 2}, r"^settings have no 'n_member': choose from n_members, n_repeats, "),
        (4, "^settings must be a KinSettings or a dict, got 4$"),
    ],
)
def test_unknown_settings_raise(settings: object, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        KinRanker(settings=settings).fit(make_two_camps(20))  # type: ignore[arg-type]
