from __future__ import annotations

import numpy as np
import pytest

from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.measure import AP, NDCG, RR, P, evaluate
from kinrank.measure import base as module


@pytest.fixture
def queries() -> QuerySet:
    rng = np.random.default_rng(5)
    return QuerySet.from_arrays(
        rng.integers(0, 3, (60, 1)),
        y=rng.integers(0, 3, 60),
        qid=[f"q{i // 6}" for i in range(60)],
        doc_id=[f"d{i}" for i in rng.permutation(60)],
    )


def test_evaluate_equals_each_measure_alone(queries: QuerySet) -> None:
    measures = [NDCG @ 3, AP, RR(ties="doc_id"), P(ties="average") @ 2, NDCG(no_relevant="skip", ties="pessimistic")]
    evaluation = evaluate(queries, queries.X[:, 0], measures)
    for measure in measures:
        alone = measure.per_query(queries.X[:, 0], queries.y, queries.offsets, queries.doc_id)
        np.testing.assert_array_equal(evaluation.per_query[measure], alone)
        assert evaluation[measure] == evaluation.means[measure] == pytest.approx(np.nanmean(alone))
    assert list(evaluation.means) == measures
    assert evaluation.qid.tolist() == queries.qid.tolist()


def test_rows_of_weight_0_are_left_out(queries: QuerySet) -> None:
    weighted = queries.replace(sample_weight=(np.arange(60) % 3 / 2).astype(np.float32))
    known = weighted.only_weighted()
    assert known.n_rows == 40
    values = evaluate(weighted, weighted.X[:, 0], [NDCG @ 3]).per_query[NDCG @ 3]
    np.testing.assert_array_equal(values, evaluate(known, known.X[:, 0], [NDCG @ 3]).per_query[NDCG @ 3])


def test_evaluate_sorts_once_per_rule_for_ties(queries: QuerySet, monkeypatch: pytest.MonkeyPatch) -> None:
    sorts: list[str] = []
    rank = module.rank
    monkeypatch.setattr(module, "rank", lambda *args: sorts.append(args[3]) or rank(*args))
    evaluate(queries, queries.X[:, 0], [NDCG @ 3, AP, P @ 5, NDCG(ties="average")])
    assert sorts == ["order", "average"]


def test_nan_score_raises_with_query_and_row(queries: QuerySet) -> None:
    scores = queries.X[:, 0].copy()
    scores[13] = np.nan
    with pytest.raises(DataError, match="scores of query 'q2', row 13 is nan"):
        evaluate(queries, scores, [NDCG])


def test_unjudged_queries_raise(queries: QuerySet) -> None:
    with pytest.raises(DataError, match="not judged"):
        evaluate(queries.replace(y=None), queries.X[:, 0], [NDCG])
