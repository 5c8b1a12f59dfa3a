"""Test a reason: normalizing features within a query hides the differences between queries, so KNN gains nothing.

LETOR's features come normalized within each query, and KNN gains nothing there. MSRD has raw features, and KNN gains.
Here MSRD's features are normalized to 0..1 within each query, as LETOR's are, and everything else stays the same: the
description (from the same features, with and without the query text), k = 400, kernel and prior. If normalization is
the reason, the gain shrinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.measure import compare_paired
from kinrank.papers.ensemble import normalize
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import MSRD_FILES, DataFolder
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.experiments.knn_msrd import CHOSEN, MOVIE, knn
from reproduction.rows import per_query, row, two_digits

FEATURES = ("raw", "normalized")
DESCRIPTIONS = ("summaries", "summaries+text")


def measured(features: str, data: DataFolder) -> TaskResult:
    """Measure NDCG@10 of Single and of KNN Online on every test query."""
    train, _, test = data.msrd()
    if features == "normalized":
        train, test = _normalized(train), _normalized(test)
    values = {MOVIE: test.query_columns[MOVIE], "Single RankRLS": per_query(SingleRanker("rankrls").fit(train), test)}
    for description in DESCRIPTIONS:
        values[description] = per_query(knn(CHOSEN, description).fit(train), test)
    return TaskResult(values=values)


def _normalized(queries: QuerySet) -> QuerySet:
    scaled, _ = normalize(queries.X.astype(np.float64), queries.offsets, "minmax")
    return queries.replace(X=scaled.astype(np.float32))


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Compare KNN with Single for raw and for normalized features."""
    figures: dict[str, Any] = {}
    for features, result in results.items():
        values = dict(result.values)
        movies, single = values.pop(MOVIE), values["Single RankRLS"]
        figures[features] = {name: row(each, single, movies) for name, each in values.items()}
    for description in DESCRIPTIONS:
        raw, scaled = (results[each].values for each in FEATURES)
        before, after = (each[description] - each["Single RankRLS"] for each in (raw, scaled))
        lost = compare_paired(before, after, groups=raw[MOVIE])
        figures[f"gain lost, {description}"] = {"gain": round(lost.mean_difference, 4), "p": two_digits(lost.p)}
    return figures


EXPERIMENT = Experiment(
    "normalized-queries",
    "geng",
    {features: Task(partial(measured, features), MSRD_FILES, 0.3) for features in FEATURES},
    summary,
)
