from __future__ import annotations

import numpy as np
import pytest

import kinrank
from kinrank import KinRanker, QuerySet, SingleRanker
from kinrank.datasets import make_intents, make_two_camps
from kinrank.errors import DataError, ParameterError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import NDCG, compare_paired
from kinrank.rankers.kin.blend import best_shares
from kinrank.rankers.kin.crossfit import assign_folds
from kinrank.rankers.kin.ranker import INGREDIENTS

FEW = LambdaMART(n_trees=40, n_leaves=7, min_rows_in_leaf=5, n_threads=1)


@pytest.fixture(scope="module")
def camps() -> tuple[QuerySet, QuerySet, KinRanker]:
    world = make_two_camps(n_queries=120, seed=0)
    train, test = world[:80], world[80:]
    return train, test, KinRanker(10, trees=FEW).fit(train)


def test_two_camps_are_ranked_rightly(camps):
    _, test, ranker = camps
    assert ranker.score(test) == 1.0


def test_a_world_of_one_intent_is_not_ranked_worse_than_by_one_line():
    world = make_intents(300, 300, n_docs=20, n_features=10, spread=0.0, seed=1)
    train, test = world[:300], world[300:]
    measure = NDCG @ 10
    ours, single = (
        measure.per_query(ranker.fit(train).predict(test), test.grades, test.offsets)
        for ranker in (KinRanker(trees=FEW), SingleRanker())
    )
    low, _ = compare_paired(ours, single).interval
    assert low > -0.005


def test_shares_add_up_and_the_record_is_that_of_the_blend(camps):
    ranker = camps[2]
    assert sum(ranker.shares_.values()) == pytest.approx(1)
    assert tuple(ranker.shares_) == INGREDIENTS
    assert ranker.record_["blend"] >= max(ranker.record_[part] for part in INGREDIENTS)


def test_explanations_add_up_to_the_scores(camps):
    _, test, ranker = camps
    explained = ranker.explain(test[:5])
    np.testing.assert_allclose(np.concatenate([each.scores for each in explained]), ranker.predict(test[:5]), atol=1e-9)
    assert len(explained[0].neighbors) == 10
    assert sum(explained[0].shares.values()) == pytest.approx(1)
    assert "the order comes from" in str(explained[0])


def test_a_far_query_is_ranked_by_the_global_model(camps):
    train, test, _ = camps
    ranker = KinRanker(10, trees=FEW).fit(train)
    ranker.shares_ = {"trees": 0.0, "local": 1.0, "global": 0.0}
    near = ranker.predict(test)
    far = test.replace(X=test.X + 1e4)
    by_local = ranker.predict(far)
    ranker.shares_ = {"trees": 0.0, "local": 0.0, "global": 1.0}
    np.testing.assert_allclose(by_local, ranker.predict(far))
    told = ranker.explain(far[:1])[0]
    np.testing.assert_array_equal(told.weights, told.global_weights)
    assert "no judged query is near" in str(told)
    assert "no judged query is near" not in str(ranker.explain(test[:1])[0])
    assert not np.allclose(near, ranker.predict(test))


def test_saved_and_loaded_it_ranks_and_explains_the_same(camps, tmp_path):
    _, test, ranker = camps
    ranker.save(tmp_path / "model")
    again = kinrank.load(tmp_path / "model")
    assert isinstance(again, KinRanker)
    np.testing.assert_array_equal(again.predict(test), ranker.predict(test))
    assert again.record_ == ranker.record_
    assert str(again.explain(test[:1])[0]) == str(ranker.explain(test[:1])[0])


def test_the_same_seed_gives_the_same_ranker(camps):
    train, test, ranker = camps
    np.testing.assert_array_equal(KinRanker(10, trees=FEW).fit(train).predict(test), ranker.predict(test))


def test_too_few_queries_to_hold_out_are_ranked_globally():
    world = make_two_camps(n_queries=5, seed=0)
    ranker = KinRanker(trees=FEW).fit(world)
    assert ranker.members_ == []
    assert ranker.shares_["global"] == 1.0
    global_order = np.argsort(SingleRanker().fit(world).predict(world[:1]))
    np.testing.assert_array_equal(np.argsort(ranker.predict(world[:1])), global_order)


def test_one_group_that_is_most_of_the_queries_is_ranked_globally():
    world = make_two_camps(n_queries=60, seed=0)
    together = np.where(np.arange(60) < 50, 0, np.arange(60))
    ranker = KinRanker(trees=FEW, group_column="g").fit(world.replace(query_columns={"g": together}))
    assert ranker.members_ == []


def test_groups_are_never_on_both_sides_of_a_fold():
    world = make_two_camps(n_queries=40, seed=0)
    groups = np.arange(40) // 4
    fold = assign_folds(world.replace(query_columns={"about": groups}), 4, "about", 0)
    assert all(len(np.unique(fold[groups == group])) == 1 for group in range(10))


def test_grouped_duplicates_do_not_flatter_the_record():
    # Each query comes twice. Unless told so, its twin teaches the model that is to be tested on it.
    world = make_intents(60, 0, n_docs=20, n_features=10, noise=3.0, seed=2)
    twice = QuerySet.concat([world, world.replace(qid=world.qid + 1000)])
    twice = twice.replace(query_columns={"about": np.tile(np.arange(60), 2)})
    honest = KinRanker(5, trees=FEW, group_column="about").fit(twice).record_["trees"]
    flattered = KinRanker(5, trees=FEW).fit(twice).record_["trees"]
    assert honest < flattered


def test_best_shares_give_up_the_last_ranking_last():
    queries = QuerySet.from_arrays([[0.0], [0.0]], [0, 1], group=[2])
    same = np.array([[-1.0, -1.0], [1.0, 1.0]])
    shares, quality = best_shares(same, queries)
    assert shares.tolist() == [0.0, 1.0]
    assert quality == 1.0


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"n_neighbors": 0}, "n_neighbors must be 'auto' or a whole number from 1, got 0"),
        ({"n_members": 1}, "n_members must be a whole number from 2, got 1"),
        ({"trees": "many"}, "trees must be a LambdaMART, got 'many'"),
        ({"group_column": "movie"}, "group_column 'movie' is not a query column"),
    ],
)
def test_bad_settings_are_named(settings, complaint):
    with pytest.raises(ParameterError, match=complaint):
        KinRanker(**settings).fit(make_two_camps(n_queries=20))


def test_grades_that_trees_cannot_learn_are_named():
    world = make_two_camps(n_queries=40)
    with pytest.raises(DataError, match="whole grades"):
        KinRanker(5).fit(world.replace(y=world.grades + 0.5))
