"""SingleRanker among scikit-learn's tools: its estimator checks, clone, grid search, metadata routing."""

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

from kinrank import SingleRanker
from kinrank.checks.worlds import plain_world
from kinrank.learn.rankrls import RankRLS

EXPECTED_FAILURES: dict[str, str] = {}


@pytest.mark.filterwarnings("ignore:no qid= and no group=:UserWarning")
@parametrize_with_checks(
    [SingleRanker("ranksvm"), SingleRanker("rankrls")], expected_failed_checks=lambda _: EXPECTED_FAILURES
)
def test_estimator_checks(estimator: SingleRanker, check: Any) -> None:
    check(estimator)


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_grid_search_keeps_queries_whole() -> None:
    world = plain_world(30)
    ids = world.qid[world.query_of_row]
    ranker = SingleRanker(RankRLS()).set_fit_request(qid=True).set_score_request(qid=True)
    search = GridSearchCV(ranker, {"learner__penalty": [1e-2, 1e6]}, cv=GroupKFold(3))
    search.fit(world.X, world.y, qid=ids, groups=ids)
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert np.all(search.cv_results_["mean_test_score"] > 0.85)
    assert len(search.predict(world.X[:10])) == 10


@pytest.mark.usefixtures("routing")
def test_cross_validation_scores_are_ndcg() -> None:
    world = plain_world(30)
    ids = world.qid[world.query_of_row]
    ranker = SingleRanker("rankrls").set_fit_request(qid=True).set_score_request(qid=True)
    scores = cross_val_score(ranker, world.X, world.y, cv=GroupKFold(3), params={"qid": ids, "groups": ids})
    assert scores.shape == (3,)
    assert np.all(scores > 0.9)


def test_clone_forgets_the_fit() -> None:
    ranker = SingleRanker(RankRLS(penalty=0.5)).fit(plain_world())
    twin = clone(ranker)
    assert twin.learner.penalty == 0.5
    with pytest.raises(NotFittedError, match="not fitted yet"):
        twin.predict(plain_world())


def test_fit_without_queries_says_what_it_does() -> None:
    world = plain_world(1)
    with pytest.warns(UserWarning, match="candidates of one query"):
        SingleRanker("rankrls").fit(world.X, world.y)
