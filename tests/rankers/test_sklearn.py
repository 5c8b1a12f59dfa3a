"""Rankers with scikit-learn's tools: estimator checks, clone, grid search, metadata routing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from kinrank import KinRanker, SingleRanker
from kinrank.checks import linear_queries
from kinrank.datasets import make_two_camps
from kinrank.errors import DataError, MissingExtraError
from kinrank.learn.rankrls import RankRLS
from kinrank.rankers import RANKERS, Ranker
from kinrank.study.peers import LightGBMPeer

# Every other check must pass. An exception that is no longer needed is a failure, too.
PREDICTS_WHOLE_QUERIES = "the score of a candidate depends on the other candidates of its query"
WEIGHS_JUDGMENTS = "weights count judgments: features are scaled, and queries described, without them"
UNLIKE_REPEATED = {"check_sample_weight_equivalence_on_dense_data": WEIGHS_JUDGMENTS}
WHOLE_QUERIES = {**UNLIKE_REPEATED, "check_methods_subset_invariance": PREDICTS_WHOLE_QUERIES}
EXPECTED_FAILURES: dict[str, dict[str, str]] = {
    **dict.fromkeys(("single", "cluster", "knn", "cells", "query-class"), UNLIKE_REPEATED),
    "kin": WHOLE_QUERIES,
    "ensemble": {"check_methods_subset_invariance": PREDICTS_WHOLE_QUERIES},
}


def expected_failures(ranker: Ranker) -> dict[str, str]:
    return EXPECTED_FAILURES.get(RANKERS.name_of(type(ranker)), {})


@pytest.mark.filterwarnings("ignore:no qid= and no group=:UserWarning")
@parametrize_with_checks(
    [*(RANKERS[name]() for name in RANKERS), SingleRanker("rankrls")],
    expected_failed_checks=expected_failures,
)
def test_estimator_checks(estimator: Ranker, check: Any) -> None:
    try:
        check(estimator)
    except AssertionError as error:  # some checks wrap what the ranker raised
        if isinstance(error.__context__, MissingExtraError):
            raise error.__context__ from None
        raise


@pytest.fixture
def metadata_routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("metadata_routing")
def test_grid_search_does_not_split_queries() -> None:
    queries = linear_queries(30)
    ids = queries.qid[queries.query_of_row]
    ranker = SingleRanker(RankRLS()).set_fit_request(qid=True).set_score_request(qid=True)
    search = GridSearchCV(ranker, {"learner__penalty": [1e-2, 1e6]}, cv=GroupKFold(3))
    search.fit(queries.X, queries.y, qid=ids, groups=ids)
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert np.all(search.cv_results_["mean_test_score"] > 0.85)
    assert len(search.predict(queries.X[:10])) == 10


@pytest.mark.usefixtures("metadata_routing")
def test_cross_validation_scores_are_ndcg() -> None:
    queries = linear_queries(30)
    ids = queries.qid[queries.query_of_row]
    ranker = SingleRanker("rankrls").set_fit_request(qid=True).set_score_request(qid=True)
    scores = cross_val_score(ranker, queries.X, queries.y, cv=GroupKFold(3), params={"qid": ids, "groups": ids})
    assert scores.shape == (3,)
    assert np.all(scores > 0.9)


def test_importances_name_the_feature_that_decides() -> None:
    queries = linear_queries(60)
    copies = queries.replace(
        X=np.column_stack([np.ones(queries.n_rows), queries.grades]), feature_names=("none", "all")
    )
    trees = [SingleRanker("lambdamart").fit(copies), LightGBMPeer(10, shapes=None, validation=0).fit(copies)]
    for ranker in trees:
        np.testing.assert_allclose(ranker.feature_importances_, [0, 1])
    kin = KinRanker(n_jobs=1, trees="lambdamart(n_trees=5)", settings={"n_members": 2, "n_repeats": 1}).fit(copies)
    constant, decisive = kin.feature_importances_
    assert constant < 0.01 < decisive <= 1  # the standing of a constant tells the number of candidates
    assert clone(kin).n_jobs == 1
    with pytest.raises(AttributeError, match="RankRLS has no trees"):
        _ = SingleRanker("rankrls").fit(copies).feature_importances_


def test_grades_by_name_are_refused() -> None:
    queries = linear_queries(5)
    with pytest.raises(DataError, match=r"y\[0\] is 'good', but grades are numbers"):
        SingleRanker().fit(queries.X, ["good"] * queries.n_rows, qid=queries.qid[queries.query_of_row])
    as_text = queries.grades.astype(str).tolist()  # as a CSV file gives them
    SingleRanker().fit(queries.X, as_text, qid=queries.qid[queries.query_of_row])


def test_clone_is_unfitted() -> None:
    ranker = SingleRanker(RankRLS(penalty=0.5)).fit(linear_queries())
    copy = clone(ranker)
    assert copy.learner.penalty == 0.5
    with pytest.raises(NotFittedError, match="not fitted yet"):
        copy.predict(linear_queries())


def test_fit_without_query_ids_warns() -> None:
    queries = linear_queries(1)
    with pytest.warns(UserWarning, match="candidates of one query"):
        SingleRanker("rankrls").fit(queries.X, queries.y)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((3, 5)), r"X has 5 features, but SingleRanker is expecting 2 .* Pass the features of fit"),
        (np.zeros((0, 2)), r"0 sample\(s\) .* Pass the candidates of at least one query"),
    ],
)
def test_errors_of_scikit_learn_say_what_to_do(rows: np.ndarray, message: str):
    ranker = SingleRanker().fit(make_two_camps(10))
    with pytest.raises(DataError, match=message):
        ranker.predict(rows, group=[len(rows)])
