"""KinRanker over cells: cross-fitting by subtraction, a sample for the trees, merging and forgetting."""

from __future__ import annotations

import numpy as np
import pytest

import kinrank
from kinrank import KinRanker, QuerySet
from kinrank.data.blocks import QuerySetBlocks
from kinrank.datasets import make_intents
from kinrank.errors import ParameterError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.rankers._local.choose import assign_folds
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.kin._trees import BagTraining, QueriesInMemory, TreeSample, sums_of_folds
from kinrank.scale.training import set_sizes

FEW = LambdaMART(n_trees=40, n_leaves=7, min_rows_in_leaf=5, n_threads=1)


@pytest.fixture(scope="module")
def queries() -> QuerySet:
    intents = make_intents(400, 100, n_docs=10, n_features=6, spread=1.0, seed=3)
    groups = np.arange(len(intents)) // 2
    return intents.replace(query_columns={"movie": groups})


@pytest.fixture(scope="module")
def ranker(queries: QuerySet) -> KinRanker:
    return KinRanker(trees=FEW, group_column="movie", settings={"n_cells": 40}).fit(queries[:400])


def test_subtracting_a_fold_equals_fitting_without_it(queries: QuerySet) -> None:
    train, test = queries[:400], queries[400:]
    whole = CellRanker(40, n_cells=20).fit(train)
    folds = [assign_folds(train, 4, None, seed) for seed in range(2)]
    kept = QueriesInMemory(train[:150], train[150:])
    sums = sums_of_folds(whole.model_.plan, kept, folds)
    for repeat, fold in enumerate(folds):
        for held_out in range(4):
            fitted = whole.fit_alike(train[fold != held_out])
            left = whole.without(sums[repeat][held_out])
            np.testing.assert_array_equal(left.model_.training_set.counts, fitted.model_.training_set.counts)
            np.testing.assert_allclose(left.weights(test), fitted.weights(test), atol=1e-6)
            np.testing.assert_allclose(left.global_.coef_, fitted.global_.coef_, atol=1e-6)
    assert whole.model_.training_set.counts.sum() == 400


class _TreesReachedError(Exception):
    """Ends a fit when it comes to the trees."""


@pytest.mark.parametrize("n_cells", [None, 20])
def test_local_scores_out_of_fold_do_not_depend_on_the_grades_of_the_fold(
    n_cells: int | None, queries: QuerySet, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings: list[BagTraining] = []

    def end(training: BagTraining, *_: object) -> None:
        trainings.append(training)
        raise _TreesReachedError("the trees")

    monkeypatch.setattr(BagTraining, "run", end)
    train = queries[:200]
    settings = KinRanker(20, describe="mean", settings={"n_cells": n_cells, "n_repeats": 1})
    with pytest.raises(_TreesReachedError, match="the trees"):
        settings.fit(train)
    out = trainings[0].folds[0][0] == 0
    reversed_grades = train.grades.max() - train.grades
    with pytest.raises(_TreesReachedError, match="the trees"):
        settings.fit(train.replace(y=np.where(np.repeat(out, train.sizes), reversed_grades, train.grades)))
    np.testing.assert_array_equal(trainings[1].folds[0][0] == 0, out)
    assert all(training.without(0, 0).k == 20 for training in trainings)
    before, after = (training.without(0, 0).predict_local(train[out]) for training in trainings)
    np.testing.assert_allclose(after.scores, before.scores, atol=1e-6)
    np.testing.assert_allclose(after.global_scores, before.global_scores, atol=1e-6)


def test_one_cell_per_query_equals_keeping_every_query(queries: QuerySet) -> None:
    train, test = queries[:200], queries[400:]
    cells, exact = (KinRanker(30, trees=FEW, settings={"n_cells": n, "n_repeats": 1}).fit(train) for n in (200, None))
    np.testing.assert_allclose(cells.local_.predict(test), exact.local_.predict(test), atol=1e-4)
    assert cells.score(test) == pytest.approx(exact.score(test), abs=0.02)


def test_cells_rank_about_as_well_as_every_query(queries: QuerySet, ranker: KinRanker) -> None:
    train, test = queries[:400], queries[400:]
    exact = KinRanker(trees=FEW, group_column="movie").fit(train)
    assert ranker.score(test) == pytest.approx(exact.score(test), abs=0.02)
    assert ranker.score(test) > kinrank.SingleRanker().fit(train).score(test) + 0.02


def test_loaded_ranker_ranks_explains_and_weighs_the_same(queries: QuerySet, ranker: KinRanker, tmp_path) -> None:
    test = queries[400:]
    ranker.save(tmp_path / "model")
    again = kinrank.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(test), ranker.predict(test))
    np.testing.assert_array_equal(again.weights(test), ranker.weights(test))
    assert str(again.explain(test[:1])[0]) == str(ranker.explain(test[:1])[0])


def test_trees_can_learn_from_a_sample_that_keeps_groups_whole(queries: QuerySet) -> None:
    train = queries[:400]
    sampled = TreeSample(0.5, "movie").of(train)
    assert 120 < len(sampled) < 280
    sizes = np.unique(sampled.query_columns["movie"], return_counts=True)[1]
    assert set(sizes.tolist()) == {2}
    ranker = KinRanker(trees=FEW, group_column="movie", settings={"n_cells": 40, "tree_queries": 200}).fit(train)
    assert ranker.local_.model_.training_set.counts.sum() == 400
    assert ranker.score(queries[400:]) > kinrank.SingleRanker().fit(train).score(queries[400:])


def test_adding_and_forgetting_change_the_local_part_only(queries: QuerySet, ranker: KinRanker) -> None:
    train, more, test = queries[:400], queries[400:450], queries[450:]
    both = ranker.copy().add(more)
    assert both.n_unseen_ == 50
    assert both.model_.forest is ranker.model_.forest
    back = both.copy().forget(more)
    np.testing.assert_allclose(back.predict(test), ranker.predict(test), atol=1e-6)
    assert back.n_unseen_ == 0
    assert ranker.local_.model_.training_set.counts.sum() == len(train)


def test_settings_decide_what_it_can_do(queries: QuerySet, ranker: KinRanker) -> None:
    assert not ranker.capabilities.replaces
    assert KinRanker().capabilities.replaces
    assert KinRanker().capabilities.streams
    with pytest.raises(ParameterError, match=r"^cells do not keep the ids of their queries: pass the queries"):
        ranker.remove([0])
    exact = KinRanker(10, trees=FEW).fit(queries[:60])
    with pytest.raises(ParameterError, match=r"^this needs sums over cells: set n_cells in settings"):
        exact.forget(queries[:1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"settings": {"n_cells": 0}}, "^n_cells must be a whole number from 1, or None, got 0"),
        (
            {"settings": {"n_cells": 4, "tree_queries": 0.5}},
            "^tree_queries must be a whole number from 1, or None, got 0.5",
        ),
        ({"settings": {"tree_queries": 100}}, "^tree_queries needs n_cells"),
    ],
)
def test_bad_settings_raise(queries: QuerySet, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        KinRanker(**settings).fit(queries[:20])


@pytest.mark.parametrize(
    ("rows_per_query", "n_features", "expected"), [(10, 10, 50_000), (40, 46, 50_000), (100, 136, 7_299)]
)
def test_sample_for_the_trees_is_limited_by_what_they_see(rows_per_query: int, n_features: int, expected: int) -> None:
    X = np.zeros((2 * rows_per_query, n_features))
    few = QuerySet.from_arrays(X, qid=np.repeat([0, 1], rows_per_query), y=np.zeros(len(X)))
    blocks = QuerySetBlocks(few, 1_000)
    free, given = KinRanker(), KinRanker(settings={"tree_queries": 7, "n_cells": 2})
    for ranker in (free, given):
        set_sizes(ranker, blocks, 2)
    chosen, kept = free.settings, given.settings
    assert (chosen.tree_queries, kept.tree_queries, kept.n_cells) == (expected, 7, 2)
