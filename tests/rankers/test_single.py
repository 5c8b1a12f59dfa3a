from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import kinrank
from kinrank import KnnRanker, QuerySet, SingleRanker
from kinrank.checks import linear_queries
from kinrank.errors import DataError, ParameterError
from kinrank.learn._prepare import Preparer
from kinrank.rankers import RANKERS


def test_missing_feature_raises() -> None:
    queries = QuerySet.from_arrays(
        [[1.0, 2.0], [0.0, np.nan]], y=[0, 1], qid=["shoes", "shoes"], feature_names=["bm25", "price"]
    )
    with pytest.raises(DataError, match=r"'price' is missing \(NaN\) in candidate 2 of query 'shoes': pass missing="):
        SingleRanker(missing="error").fit(queries)


@pytest.mark.parametrize("name", sorted(RANKERS))
def test_every_ranker_fills_missing_features_with_the_mean(name: str) -> None:
    queries = linear_queries()
    X = queries.X.copy()
    X[::7, 0] = np.nan
    holes = queries.replace(X=X)
    ranker = RANKERS[name]()
    assert ranker.get_params().get("missing", "mean") == "mean"  # one around another ranker has none of its own
    assert np.isfinite(ranker.fit(holes).predict(holes)).all()


def test_normalized_features_have_no_mean_to_fill_in() -> None:
    queries = linear_queries()
    SingleRanker(scale="min_max").fit(queries)
    X = queries.X.copy()
    X[3, 0] = np.nan
    with pytest.raises(DataError, match=r"is missing \(NaN\) in candidate 4 .*pass missing='zero'"):
        SingleRanker(scale="min_max").fit(queries.replace(X=X))
    SingleRanker(scale="min_max", missing="zero").fit(queries.replace(X=X))


def test_candidate_in_error_is_counted_within_its_query() -> None:
    X = np.array([[1.0], [2.0], [np.nan], [4.0]])
    with pytest.raises(DataError, match=r"candidate 2 of query 'a'"):
        SingleRanker(missing="error").fit(X, [0, 1, 1, 0], qid=["a", "b", "a", "b"])


def test_infinite_feature_raises() -> None:
    with pytest.raises(DataError, match=r"is infinite in candidate 2 of query 0"):
        SingleRanker(missing="zero").fit([[1.0], [np.inf]], [0, 1], group=[2])


@pytest.mark.parametrize("missing", ["zero", "mean"])
def test_missing_features_are_filled_as_set(missing: str) -> None:
    queries = linear_queries()
    X = queries.X.copy()
    X[::7, 2] = np.nan
    filled = np.where(np.isnan(X), 0.0 if missing == "zero" else np.nanmean(X, axis=0), X)
    ranker = SingleRanker("rankrls", missing=missing).fit(queries.replace(X=X))
    plain = SingleRanker("rankrls").fit(queries.replace(X=filled.astype(np.float32)))
    np.testing.assert_allclose(
        ranker.predict(queries.replace(X=X)), plain.predict(queries.replace(X=filled)), atol=1e-5
    )


def test_weights_of_candidates_filled_with_a_mean_raise() -> None:
    queries = linear_queries()
    X = queries.X.copy()
    X[queries.offsets[3], 2] = np.nan
    holes = queries.replace(X=X)
    ranker = SingleRanker("rankrls", missing="mean").fit(holes)
    with pytest.raises(DataError, match=r"'f3' is missing \(NaN\) in some candidates of query .*missing='zero'"):
        ranker.weights(holes)
    ranker.weights(holes[:3])
    X[queries.offsets[3] : queries.offsets[4], 2] = np.nan  # in all candidates: a constant
    ranker.weights(queries.replace(X=X))
    zero = SingleRanker("rankrls", missing="zero").fit(holes)
    summed = np.einsum("ij,ij->i", np.nan_to_num(holes.X), zero.weights(holes)[holes.query_of_row])
    np.testing.assert_allclose(summed - zero.predict(holes), (summed - zero.predict(holes))[0], atol=1e-4)


def test_trees_read_missing_features() -> None:
    queries = linear_queries()
    X = queries.X.copy()
    X[::3, 1] = np.nan
    assert np.isfinite(SingleRanker("lambdamart").fit(queries.replace(X=X)).predict(queries.replace(X=X))).all()


def test_weights_of_trees_raise() -> None:
    ranker = SingleRanker("lambdamart").fit(linear_queries())
    with pytest.raises(ParameterError, match="there are no weights: LambdaMART is not linear; set learner='rankrls'"):
        ranker.weights(linear_queries())


def test_scaling_makes_units_irrelevant() -> None:
    queries = linear_queries()
    units = np.array([1.0, 1e6, 1e-3, 10.0, 1.0], dtype=np.float32)
    expected = SingleRanker("rankrls").fit(queries).predict(queries)
    scaled = queries.replace(X=queries.X * units)
    np.testing.assert_allclose(SingleRanker("rankrls").fit(scaled).predict(scaled), expected, atol=1e-4)


def test_constant_feature_is_scaled_to_zero() -> None:
    queries = linear_queries()
    X = queries.X.copy()
    X[:, 0] = 0.1
    prepared = Preparer().fit(queries.replace(X=X)).transform(X)
    assert np.all(prepared[:, 0] == 0.0)


def test_equal_grades_raise() -> None:
    with pytest.raises(DataError, match="all grades are equal"):
        SingleRanker().fit([[1.0], [2.0]], [1, 1], group=[2])


def test_other_features_or_feature_order_raise() -> None:
    queries = linear_queries(n_features=2)
    ranker = SingleRanker().fit(queries.replace(feature_names=("a", "b")))
    with pytest.raises(DataError, match=r"another order than in fit: expected \['a', 'b'\], got \['b', 'a'\]"):
        ranker.predict(queries.replace(feature_names=("b", "a")))
    with pytest.raises(DataError, match=r"missing \['b'\], unknown \['c'\]"):
        ranker.predict(queries.replace(feature_names=("a", "c")))


def test_failed_refit_keeps_the_old_model() -> None:
    queries, other = linear_queries(), linear_queries(seed=5)
    ranker = KnnRanker(5).fit(queries)
    before = ranker.predict(queries)
    with pytest.raises(ParameterError, match="n_neighbors must be a whole number from 1, got 0"):
        ranker.set_params(n_neighbors=0).fit(other)
    np.testing.assert_array_equal(ranker.set_params(n_neighbors=5).predict(queries), before)


def test_score_without_query_ids_warns() -> None:
    queries = linear_queries()
    ranker = SingleRanker("rankrls").fit(queries)
    with pytest.warns(UserWarning, match="candidates of one query"):
        ranker.score(queries.X, queries.y)


def test_feature_names_come_from_data_frames() -> None:
    queries = linear_queries(n_features=2)
    frame = pd.DataFrame(queries.X, columns=["bm25", "price"])
    ranker = SingleRanker("rankrls").fit(frame, queries.y, group=queries.sizes)
    assert ranker.feature_names_ == ("bm25", "price")
    np.testing.assert_allclose(
        ranker.predict(frame, group=queries.sizes), ranker.predict(queries.replace(feature_names=("bm25", "price")))
    )


def test_loaded_ranker_checks_column_order(tmp_path: Path) -> None:
    queries = linear_queries(n_features=2)
    frame = pd.DataFrame(queries.X, columns=["bm25", "price"])
    SingleRanker("rankrls").fit(frame, queries.y, group=queries.sizes).save(tmp_path / "model")
    loaded = kinrank.load(tmp_path / "model")
    with pytest.raises(DataError, match="another order than in fit"):
        loaded.predict(frame[["price", "bm25"]], group=queries.sizes)


def test_rankers_and_queries_can_be_pickled() -> None:
    queries = linear_queries()
    twin = pickle.loads(pickle.dumps(SingleRanker("rankrls").fit(queries)))
    again = pickle.loads(pickle.dumps(queries))
    assert twin.predict(again).tolist() == SingleRanker("rankrls").fit(queries).predict(queries).tolist()


def test_query_set_with_separate_grades_raises() -> None:
    queries = linear_queries()
    with pytest.raises(DataError, match="X is a QuerySet"):
        SingleRanker().fit(queries, queries.y)


def test_unknown_learner_lists_the_known_ones() -> None:
    with pytest.raises(ParameterError, match="unknown learner 'svm': choose one of 'ranksvm', 'rankrls', 'lambdamart'"):
        SingleRanker("svm").fit(linear_queries())
