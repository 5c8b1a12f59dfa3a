"""Rows of result tables: a method compared with a baseline by a paired test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.measure import NDCG, Measure, compare_paired, holm
from kinrank.rankers import Ranker
from reproduction.experiment import TaskResult


def per_query(ranker: Ranker, queries: QuerySet, measure: Measure = NDCG @ 10) -> Float64:
    """Return the measure of a fitted ranker on each query."""
    return measure.per_query(ranker.predict(queries), queries.grades, queries.offsets)


def row(values: Float64, baseline: Float64) -> dict[str, float]:
    """Return mean NDCG@10, the gain over a baseline, its 95% interval and the p-value of a paired t-test."""
    paired = compare_paired(values, baseline)
    low, high = paired.interval
    return {
        "NDCG@10": round(float(values.mean()), 4),
        "gain": round(paired.mean_difference, 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "p": two_digits(paired.p),
    }


def table(quality: Mapping[str, Float64], baseline: str = "Single RankRLS") -> dict[str, dict[str, float]]:
    """Compare every method with the baseline; p-values are given plain and corrected by Holm."""
    rows = {name: row(values, quality[baseline]) for name, values in quality.items()}
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
