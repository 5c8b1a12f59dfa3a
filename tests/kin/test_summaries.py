"""Summary kernels against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kinrank.data.query_rows import offsets_of
from kinrank.kin.blocks import predictors, quantiles, statistics, top_rows

values = st.one_of(st.floats(-100, 100, width=32), st.just(np.nan), st.just(np.inf))


@st.composite
def ragged(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    X = draw(arrays(np.float32, (sum(sizes), 3), elements=values))
    return X, offsets_of(sizes)


def slow_top(X: np.ndarray, reference: int, depth: int) -> np.ndarray:
    if reference < 0:
        return X[:depth]
    scores = np.where(np.isfinite(X[:, reference]), X[:, reference], -np.inf)
    return X[np.argsort(-scores, kind="stable")[:depth]]


def finite_columns(top: np.ndarray) -> list[np.ndarray]:
    return [column[np.isfinite(column)].astype(np.float64) for column in top.T]


@given(data=ragged(), reference=st.integers(-1, 2), depth=st.integers(1, 8))
@settings(deadline=None)
def test_statistics_match_numpy(data: tuple[np.ndarray, np.ndarray], reference: int, depth: int) -> None:
    X, offsets = data
    result = statistics(X, offsets, reference, depth)
    for q, got in enumerate(result):
        for j, known in enumerate(finite_columns(slow_top(X[offsets[q] : offsets[q + 1]], reference, depth))):
            if len(known):
                expected = [known.mean(), known.std(), known.max(), known.min()]
                np.testing.assert_allclose(got[:, j], expected, rtol=1e-9, atol=1e-9)
            else:
                assert np.isnan(got[:, j]).all()


@given(data=ragged(), depth=st.integers(1, 8), share=st.sampled_from([0.0, 0.25, 0.5, 0.9]))
@settings(deadline=None)
def test_quantiles_match_numpy(data: tuple[np.ndarray, np.ndarray], depth: int, share: float) -> None:
    X, offsets = data
    result = quantiles(X, offsets, 0, depth, share)
    for q, got in enumerate(result):
        for j, known in enumerate(finite_columns(slow_top(X[offsets[q] : offsets[q + 1]], 0, depth))):
            if len(known):
                np.testing.assert_allclose(got[j], np.quantile(known, share), rtol=1e-9, atol=1e-9)
            else:
                assert np.isnan(got[j])


def test_ties_in_the_reference_keep_the_given_order() -> None:
    X = np.array([[1.0], [2.0], [1.0], [np.nan], [2.0]], dtype=np.float32)
    assert top_rows(X, 0, 5, 0, 4).tolist() == [1, 4, 0, 2]
    assert top_rows(X, 1, 5, -1, 2).tolist() == [1, 2]


def test_predictors_of_a_small_example() -> None:
    scores = [6.0, 3.0, 3.0, 0.0, 0.0, 0.0]
    X = np.array([[score] for score in scores], dtype=np.float32)
    nqc, wig, gap = predictors(X, np.array([0, 6]), 0, 3)[0]
    deviation = np.std(scores)
    assert nqc == pytest.approx(np.std([6, 3, 3]) / 2)
    assert wig == pytest.approx((np.mean(scores[:5]) - 2) / deviation)
    assert gap == pytest.approx(3 / deviation)


def test_predictors_do_not_depend_on_the_scale_of_scores() -> None:
    X = np.random.default_rng(0).gamma(2.0, size=(40, 1)).astype(np.float32)
    offsets = np.array([0, 15, 40])
    np.testing.assert_allclose(predictors(X, offsets, 0, 10), predictors(X * 8, offsets, 0, 10), rtol=1e-6)


def test_predictors_of_constant_or_single_scores_are_nan() -> None:
    X = np.array([[1.0], [2.0], [2.0], [np.nan], [5.0]], dtype=np.float32)
    result = predictors(X, np.array([0, 1, 3, 5]), 0, 50)
    assert np.isnan(result[0]).all()
    assert result[1, 0] == 0.0
    assert np.isnan(result[1, 1:]).all()
    assert np.isnan(result[2]).all()
