from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kinrank.errors import DataError, ParameterError
from kinrank.measure import compare_paired, holm

TESTS = ["t", "wilcoxon", "permutation"]
RNG = np.random.default_rng(11)
A, B = RNG.random(80) + 0.05, RNG.random(80)


def test_paired_t_equals_scipy() -> None:
    result, expected = compare_paired(A, B), stats.ttest_rel(A, B)
    assert result.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert result.interval == pytest.approx(tuple(expected.confidence_interval(0.95)), rel=1e-9)
    assert result.mean_difference == pytest.approx((A - B).mean())
    assert (result.n, result.wins + result.ties + result.losses) == (80, 80)
    assert result.wins == np.sum(A > B)


def test_wilcoxon_equals_scipy() -> None:
    assert compare_paired(A, B, "wilcoxon").p == pytest.approx(stats.wilcoxon(A, B).pvalue, rel=1e-12)


def test_permutation_of_few_queries_counts_every_flip() -> None:
    a = np.array([0.4, 0.1, 0.3, 0.25, 0.0])
    flips = np.array(np.meshgrid(*[[-1, 1]] * 5)).reshape(5, -1).T
    expected = np.mean(np.abs(flips @ a) >= np.abs(a.sum()) - 1e-12)
    assert compare_paired(a, np.zeros(5), "permutation").p == pytest.approx(expected)


@pytest.mark.parametrize(("queries", "tolerance"), [(12, 0.0), (80, 0.01)])
def test_permutation_equals_scipy(queries: int, tolerance: float) -> None:
    difference = (A - B)[:queries] - 0.1
    expected = stats.permutation_test(
        (difference,), np.mean, permutation_type="samples", vectorized=True, n_resamples=9999, rng=RNG
    )
    result = compare_paired(np.append(difference, 0.0), np.zeros(queries + 1), "permutation")
    assert result.p == pytest.approx(expected.pvalue, rel=1e-9, abs=tolerance)


def test_permutation_and_bootstrap_agree_with_t_and_are_deterministic() -> None:
    t = compare_paired(A, B)
    resampled = compare_paired(A, B, "permutation", interval="bootstrap", seed=3)
    assert resampled.p == pytest.approx(t.p, abs=0.02)
    assert resampled.interval == pytest.approx(t.interval, abs=0.01)
    assert resampled == compare_paired(A, B, "permutation", interval="bootstrap", seed=3)


@pytest.mark.parametrize("interval", ["t", "bootstrap"])
@pytest.mark.parametrize("test", TESTS)
def test_equal_rankings_have_p_1(test: str, interval: str) -> None:
    result = compare_paired(A, A, test, interval=interval)
    assert (result.p, result.mean_difference, result.interval) == (1.0, 0.0, (0.0, 0.0))
    assert (result.wins, result.ties, result.losses) == (0, 80, 0)


@pytest.mark.parametrize("interval", ["t", "bootstrap"])
@pytest.mark.parametrize("test", TESTS)
def test_equal_gain_on_every_query_is_significant(test: str, interval: str) -> None:
    result = compare_paired(np.full(20, 0.5), np.full(20, 0.25), test, interval=interval)
    assert result.p < 0.001
    assert result.interval == (0.25, 0.25)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.sampled_from([0.0, 0.1, 0.1 + 1e-16, 0.5, 1.0]), min_size=2, max_size=30),
    st.sampled_from(TESTS),
    st.data(),
)
def test_results_are_finite_and_symmetric(a: list[float], test: str, data) -> None:
    b = data.draw(st.permutations(a))
    one = compare_paired(a, b, test, n_resamples=199)
    other = compare_paired(b, a, test, n_resamples=199)
    assert 0 <= one.p <= 1
    assert np.all(np.isfinite(one.interval))
    assert other.mean_difference == -one.mean_difference
    assert (other.wins, other.losses) == (one.losses, one.wins)
    if test != "permutation":
        assert other.p == pytest.approx(one.p, rel=1e-9)


def test_queries_that_are_nan_in_both_are_excluded() -> None:
    a, b = A.copy(), B.copy()
    a[[3, 9]] = b[[3, 9]] = np.nan
    keep = ~np.isnan(a)
    assert compare_paired(a, b) == compare_paired(A[keep], B[keep])
    b[3] = 0.5
    with pytest.raises(DataError, match=r"query 3 is nan in a and 0.5 in b: compute both with the same measure"):
        compare_paired(a, b)


def test_invalid_comparison_raises() -> None:
    with pytest.raises(DataError, match=r"one value per query, got shapes \(2,\) and \(1,\)"):
        compare_paired([1.0, 2.0], [1.0])
    with pytest.raises(DataError, match="at least 2 queries, got 1"):
        compare_paired([1.0, np.nan], [0.0, np.nan])
    with pytest.raises(ParameterError, match="test must be one of 't', 'wilcoxon', 'permutation', got 'sign'"):
        compare_paired(A, B, "sign")
    with pytest.raises(ParameterError, match="interval must be one of"):
        compare_paired(A, B, interval="normal")
    with pytest.raises(ParameterError, match="confidence must be between 0 and 1, got 95"):
        compare_paired(A, B, confidence=95)
    with pytest.raises(ParameterError, match="n_resamples must be at least 1"):
        compare_paired(A, B, n_resamples=0)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_equals_its_definition(p: list[float]) -> None:
    adjusted = holm(p)
    ranked = sorted(p)
    for value, corrected in zip(p, adjusted, strict=True):
        steps = [(len(p) - j) * q for j, q in enumerate(ranked) if q <= value]
        assert corrected == pytest.approx(min(1, max(steps)))


def test_holm_with_invalid_p_value_raises() -> None:
    with pytest.raises(ParameterError, match="p_values must be one-dimensional and from 0 to 1"):
        holm([0.1, np.nan])
