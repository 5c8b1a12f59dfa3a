from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank import QuerySet
from kinrank.measure import NDCG
from kinrank.measure.base import mean_of
from kinrank.study.fusion import MEANS, NORMALIZED, RAW, RRF, Fusion, best_weights, grid_of, oracle_scores
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
    grid = grid_of(RRF, np.zeros((1, n)))
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
    assert quality(oracle_scores(fusion, queries, MEASURE)) >= best.quality
