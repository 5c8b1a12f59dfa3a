"""SingleRanker's own promises."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import kinrank
from kinrank import KnnRanker, QuerySet, SingleRanker
from kinrank.checks.samples import linear_queries
from kinrank.errors import DataError, ParameterError
from kinrank.learn.prepare import Preparer


def test_missing_feature_names_query_and_feature() -> None:
    queries = QuerySet.from_arrays(
        [[1.0, 2.0], [0.0, np.nan]], y=[0, 1], qid=["shoes", "shoes"], feature_names=["bm25", "price"]
    )
    with pytest.raises(DataError, match=r"'price' is missing \(NaN\) in candidate 2 of query 'shoes': pass missing="):
        SingleRanker().fit(queries)


def test_missing_candidate_is_counted_within_its_query() -> None:
    X = np.array([[1.0], [2.0], [np.nan], [4.0]])
    with pytest.raises(DataError, match=r"candidate 2 of query 'a'"):
        SingleRanker().fit(X, [0, 1, 1, 0], qid=["a", "b", "a", "b"])


def test_infinite_feature_is_refused() -> None:
    with pytest.raises(DataError, match=r"is infinite in candidate 2 of query 0"):
        SingleRanker(missing="zero").fit([[1.0], [np.inf]], [0, 1], group=[2])


@pytest.mark.parametrize("missing", ["zero", "mean"])
def test_missing_features_are_filled_as_declared(missing: str) -> None:
    world = linear_queries()
    X = world.X.copy()
    X[::7, 2] = np.nan
    filled = np.where(np.isnan(X), 0.0 if missing == "zero" else np.nanmean(X, axis=0), X)
    ranker = SingleRanker("rankrls", missing=missing).fit(world.replace(X=X))
    plain = SingleRanker("rankrls").fit(world.replace(X=filled.astype(np.float32)))
    np.testing.assert_allclose(ranker.predict(world.replace(X=X)), plain.predict(world.replace(X=filled)), atol=1e-5)


def test_weights_of_candidates_that_are_filled_with_a_mean_are_refused() -> None:
    world = linear_queries()
    X = world.X.copy()
    X[world.offsets[3], 2] = np.nan
    holes = world.replace(X=X)
    ranker = SingleRanker("rankrls", missing="mean").fit(holes)
    with pytest.raises(DataError, match=r"'f3' is missing \(NaN\) in some candidates of query .*missing='zero'"):
        ranker.weights(holes)
    ranker.weights(holes[:3])
    X[world.offsets[3] : world.offsets[4], 2] = np.nan  # in all of them: a constant, which changes no order
    ranker.weights(world.replace(X=X))
    zero = SingleRanker("rankrls", missing="zero").fit(holes)
    summed = np.einsum("ij,ij->i", np.nan_to_num(holes.X), zero.weights(holes)[holes.query_of_row])
    np.testing.assert_allclose(summed - zero.predict(holes), (summed - zero.predict(holes))[0], atol=1e-4)


def test_trees_read_missing_features() -> None:
    world = linear_queries()
    X = world.X.copy()
    X[::3, 1] = np.nan
    assert np.isfinite(SingleRanker("lambdamart").fit(world.replace(X=X)).predict(world.replace(X=X))).all()


def test_trees_have_no_weights() -> None:
    ranker = SingleRanker("lambdamart").fit(linear_queries())
    with pytest.raises(ParameterError, match="its model is not linear"):
        ranker.weights(linear_queries())


def test_scaling_makes_units_irrelevant() -> None:
    world = linear_queries()
    units = np.array([1.0, 1e6, 1e-3, 10.0, 1.0], dtype=np.float32)
    there = SingleRanker("rankrls").fit(world).predict(world)
    scaled = world.replace(X=world.X * units)
    np.testing.assert_allclose(SingleRanker("rankrls").fit(scaled).predict(scaled), there, atol=1e-4)


def test_constant_feature_is_harmless() -> None:
    world = linear_queries()
    X = world.X.copy()
    X[:, 0] = 0.1
    prepared = Preparer().fit(world.replace(X=X)).transform(X)
    assert np.all(prepared[:, 0] == 0.0)


def test_equal_grades_teach_nothing() -> None:
    with pytest.raises(DataError, match="all grades are equal"):
        SingleRanker().fit([[1.0], [2.0]], [1, 1], group=[2])


def test_other_feature_order_is_refused() -> None:
    world = linear_queries(n_features=2)
    ranker = SingleRanker().fit(world.replace(feature_names=("a", "b")))
    with pytest.raises(DataError, match=r"another order than in fit: expected \['a', 'b'\], got \['b', 'a'\]"):
        ranker.predict(world.replace(feature_names=("b", "a")))
    with pytest.raises(DataError, match=r"missing \['b'\], unknown \['c'\]"):
        ranker.predict(world.replace(feature_names=("a", "c")))


def test_a_failed_refit_leaves_the_old_model() -> None:
    world, other = linear_queries(), linear_queries(seed=5)
    ranker = KnnRanker(5).fit(world)
    before = ranker.predict(world)
    with pytest.raises(ParameterError, match="n_neighbors must be a whole number from 1, got 0"):
        ranker.set_params(n_neighbors=0).fit(other)
    np.testing.assert_array_equal(ranker.set_params(n_neighbors=5).predict(world), before)


def test_score_without_queries_says_what_it_does() -> None:
    world = linear_queries()
    ranker = SingleRanker("rankrls").fit(world)
    with pytest.warns(UserWarning, match="candidates of one query"):
        ranker.score(world.X, world.y)


def test_data_frames_give_feature_names() -> None:
    world = linear_queries(n_features=2)
    frame = pd.DataFrame(world.X, columns=["bm25", "price"])
    ranker = SingleRanker("rankrls").fit(frame, world.y, group=world.sizes)
    assert ranker.feature_names_ == ("bm25", "price")
    np.testing.assert_allclose(
        ranker.predict(frame, group=world.sizes), ranker.predict(world.replace(feature_names=("bm25", "price")))
    )


def test_a_loaded_ranker_still_knows_its_columns(tmp_path: Path) -> None:
    world = linear_queries(n_features=2)
    frame = pd.DataFrame(world.X, columns=["bm25", "price"])
    SingleRanker("rankrls").fit(frame, world.y, group=world.sizes).save(tmp_path / "model")
    loaded = kinrank.load(tmp_path / "model")
    with pytest.raises(DataError, match="another order than in fit"):
        loaded.predict(frame[["price", "bm25"]], group=world.sizes)


def test_rankers_and_queries_can_be_pickled() -> None:
    """For joblib and clusters; what is stored for keeps is a folder."""
    world = linear_queries()
    twin = pickle.loads(pickle.dumps(SingleRanker("rankrls").fit(world)))
    again = pickle.loads(pickle.dumps(world))
    assert twin.predict(again).tolist() == SingleRanker("rankrls").fit(world).predict(world).tolist()


def test_query_set_speaks_for_itself() -> None:
    world = linear_queries()
    with pytest.raises(DataError, match="X is a QuerySet"):
        SingleRanker().fit(world, world.y)


def test_unknown_learner_lists_the_known_ones() -> None:
    with pytest.raises(ParameterError, match="unknown learner 'svm': choose one of 'ranksvm', 'rankrls', 'lambdamart'"):
        SingleRanker("svm").fit(linear_queries())
