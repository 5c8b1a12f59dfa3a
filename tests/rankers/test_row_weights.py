from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kinrank import KinRanker, KnnRanker, QuerySet, SingleRanker, load
from kinrank.checks import linear_queries
from kinrank.datasets import make_two_camps
from kinrank.errors import DataError
from kinrank.rankers import RANKERS, Ranker


def flipped() -> tuple[QuerySet, np.ndarray]:
    """Return queries in which two thirds of the rows have the wrong order, and weights that ignore these."""
    right = linear_queries(60)
    wrong = [right.replace(y=2.0 - right.grades)] * 2
    qid = np.tile(right.query_of_row, 3)
    rows = QuerySet.from_arrays(
        np.concatenate([right.X] * 3), np.concatenate([part.grades for part in (right, *wrong)]), qid=qid
    )
    weight = np.repeat([1.0, 0.0, 0.0], right.n_rows)
    assert rows.row_order is not None
    return rows, weight[rows.row_order].astype(np.float32)


LINEAR = ["single", "knn", "cells", "query-class", "cluster", "ensemble"]


@pytest.mark.parametrize("name", LINEAR)
def test_rows_of_weight_0_do_not_count(name: str):
    rows, weight = flipped()
    test = linear_queries(30, seed=1)
    ranker: Ranker = RANKERS[name]()
    assert ranker.fit(rows.replace(sample_weight=weight)).score(test) > 0.9
    assert ranker.fit(rows).score(test) < 0.9


@pytest.mark.parametrize("learner", ["rankrls", "ranksvm"])
def test_weights_are_saved_with_the_training_rows(learner: str, tmp_path: Path):
    queries = make_two_camps(40)
    weighted = queries.replace(sample_weight=np.random.default_rng(0).random(queries.n_rows).astype(np.float32))
    ranker = KnnRanker(n_neighbors=5, learner=learner).fit(weighted)
    ranker.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(queries), ranker.predict(queries))
    assert not np.array_equal(
        KnnRanker(n_neighbors=5, learner=learner).fit(queries).predict(queries), ranker.predict(queries)
    )


def test_weights_in_any_row_order():
    queries = linear_queries(20)
    weight = np.random.default_rng(0).random(queries.n_rows).astype(np.float32)
    expected = SingleRanker("rankrls").fit(queries.replace(sample_weight=weight)).predict(queries)
    order = np.random.default_rng(1).permutation(queries.n_rows)
    shuffled = SingleRanker("rankrls").fit(
        queries.X[order], queries.grades[order], qid=queries.query_of_row[order], sample_weight=weight[order]
    )
    np.testing.assert_allclose(shuffled.predict(queries.X, qid=queries.query_of_row), expected, rtol=1e-4)
    with pytest.raises(DataError, match="which has its own y, qid, doc_id and sample_weight"):
        SingleRanker("rankrls").fit(queries, sample_weight=weight)


def test_rows_of_weight_0_do_not_count_in_what_kin_chooses():
    queries = linear_queries(80)
    known = np.random.default_rng(0).random(queries.n_rows) < 0.5
    grades = np.where(known, queries.grades, 0.0).astype(np.float32)
    ranker = KinRanker(settings={"n_repeats": 1}).fit(queries.replace(y=grades, sample_weight=known.astype(np.float32)))
    test = linear_queries(30, seed=1)
    assert ranker.record_["global"] > 0.9  # .7 if rows that are not known counted as not relevant
    assert ranker.score(test) > 0.9
    assert ranker.score(test) == ranker.score(test.replace(sample_weight=np.ones(test.n_rows, dtype=np.float32)))
