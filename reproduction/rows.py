"""Rows of result tables: a method compared with a baseline by a paired test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.measure import NDCG, Measure, compare_paired, holm
from kinrank.rankers import Ranker
from reproduction.experiment import TaskResult


def per_query(ranker: Ranker, queries: QuerySet, measure: Measure = NDCG @ 10) -> Float64:
    """Return the measure of a fitted ranker on each query."""
    return measure.per_query(ranker.predict(queries), queries.grades, queries.offsets)


def row(values: Float64, baseline: Float64, groups: ArrayLike | None = None) -> dict[str, float]:
    """Return mean NDCG@10, the gain over a baseline, its 95% interval and the p-value of a paired t-test.

    With the group of each query, interval and p are by group, and the p-value by query is given too.
    """
    paired = compare_paired(values, baseline, groups=groups)
    low, high = paired.interval
    by_query = {} if groups is None else {"p by query": two_digits(compare_paired(values, baseline).p)}
    return {
        "NDCG@10": round(float(values.mean()), 4),
        "gain": round(paired.mean_difference, 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "p": two_digits(paired.p),
        **by_query,
    }


def table(
    quality: Mapping[str, Float64], baseline: str = "Single RankRLS", groups: ArrayLike | None = None
) -> dict[str, dict[str, float]]:
    """Compare every method with the baseline; p-values are given plain and corrected by Holm."""
    rows = {name: row(values, quality[baseline], groups) for name, values in quality.items()}
    others = [name for name in rows if name != baseline]
    for name, corrected in zip(others, holm([rows[name]["p"] for name in others]), strict=True):
        rows[name]["p Holm"] = two_digits(corrected)
    return rows


def pool(results: Iterable[TaskResult]) -> dict[str, Float64]:
    """Concatenate the values of all tasks, name by name."""
    every = list(results)
    return {name: np.concatenate([each.values[name] for each in every]) for name in every[0].values}


def two_digits(value: float) -> float:
    """Round a p-value to two significant digits.

    Examples
    --------
    >>> two_digits(0.00012345)
    0.00012
    """
    return float(f"{value:.2g}")
