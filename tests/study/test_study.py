from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kinrank.data.queryset import QuerySet
from kinrank.datasets import make_two_camps
from kinrank.errors import DataError, LeakError, ParameterError
from kinrank.study.experiment import run_experiment
from kinrank.study.headroom import headroom
from kinrank.study.study import Study


def weighted(n_queries: int = 60) -> QuerySet:
    """Return queries with rows of weight 0, and others whose weights differ."""
    camps = make_two_camps(n_queries=n_queries, seed=0)
    weights = np.random.default_rng(0).random(camps.n_rows).astype(np.float32)
    weights[::7] = 0.0
    return camps.replace(X=np.abs(camps.X), sample_weight=weights, query_columns={"topic": np.arange(n_queries) // 2})


STUDIES: dict[str, Callable[[QuerySet, QuerySet], int]] = {
    "headroom": lambda train, test: len(headroom(train, test, trees=False, leaks="drop").comparison.queries),
    "compare": lambda train, test: len(run_experiment(["single"], test, train=train, leaks="drop").comparison.queries),
}


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_drops_seen_queries_of_weighted_data(name: str):
    queries = weighted()
    assert STUDIES[name](queries[:40], queries[38:]) == 20


def test_weights_of_the_queries_that_are_left_stay_theirs():
    queries = weighted()
    study = Study.split(queries[:40], queries[38:], leaks="drop")
    np.testing.assert_array_equal(study.queries.sample_weight, queries[40:].sample_weight)
    np.testing.assert_array_equal(study.folds[0].train.sample_weight, queries[:40].sample_weight)


def test_folds_are_pooled_in_the_original_order_with_their_groups():
    queries = weighted()
    study = Study.split(queries, folds=3, group="topic")
    np.testing.assert_array_equal(study.queries.qid, queries.qid)
    np.testing.assert_array_equal(study.groups, queries.query_columns["topic"])
    comparison = study.compare([study.enter(name) for name in ("single", "knn(n_neighbors=5)")])
    assert {difference.paired.n_groups for difference in comparison.differences} == {30}


def test_nothing_is_measured_on_queries_that_were_seen():
    queries = weighted()
    with pytest.raises(LeakError, match="2 of 22 test queries were seen in training"):
        Study.split(queries[:40], queries[38:])
    with pytest.raises(DataError, match="must be judged and have the training features"):
        Study.split(queries[:40], queries[40:].replace(y=None))
    with pytest.raises(ParameterError, match="'single' must be fitted"):
        Study.of_test(queries).enter("single")
