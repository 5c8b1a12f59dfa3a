from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
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


def test_permutation_agrees_with_t_and_is_deterministic() -> None:
    t = compare_paired(A, B)
    permuted = compare_paired(A, B, "permutation", seed=3)
    assert permuted.p == pytest.approx(t.p, abs=0.02)
    assert permuted.interval == t.interval
    assert permuted == compare_paired(A, B, "permutation", seed=3)


@pytest.mark.parametrize("test", TESTS)
def test_equal_rankings_have_p_1(test: str) -> None:
    result = compare_paired(A, A, test)
    assert (result.p, result.mean_difference, result.interval) == (1.0, 0.0, (0.0, 0.0))
    assert (result.wins, result.ties, result.losses) == (0, 80, 0)


@pytest.mark.parametrize("test", TESTS)
def test_equal_gain_on_every_query_is_significant(test: str) -> None:
    result = compare_paired(np.full(20, 0.5), np.full(20, 0.25), test)
    assert result.p < 0.001
    assert result.interval == (0.25, 0.25)


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


def clustered(
    rng: np.random.Generator, n_groups: int, gain: float = 0.0, spread: float = 0.8
) -> tuple[np.ndarray, np.ndarray]:
    """Return differences of queries whose groups have a common part, and the group of each query; sizes differ."""
    group = np.repeat(np.arange(n_groups), 1 + rng.poisson(rng.lognormal(1.5, spread, n_groups)))
    return gain + 0.6 * rng.standard_normal(n_groups)[group] + rng.standard_normal(len(group)), group


def test_groups_of_one_query_give_the_plain_t_test() -> None:
    plain, grouped = compare_paired(A, B), compare_paired(A, B, groups=RNG.permutation(80))
    assert grouped.p == pytest.approx(plain.p, rel=1e-9)
    assert grouped.interval == pytest.approx(plain.interval, rel=1e-9)
    assert (plain.n_groups, grouped.n_groups) == (None, 80)


def test_cluster_error_is_that_of_the_jackknife_over_groups() -> None:
    difference, group = clustered(np.random.default_rng(0), 30)
    without = np.array([difference[group != each].mean() for each in range(30)])
    error = np.sqrt(29 / 30 * np.sum((without - difference.mean()) ** 2))
    result = compare_paired(difference, np.zeros(len(difference)), groups=group)
    assert result.p == pytest.approx(2 * stats.t.sf(abs(difference.mean()) / error, 29), rel=1e-9)
    half = stats.t.ppf(0.975, 29) * error
    assert result.interval == pytest.approx((difference.mean() - half, difference.mean() + half), rel=1e-9)


def test_level_by_group_is_five_percent_and_by_query_far_higher() -> None:
    rng, runs = np.random.default_rng(1), 500
    p = np.empty((runs, 3))
    for run in range(runs):
        difference, group = clustered(rng, 200)
        b = np.zeros(len(difference))
        p[run] = (
            compare_paired(difference, b, groups=group).p,
            compare_paired(difference, b, "permutation", groups=group, n_resamples=199).p,
            compare_paired(difference, b).p,
        )
    by_group, flips, by_query = np.mean(p < 0.05, axis=0)
    within = 3 * np.sqrt(0.05 * 0.95 / runs)
    assert by_group == pytest.approx(0.05, abs=within)
    assert flips == pytest.approx(0.05, abs=within)
    assert by_query > 0.25


def test_flips_of_groups_agree_with_the_cluster_robust_t() -> None:
    rng = np.random.default_rng(2)
    for gain in (0.0, 0.05, 0.3):
        difference, group = clustered(rng, 200, gain)
        b = np.zeros(len(difference))
        t = compare_paired(difference, b, groups=group)
        by_query = compare_paired(difference, b).interval
        assert by_query[1] - by_query[0] < 0.75 * (t.interval[1] - t.interval[0])
        flips = compare_paired(difference, b, "permutation", groups=group)
        assert flips.p == pytest.approx(t.p, abs=0.02)


def test_groups_cover_the_true_gain() -> None:
    rng, runs = np.random.default_rng(3), 400
    covered = 0
    for _ in range(runs):
        difference, group = clustered(rng, 100, 0.2, 0.3)
        low, high = compare_paired(difference, np.zeros(len(difference)), groups=group).interval
        covered += low <= 0.2 <= high
    assert covered / runs == pytest.approx(0.95, abs=3 * np.sqrt(0.05 * 0.95 / runs))


@pytest.mark.parametrize("test", ["t", "permutation"])
def test_equal_gains_and_equal_rankings_by_group(test: str) -> None:
    group = np.repeat(np.arange(20), 4)
    equal = compare_paired(A, A, test, groups=group)
    assert (equal.p, equal.interval) == (1.0, (0.0, 0.0))
    gain = compare_paired(np.full(80, 0.5), np.full(80, 0.25), test, groups=group)
    assert gain.p < 0.001
    # Gains of the queries differ, but the means of all groups are the same: 0, and then 0.1.
    swings = np.tile([0.2, -0.2], 40)
    assert compare_paired(swings, np.zeros(80), test, groups=group).p == 1.0
    assert compare_paired(swings + 0.1, np.zeros(80), test, groups=group).p < 0.001


def test_groups_of_queries_without_a_value_do_not_count() -> None:
    a, b = A.copy(), B.copy()
    a[:4] = b[:4] = np.nan
    group = np.repeat([f"movie {i}" for i in range(20)], 4)
    result = compare_paired(a, b, groups=group)
    assert result == compare_paired(A[4:], B[4:], groups=group[4:])
    assert (result.n, result.n_groups) == (76, 19)


def test_invalid_groups_raise() -> None:
    with pytest.raises(DataError, match=r"groups must have one value per query, got shape \(3,\) for 80 queries"):
        compare_paired(A, B, groups=[1, 2, 3])
    with pytest.raises(DataError, match="at least 2 groups, got 1"):
        compare_paired(A, B, groups=np.zeros(80))
    with pytest.raises(ParameterError, match="Wilcoxon test takes queries as independent"):
        compare_paired(A, B, "wilcoxon", groups=np.arange(80))
