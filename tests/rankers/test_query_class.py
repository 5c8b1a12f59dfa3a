"""QueryClassRanker: types given, types found, types wrong."""

from __future__ import annotations

import numpy as np
import pytest

from kinrank import QueryClassRanker, QuerySet, SingleRanker
from kinrank.checks.samples import linear_queries
from kinrank.datasets import make_two_camps
from kinrank.errors import DataError, ParameterError


def labelled_camps() -> QuerySet:
    camps = make_two_camps(n_queries=60, seed=0)
    labels = np.array([["up", "down"][int(camp)] for camp in _camp(camps)])
    return camps.replace(query_columns={"wants": labels})


def _camp(camps: QuerySet) -> np.ndarray:
    """Which way the grades of each query run along feature 0."""
    return np.array([np.corrcoef(query.X[:, 0], query.grades)[0, 1] < 0 for query in camps])


@pytest.mark.parametrize("settings", [{"n_types": 2}, {"types": "wants"}, {"types": "wants", "given": True}])
def test_two_types_solve_the_two_camps(settings: dict[str, object]) -> None:
    camps = labelled_camps()
    assert QueryClassRanker(**settings).fit(camps[:40]).score(camps[40:]) == pytest.approx(1.0)


def test_one_type_equals_single() -> None:
    world = linear_queries()
    single = SingleRanker("rankrls").fit(world)
    np.testing.assert_allclose(QueryClassRanker(n_types=1).fit(world).predict(world), single.predict(world), atol=1e-6)
    named = world.replace(query_columns={"type": np.full(len(world), "all")})
    np.testing.assert_allclose(QueryClassRanker("type").fit(named).predict(named), single.predict(world), atol=1e-6)


def test_classifier_tells_the_type() -> None:
    camps = labelled_camps()
    ranker = QueryClassRanker("wants").fit(camps[:40])
    assert ranker.classify(camps[40:]).tolist() == camps[40:].query_columns["wants"].tolist()


def test_unknown_type_is_ranked_globally() -> None:
    camps = labelled_camps()
    ranker = QueryClassRanker("wants", given=True).fit(camps)
    strange = camps.replace(query_columns={"wants": np.full(len(camps), "sideways")})
    np.testing.assert_allclose(
        ranker.predict(strange), SingleRanker("rankrls").fit(camps).predict(camps.replace(query_columns={})), atol=1e-9
    )


def test_unknown_type_cannot_be_classified() -> None:
    camps = labelled_camps()
    strange = camps.replace(query_columns={"wants": np.full(len(camps), "sideways")})
    with pytest.raises(DataError, match="unknown query type 'sideways': the training queries have"):
        QueryClassRanker("wants", given=True).fit(camps).classify(strange)


def test_missing_column_is_named() -> None:
    with pytest.raises(DataError, match=r"no column 'intent', only \['wants'\]"):
        QueryClassRanker("intent").fit(labelled_camps())
    with pytest.raises(ParameterError, match="given=True needs types="):
        QueryClassRanker(given=True).fit(linear_queries())
