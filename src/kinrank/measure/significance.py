"""Significance of the difference between two rankings: paired tests, confidence intervals, Holm's correction.

Queries that are related, such as those about the same movie, do not vary independently. With the group of each query,
every test and interval takes groups as independent, and not queries. The t-test then has the variance that leaves out
one group at a time (CR3, the cluster jackknife): with sums S_g of the deviations from the mean and shares h_g of the
queries, V = (G - 1) / G Σ_g (S_g / (1 - h_g))² / n², with G - 1 degrees of freedom. If every query is a group of its
own, this is the plain t-test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from kinrank.arrays import Float64
from kinrank.errors import DataError, ParameterError
from kinrank.registry import check_choice

PairedTest = Literal["t", "wilcoxon", "permutation"]

_CELLS_AT_ONCE = 2_000_000  # resampled values in memory: 16 MB


@dataclass(frozen=True)
class PairedComparison:
    """A comparison of the values of `a` and `b` on the same queries."""

    mean_difference: float
    """Mean of a - b; positive if a is better."""
    interval: tuple[float, float]
    """Confidence interval of the mean difference."""
    p: float
    """Two-sided p-value."""
    n: int
    """The number of queries compared."""
    wins: int
    ties: int
    losses: int
    """The number of queries on which a is better, equal, worse."""
    test: str
    """The test used."""
    confidence: float
    """The confidence level of `interval`."""
    n_groups: int | None = None
    """The number of groups of queries that vary independently; None if each query does."""


def compare_paired(
    a: ArrayLike,
    b: ArrayLike,
    test: PairedTest = "t",
    *,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
    n_resamples: int = 9999,
    seed: int = 0,
) -> PairedComparison:
    """Compare two rankings by the values of a measure for each query.

    Parameters
    ----------
    a, b
        One value per query, for the same queries in the same order. Queries that are NaN in both are excluded.
    test
        "t" (paired t), "wilcoxon" (signed-rank, without zero differences) or "permutation" (random sign flips, or all
        if there are at most `n_resamples`). With groups, "t" is cluster-robust, "permutation" flips the signs of whole
        groups, and "wilcoxon" is not possible.
    groups
        The group of each query, such as the movie that it is about. Queries of a group may vary together; groups are
        taken as independent. If there are fewer than about 50 groups of very different sizes, the t-test finds too
        much; prefer "permutation" then.
    confidence
        The confidence level of the interval.
    n_resamples
        The number of resamples of the permutation test.
    seed
        Seed for the permutation test.

    Examples
    --------
    >>> result = compare_paired([0.5, 0.75, 1.0, 0.25], [0.25, 0.75, 0.5, 0.5])
    >>> result.mean_difference, result.wins, result.ties, result.losses
    (0.125, 2, 1, 1)
    >>> round(result.p, 3)
    0.495
    >>> grouped = compare_paired([0.5, 0.75, 1.0, 0.25], [0.25, 0.75, 0.5, 0.5], groups=["a", "b", "a", "b"])
    >>> grouped.n_groups, round(grouped.p, 3)
    (2, 0.705)
    """
    check_choice("test", test, get_args(PairedTest))
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence must be between 0 and 1, got {confidence!r}")
    if n_resamples < 1:
        raise ParameterError(f"n_resamples must be at least 1, got {n_resamples!r}")
    if groups is not None and test == "wilcoxon":
        raise ParameterError("the Wilcoxon test takes queries as independent: with groups, choose 't' or 'permutation'")
    difference, kept = _differences(a, b)
    group = None if groups is None else _groups(groups, kept)
    if _all_equal(difference):
        mean = float(difference[0])
        low, high = mean, mean
    else:
        mean = float(difference.mean())
        low, high = _interval(difference, group, confidence)
    return PairedComparison(
        mean_difference=mean,
        interval=(low, high),
        p=_p_value(difference, group, test, n_resamples, seed),
        n=len(difference),
        wins=int(np.sum(difference > 0)),
        ties=int(np.sum(difference == 0)),
        losses=int(np.sum(difference < 0)),
        test=test,
        confidence=confidence,
        n_groups=None if group is None else int(group.max()) + 1,
    )


def holm(p_values: ArrayLike) -> Float64:
    """Return p-values with Holm's step-down correction, to compare with one significance level.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not np.all((p >= 0) & (p <= 1)):
        raise ParameterError(f"p_values must be one-dimensional and from 0 to 1, got {p_values!r}")
    order = np.argsort(p)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    return adjusted


def _differences(a: ArrayLike, b: ArrayLike) -> tuple[Float64, NDArray[np.bool_]]:
    """Return the differences, and which queries have one."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise DataError(f"a and b must have one value per query, got shapes {first.shape} and {second.shape}")
    kept = ~(np.isnan(first) & np.isnan(second))
    difference = (first - second)[kept]
    if not np.all(np.isfinite(difference)):
        query = int(np.argmax(~np.isfinite(first - second) & kept))
        raise DataError(
            f"query {query} is {first[query]} in a and {second[query]} in b: compute both with the same measure on "
            "the same queries"
        )
    if len(difference) < 2:
        raise DataError(f"a comparison needs at least 2 queries, got {len(difference)}")
    return difference, kept


def _groups(groups: ArrayLike, kept: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the number of each query's group, for the queries that are compared."""
    labels = np.asarray(groups)
    if labels.shape != kept.shape:
        raise DataError(f"groups must have one value per query, got shape {labels.shape} for {len(kept)} queries")
    names, group = np.unique(labels[kept], return_inverse=True)
    if len(names) < 2:
        raise DataError("a comparison by group needs at least 2 groups, got 1: all queries are of the same group")
    return group


def _sums(values: Float64, group: NDArray[np.intp]) -> Float64:
    return np.bincount(group, values).astype(np.float64)


def _cluster_error(difference: Float64, group: NDArray[np.intp]) -> tuple[float, int]:
    """Return the cluster-robust standard error of the mean difference, and its degrees of freedom."""
    n = len(difference)
    size = np.bincount(group)
    left_out = _sums(difference - difference.mean(), group) / (1 - size / n)
    variance = (1 - 1 / len(size)) * float(left_out @ left_out) / n**2
    return float(np.sqrt(variance)), len(size) - 1


def _all_equal(difference: Float64) -> bool:
    """Return whether all differences are equal up to rounding, so that a t statistic would be meaningless."""
    spread = np.abs(difference - difference.mean()).max()
    return bool(spread <= 10 * np.finfo(np.float64).eps * np.abs(difference).max())


def _p_value(
    difference: Float64, group: NDArray[np.intp] | None, test: PairedTest, n_resamples: int, seed: int
) -> float:
    if not np.any(difference):
        return 1.0
    if group is not None:
        if test == "t":
            error, freedom = _cluster_error(difference, group)
            mean = abs(float(difference.mean()))
            if error <= 10 * np.finfo(np.float64).eps * np.abs(difference).max():  # all groups agree up to rounding
                return float(mean <= error)
            return float(2 * stats.t.sf(mean / error, freedom))
        difference = _sums(difference, group)
        if not np.any(difference):
            return 1.0
    if test == "t":
        # If all differences are equal, the t statistic is infinite.
        return 0.0 if _all_equal(difference) else float(stats.ttest_1samp(difference, 0.0).pvalue)
    if test == "wilcoxon":
        return float(stats.wilcoxon(difference[difference != 0]).pvalue)
    return _sign_flips(difference[difference != 0], n_resamples, np.random.default_rng(seed))


def _sign_flips(difference: Float64, n_resamples: int, rng: np.random.Generator) -> float:
    """Return the share of sign flips that give a mean at least as far from 0.

    scipy.stats.permutation_test does the same, but twenty times slower on thousands of queries.
    """
    n = len(difference)
    exact = n < 63 and 2**n <= n_resamples
    total = 2**n if exact else n_resamples
    least = abs(difference.sum()) * (1 - 1e-12)  # tolerate rounding errors
    as_far = 0
    step = max(1, _CELLS_AT_ONCE // n)
    for start in range(0, total, step):
        count = min(step, total - start)
        if exact:
            flipped = (np.arange(start, start + count)[:, None] >> np.arange(n) & 1).astype(np.float64)
        else:
            drawn = rng.integers(0, 256, (count, -(-n // 8)), dtype=np.uint8)
            flipped = np.unpackbits(drawn, axis=1, count=n).astype(np.float64)
        sums = difference.sum() - 2 * (flipped @ difference)
        as_far += int(np.count_nonzero(np.abs(sums) >= least))
    # The observed differences count as one of the flips, so that p is never 0.
    return as_far / total if exact else (as_far + 1) / (total + 1)


def _interval(difference: Float64, group: NDArray[np.intp] | None, confidence: float) -> tuple[float, float]:
    if group is None:
        low, high = stats.ttest_1samp(difference, 0.0).confidence_interval(confidence)
        return float(low), float(high)
    error, freedom = _cluster_error(difference, group)
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * error
    return float(difference.mean()) - half, float(difference.mean()) + half
