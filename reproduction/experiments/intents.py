"""Geng et al., Figure 7 on generated intents: three KNN modes compared with Single and QC.

The paper's data are not public. All methods use RankRLS. The setup is the paper's: two sizes (1,500 + 400 and 3,000 +
800 queries, 200 features, grades 0 to 4), the description (mean of the top 50 by the reference column), λ = 0.01,
k = 400 and 800, mean NDCG@1..10 and paired t-tests. The generator's settings were chosen on seed 0, so the experiment
uses other seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from sklearn.metrics import f1_score

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.datasets import make_intents
from kinrank.measure import MEAN_NDCG_GENG, NDCG, Measure, compare_paired, evaluate
from kinrank.papers.query_class import QueryClassRanker
from kinrank.rankers import Ranker
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.knn import uniform_knn
from reproduction.rows import pool, two_digits

SIZES = {"1,500 + 400": (1_500, 400, 400), "3,000 + 800": (3_000, 800, 800)}
SEEDS = (1, 2, 3)
MODES = ("KNN Online", "KNN Offline-1", "KNN Offline-2")
METHODS = ("Single", "QC", *MODES)
COMMON: dict[str, Any] = {"describe": "mean", "reference": "reference"}
MEAN = "mean NDCG"
MEASURES: dict[str, Measure] = {
    **{f"NDCG@{k}": NDCG(discount="geng") @ k for k in (1, 3, 5, 10)},
    MEAN: MEAN_NDCG_GENG,
}


def data_set(size: str, seed: int) -> tuple[QuerySet, QuerySet]:
    """Generate training and test queries."""
    n_train, n_test, _ = SIZES[size]
    queries = make_intents(n_train, n_test, seed=seed)
    return queries[:n_train], queries[n_train:]


def one_data_set(size: str, seed: int, _: DataFolder) -> TaskResult:
    """Measure every method on every test query, and the F1 of QC's classifier."""
    train, test = data_set(size, seed)
    k = SIZES[size][2]
    classes = QueryClassRanker("intent", **COMMON).fit(train)
    # One ranker for all three modes: both offline modes use the same models.
    knn = uniform_knn(k, mode="offline-1", n_jobs=1, **COMMON).fit(train)
    rankers: dict[str, Ranker] = {"Single": SingleRanker("rankrls").fit(train), "QC": classes}
    values: dict[str, Float64] = {}
    for method, ranker in rankers.items():
        values |= measured(method, ranker, test)
    for method in MODES:
        values |= measured(method, knn.set_params(mode=method.removeprefix("KNN ").lower()), test)
    f1 = f1_score(test.query_columns["intent"], classes.classify(test), average="macro")
    return TaskResult({"F1 of QC": round(float(f1), 4)}, values)


def measured(method: str, ranker: Ranker, test: QuerySet) -> dict[str, Float64]:
    """Return every measure of every test query."""
    per_query = evaluate(test, ranker.predict(test), MEASURES.values()).per_query
    return {f"{method}: {name}": per_query[measure] for name, measure in MEASURES.items()}


def p_values(values: Mapping[str, Float64]) -> dict[str, float]:
    """Return the p-value of each mode against each baseline; negative if the mode is worse."""
    signed = {}
    for mode in MODES:
        for baseline in ("Single", "QC"):
            paired = compare_paired(values[f"{mode}: {MEAN}"], values[f"{baseline}: {MEAN}"])
            signed[f"{mode} over {baseline}"] = two_digits(float(np.copysign(paired.p, paired.mean_difference)))
    return signed


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the quality of each method and p against both baselines, for each size."""
    figures: dict[str, Any] = {}
    for size in SIZES:
        by_seed = {seed: results[f"{size}, seed {seed}"] for seed in SEEDS}
        pooled = pool(by_seed.values())
        figures[size] = {
            "by seed": {
                seed: {method: round(float(each.values[f"{method}: {MEAN}"].mean()), 4) for method in METHODS}
                for seed, each in by_seed.items()
            },
            "p by seed": {seed: p_values(each.values) for seed, each in by_seed.items()},
            "p of all seeds": p_values(pooled),
            "all seeds": {
                method: {name: round(float(pooled[f"{method}: {name}"].mean()), 4) for name in MEASURES}
                for method in METHODS
            },
            "F1 of QC": round(float(np.mean([each.figures["F1 of QC"] for each in by_seed.values()])), 4),
        }
    return figures


EXPERIMENT = Experiment(
    "intents",
    "geng",
    {
        f"{size}, seed {seed}": Task(partial(one_data_set, size, seed), minutes=minutes)
        for size, minutes in zip(SIZES, (0.15, 0.5), strict=True)
        for seed in SEEDS
    },
    summary,
)
