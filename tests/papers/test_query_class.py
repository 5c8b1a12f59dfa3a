from __future__ import annotations

import numpy as np
import pytest

from kinrank import QueryClassRanker, QuerySet, SingleRanker
from kinrank.checks import linear_queries
from kinrank.datasets import make_two_camps
from kinrank.errors import DataError, ParameterError


def labelled_camps() -> QuerySet:
    camps = make_two_camps(n_queries=60, seed=0)
    labels = np.array([["up", "down"][int(camp)] for camp in _camp(camps)])
    return camps.replace(query_columns={"wants": labels})


def _camp(camps: QuerySet) -> np.ndarray:
    """Return for each query whether the grades decrease with feature 0."""
    return np.array([np.corrcoef(query.X[:, 0], query.grades)[0, 1] < 0 for query in camps])


@pytest.mark.parametrize("settings", [{"n_types": 2}, {"types": "wants"}, {"types": "wants", "given": True}])
def test_two_types_rank_two_camps_perfectly(settings: dict[str, object]) -> None:
    camps = labelled_camps()
    assert QueryClassRanker(**settings).fit(camps[:40]).score(camps[40:]) == pytest.approx(1.0)


def test_one_type_equals_single() -> None:
    queries = linear_queries()
    single = SingleRanker("rankrls").fit(queries)
    np.testing.assert_allclose(
        QueryClassRanker(n_types=1).fit(queries).predict(queries), single.predict(queries), atol=1e-6
    )
    named = queries.replace(query_columns={"type": np.full(len(queries), "all")})
    np.testing.assert_allclose(QueryClassRanker("type").fit(named).predict(named), single.predict(queries), atol=1e-6)


def test_classify_predicts_the_type() -> None:
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


def test_classifying_unknown_type_raises() -> None:
    camps = labelled_camps()
    strange = camps.replace(query_columns={"wants": np.full(len(camps), "sideways")})
    with pytest.raises(DataError, match="unknown query type 'sideways': the training queries have"):
        QueryClassRanker("wants", given=True).fit(camps).classify(strange)


def test_missing_type_column_raises() -> None:
    with pytest.raises(DataError, match=r"no query column 'intent': there are \['wants'\]"):
        QueryClassRanker("intent").fit(labelled_camps())
    with pytest.raises(ParameterError, match="given=True needs types="):
        QueryClassRanker(given=True).fit(linear_queries())
