from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank import QuerySet
from kinrank.measure import NDCG, Measure
from kinrank.measure.base import mean_of
from kinrank.study.fusion import MEANS, NORMALIZED, RAW, RRF, Fusion, best_weights, grid_of, scores_by_own_weights
from tests.study.hybrid_searches import two_kinds

MEASURE = NDCG @ 10


def test_reciprocal_ranks_start_at_1_and_skip_documents_that_were_not_found() -> None:
    queries = QuerySet.from_arrays([[9.0, np.nan], [5.0, 0.5], [7.0, 0.8]], qid=[1, 1, 1])
    expected = [[1 / 61, 0.0], [1 / 63, 1 / 62], [1 / 62, 1 / 61]]
    np.testing.assert_allclose(RRF.values(queries), expected)


@pytest.mark.parametrize("fusion", [RRF, RAW, *NORMALIZED, *MEANS], ids=lambda each: each.name)
@given(seed=st.integers(0, 2**32 - 1))
def test_row_order_does_not_matter(fusion: Fusion, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 4, (12, 2)).astype(np.float32)  # with ties
    X[rng.random(X.shape) < 0.2] = np.nan
    order = rng.permutation(12)
    weights = np.array([0.3, 0.7])
    one, other = (
        fusion.combine(fusion.values(queries), weights)
        for queries in (QuerySet.from_arrays(X, group=[12]), QuerySet.from_arrays(X[order], group=[12]))
    )
    np.testing.assert_allclose(one[order], other, rtol=1e-6)


def test_means_leave_out_searches_that_did_not_find_the_document() -> None:
    values, weights = np.array([[0.25, 0.0], [0.25, 1.0], [0.0, 0.0]]), np.array([0.5, 0.5])
    np.testing.assert_allclose(Fusion("min_max").combine(values, weights), [0.125, 0.625, 0.0])
    np.testing.assert_allclose(Fusion("min_max", "geometric").combine(values, weights), [0.25, 0.5, 0.0])
    np.testing.assert_allclose(Fusion("min_max", "harmonic").combine(values, weights), [0.25, 0.4, 0.0])


@pytest.mark.parametrize("n", range(2, 7))
def test_grid_sums_to_1_and_has_every_search_alone(n: int) -> None:
    grid = grid_of(n)
    np.testing.assert_allclose(grid.sum(axis=1), 1.0)
    assert len(np.unique(grid, axis=0)) == len(grid)
    assert all(np.eye(n)[i].tolist() in grid.tolist() for i in range(n))


@pytest.mark.parametrize("fusion", [RRF, RAW, *NORMALIZED], ids=lambda each: each.name)
def test_best_weights_are_between_the_searches_alone_and_the_oracle(fusion: Fusion) -> None:
    queries = two_kinds(30)
    best = best_weights(fusion, queries, MEASURE)

    def quality(scores: np.ndarray) -> float:
        return mean_of(MEASURE.per_query(scores, queries.grades, queries.offsets, queries.doc_id))

    assert quality(best.predict(queries)) == pytest.approx(best.quality)
    assert best.quality >= max(quality(fusion.values(queries)[:, column]) for column in range(2))
    assert quality(scores_by_own_weights(fusion, queries, MEASURE)) >= best.quality


def test_twenty_searches_take_hundreds_of_trials_and_reach_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relevant documents are those of the third and the fourth search; the others return noise."""
    rng = np.random.default_rng(0)
    X = rng.random((40, 12, 20))
    y = np.argsort(np.argsort(X[:, :, 2] + X[:, :, 3], axis=1), axis=1) >= 9
    queries = QuerySet.from_arrays(X.reshape(-1, 20), y.ravel(), group=[12] * 40)
    with monkeypatch.context() as patch:
        counted = Mock(side_effect=MEASURE.per_query)
        patch.setattr(Measure, "per_query", counted)
        best = best_weights(Fusion("min_max"), queries, MEASURE)
    assert counted.call_count < 400  # a grid of 4 steps has 8,855
    few = queries.replace(X=queries.X[:, 2:6], feature_names=("c", "d", "e", "f"))
    assert best.quality >= best_weights(Fusion("min_max"), few, MEASURE).quality
    assert best.weights.sum() == pytest.approx(1.0)
    assert set(np.argsort(best.weights)[-2:]) == {2, 3}
    own = scores_by_own_weights(Fusion("min_max"), queries, MEASURE)
    assert mean_of(MEASURE.per_query(own, queries.grades, queries.offsets)) >= best.quality


@pytest.mark.parametrize("n_scores", [2, 9])
def test_rows_of_weight_0_do_not_choose(n_scores: int) -> None:
    """The first search is right about the rows that count, the second about the others."""
    rng = np.random.default_rng(0)
    counts = np.tile(np.arange(12) % 2 == 0, 30)
    X = rng.random((len(counts), n_scores)).astype(np.float32)
    y = np.where(counts, X[:, 0] > 0.5, X[:, 1] > 0.1)
    queries = QuerySet.from_arrays(X, y, group=[12] * 30, sample_weight=counts)
    best = best_weights(RAW, queries, MEASURE)
    assert best.weights.argmax() == 0
    assert best.quality == pytest.approx(best_weights(RAW, queries.only_weighted(), MEASURE).quality, abs=0.01)
