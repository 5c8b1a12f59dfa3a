"""Significance of a difference that was measured on repeated folds of the same queries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from kinrank.errors import DataError, ParameterError
from kinrank.measure import PairedComparison


def compare_resampled(
    a: ArrayLike, b: ArrayLike, fold: ArrayLike, *, groups: ArrayLike | None = None, confidence: float = 0.95
) -> PairedComparison:
    """Compare two rankers on repeated cross-validation by the corrected resampled t-test.

    With few queries, the result depends on how they are split into folds, so the folds are repeated with other seeds.
    Training sets of different splits overlap, and every query is tested once per repeat. The mean differences of the
    splits are therefore not independent, and a plain t-test over them finds differences that are not there. The
    corrected test takes J splits with mean differences d_j and variance s², and replaces the variance s² / J of their
    mean by (1 / J + n_test / n_train) s² (Nadeau and Bengio, 2003, Inference for the generalization error).

    Parameters
    ----------
    a, b
        Values of a measure, of shape (repeats, queries). Queries that are NaN in both are excluded.
    fold
        In which fold each query was tested in each repeat, of the same shape.
    groups
        The group of each query, if queries of a group may vary together. Every group must be in one fold of each
        repeat: then the means of the splits vary as much as groups do, and the test holds as it is.
    confidence
        The confidence level of the interval.

    Returns
    -------
    PairedComparison
        With ``test="resampled"``. `n`, `wins`, `ties` and `losses` count queries by their mean over the repeats.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> fold = np.array([rng.permutation(100) % 5 for _ in range(10)])
    >>> b = rng.random((10, 100))
    >>> result = compare_resampled(b + rng.normal(0.05, 0.1, (10, 100)), b, fold)
    >>> result.n, result.mean_difference > 0, result.p < 0.05
    (100, True, True)
    """
    first, second, folds = np.asarray(a, np.float64), np.asarray(b, np.float64), np.asarray(fold)
    if first.ndim != 2 or not first.shape == second.shape == folds.shape:
        raise DataError(
            f"a, b and fold must have the shape (repeats, queries), got {first.shape}, {second.shape} and {folds.shape}"
        )
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence must be between 0 and 1, got {confidence!r}")
    n_groups = None if groups is None else _whole_groups(np.asarray(groups), folds)
    difference = first - second
    if np.any(np.isnan(first) != np.isnan(second)):
        raise DataError("a and b have values for different queries: compute both with the same measure")
    splits, ratios = [], []
    for row, parts in zip(difference, folds, strict=True):
        valued = ~np.isnan(row)
        for part in np.unique(parts):
            tested = valued & (parts == part)
            if tested.any():
                splits.append(row[tested].mean())
                held_out = float(np.mean(parts == part))
                ratios.append(held_out / max(1 - held_out, np.finfo(np.float64).tiny))
    if len(splits) < 2 or max(ratios) > len(difference.T):
        raise DataError("a resampled test needs at least 2 folds in each repeat")
    # The mean of each query over its repeats, so that folds of different sizes do not distort the mean.
    by_query = difference[:, ~np.isnan(difference).all(axis=0)].mean(axis=0)
    mean = float(by_query.mean())
    error = float(np.sqrt((1 / len(splits) + np.mean(ratios)) * np.var(splits, ddof=1)))
    if error <= 10 * np.finfo(np.float64).eps * abs(mean):  # all splits agree up to rounding
        p, half = float(mean == 0), 0.0
    else:
        freedom = len(splits) - 1
        p = float(2 * stats.t.sf(abs(mean) / error, freedom))
        half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * error
    return PairedComparison(
        mean_difference=mean,
        interval=(mean - half, mean + half),
        p=p,
        n=len(by_query),
        wins=int(np.sum(by_query > 0)),
        ties=int(np.sum(by_query == 0)),
        losses=int(np.sum(by_query < 0)),
        test="resampled",
        confidence=confidence,
        n_groups=n_groups,
    )


def _whole_groups(labels: NDArray[Any], folds: NDArray[Any]) -> int:
    """Return the number of groups, or raise if a repeat has queries of one group in several folds."""
    if labels.shape != folds.shape[1:]:
        raise DataError(f"groups must have one value per query, got shape {labels.shape} for {folds.shape[1]} queries")
    names, first, group = np.unique(labels, return_index=True, return_inverse=True)
    broken = np.any(folds != folds[:, first[group]], axis=0)
    if broken.any():
        name = names[group[np.argmax(broken)]]
        raise DataError(f"group {name!s} is in several folds of a repeat: make the folds by group")
    return len(names)
