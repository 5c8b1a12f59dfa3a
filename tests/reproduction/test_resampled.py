from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from kinrank.errors import DataError, ParameterError
from reproduction.resampled import compare_resampled

REPEATS, FOLDS = 10, 5


def assigned(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.array([rng.permutation(n) % FOLDS for _ in range(REPEATS)])


def test_statistic_equals_the_formula() -> None:
    rng = np.random.default_rng(0)
    fold = assigned(rng, 50)
    a, b = rng.random((2, REPEATS, 50))
    splits = np.array([(a - b)[r, fold[r] == f].mean() for r in range(REPEATS) for f in range(FOLDS)])
    t = splits.mean() / np.sqrt((1 / 50 + 10 / 40) * splits.var(ddof=1))
    result = compare_resampled(a, b, fold)
    assert result.p == pytest.approx(2 * stats.t.sf(abs(t), 49))
    assert result.mean_difference == pytest.approx(splits.mean())
    low, high = result.interval
    assert (low + high) / 2 == pytest.approx(result.mean_difference)
    assert compare_resampled(a, b, fold, confidence=1 - result.p).interval[int(t < 0)] == pytest.approx(0.0, abs=1e-9)
    assert (result.n, result.wins + result.ties + result.losses, result.test) == (50, 50, "resampled")


def losses_of_two_equal_learners(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cross-validate two regressions on a useless feature each: neither is better, and both depend on the split."""
    y, features = rng.standard_normal(n), rng.standard_normal((2, n))
    fold = assigned(rng, n)
    losses = np.empty((2, REPEATS, n))
    for repeat in range(REPEATS):
        for part in range(FOLDS):
            out = fold[repeat] == part
            slope = features[:, ~out] @ y[~out] / (features[:, ~out] ** 2).sum(axis=1)
            losses[:, repeat, out] = (y[out] - slope[:, None] * features[:, out]) ** 2
    return losses[0], losses[1], fold


def test_level_holds_under_the_null_and_that_of_a_plain_t_test_does_not() -> None:
    rng = np.random.default_rng(1)
    corrected, plain = [], []
    for _ in range(400):
        a, b, fold = losses_of_two_equal_learners(rng, 60)
        corrected.append(compare_resampled(a, b, fold).p)
        splits = [(a - b)[r, fold[r] == f].mean() for r in range(REPEATS) for f in range(FOLDS)]
        plain.append(stats.ttest_1samp(splits, 0.0).pvalue)
    # Binomial: below 0.05 + 3 standard errors of 400 trials.
    assert np.mean(np.array(corrected) < 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)
    assert np.mean(np.array(plain) < 0.05) > 0.2


def test_equal_rankings_have_p_1_and_equal_gains_p_0() -> None:
    rng = np.random.default_rng(2)
    fold, a = assigned(rng, 20), rng.random((REPEATS, 20))
    assert compare_resampled(a, a, fold).p == 1.0
    assert compare_resampled(np.full((REPEATS, 20), 0.5), np.full((REPEATS, 20), 0.25), fold).p == 0.0


def test_queries_without_a_value_are_excluded() -> None:
    rng = np.random.default_rng(3)
    fold = assigned(rng, 30)
    a, b = rng.random((2, REPEATS, 30))
    a[:, 4] = b[:, 4] = np.nan
    assert compare_resampled(a, b, fold).n == 29
    b[:, 4] = 0.5
    with pytest.raises(DataError, match="values for different queries"):
        compare_resampled(a, b, fold)


def test_invalid_input_raises() -> None:
    values = np.zeros((2, 4))
    with pytest.raises(DataError, match=r"the shape \(repeats, queries\), got \(4,\)"):
        compare_resampled(values[0], values[0], values[0])
    with pytest.raises(DataError, match="at least 2 folds in each repeat"):
        compare_resampled(values[:1], values[:1], values[:1])
    with pytest.raises(ParameterError, match="confidence must be between 0 and 1, got 2"):
        compare_resampled(values, values, values, confidence=2)


def test_level_holds_with_groups_in_whole_folds_and_not_with_groups_split() -> None:
    rng, runs = np.random.default_rng(4), 250
    whole, split = [], []
    for _ in range(runs):
        group = np.repeat(np.arange(40), 5)
        difference = 0.6 * rng.standard_normal(40)[group] + rng.standard_normal(200)
        a, b = np.tile(difference, (REPEATS, 1)), np.zeros((REPEATS, 200))
        whole.append(compare_resampled(a, b, assigned(rng, 40)[:, group], groups=group).p)
        split.append(compare_resampled(a, b, assigned(rng, 200)).p)
    limit = 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    assert np.mean(np.array(whole) < 0.05) < limit < np.mean(np.array(split) < 0.05)


def test_groups_in_several_folds_raise() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.random((2, REPEATS, 20))
    group = np.repeat(["x", "y", "z", "w", "v"], 4)
    fold = np.array([rng.permutation(5)[np.repeat(np.arange(5), 4)] for _ in range(REPEATS)])
    assert compare_resampled(a, b, fold, groups=group).n_groups == 5
    fold[3, 6] = (fold[3, 6] + 1) % 5
    with pytest.raises(DataError, match="group y is in several folds of a repeat: make the folds by group"):
        compare_resampled(a, b, fold, groups=group)
    with pytest.raises(DataError, match=r"one value per query, got shape \(3,\) for 20 queries"):
        compare_resampled(a, b, fold, groups=[1, 2, 3])
