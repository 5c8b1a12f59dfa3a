"""Local models, Figures 2 and 3: oracles that choose among local models, compared with oracles over random groups.

UpperBound always chooses the best model, RelevantOnly is Naive with known relevant documents, and a third oracle always
chooses the r-th best of the models of 100 clusters. Each is also measured with random groups of queries in place of
clusters. λ = 0.01; no setting is tuned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.learn.ranksvm import RankSVM
from kinrank.measure import LETOR_MAP
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, TaskResult, letor_tasks, results_by_fold
from reproduction.experiments.cluster_methods import COLLECTIONS, average_precision, cluster_ranker
from reproduction.oracles import rank_curve, rank_of, upper_bound

CLUSTERS = (2, 5, 10, 20, 50, 100)
CHANCE = "random groups"
LINES = ("UpperBound", f"UpperBound, {CHANCE}", "RelevantOnly", "Naive")


def one_fold(collection: str, fold: int, data: DataFolder) -> TaskResult:
    """Measure test MAP of each line by number of clusters, and of the r-th best model at the largest number."""
    train, _, test = data.letor_fold(collection, fold)
    single = SingleRanker(RankSVM(), scale="none").fit(train)
    by_count = []
    for n_clusters in CLUSTERS:
        ranker = cluster_ranker("naive", n_clusters).fit(train)
        models = _map_of_models(ranker.local_scores(test), test)
        chance = _map_of_models(_random_groups(train, ranker.labels_) @ test.X.T, test)
        relevant = LETOR_MAP.mean(ranker.predict_relevant_only(test), test.grades, test.offsets)
        naive = average_precision(ranker, test).mean()
        by_count.append((upper_bound(models).mean(), upper_bound(chance).mean(), relevant, naive))
    curves = {"clusters": rank_curve(models), CHANCE: rank_curve(chance)}
    lines = {name: np.array(line) for name, line in zip(LINES, zip(*by_count, strict=True), strict=True)}
    return TaskResult({"RankSVM": float(average_precision(single, test).mean())}, lines | curves)


def _random_groups(train: QuerySet, labels: NDArray[np.int64]) -> Float64:
    """Learn one model per random group, with the cluster sizes: the baseline for choosing among many models."""
    drawn = np.random.default_rng(0).permutation(labels)
    return np.array([RankSVM().fit(train[drawn == group]).coef_ for group in range(labels.max() + 1)])


def _map_of_models(scores: Float64, test: QuerySet) -> Float64:
    return np.array([LETOR_MAP.per_query(row, test.grades, test.offsets) for row in scores])


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the lines and curves of each collection, and the rank that RankSVM equals."""
    return {collection: _collection(results_by_fold(results, collection)) for collection in COLLECTIONS}


def _collection(folds: list[TaskResult]) -> dict[str, Any]:
    baseline = float(np.mean([fold.figures["RankSVM"] for fold in folds]))
    figures: dict[str, Any] = {
        "n_clusters": list(CLUSTERS),
        "RankSVM": round(baseline, 4),
        **{name: np.mean([fold.values[name] for fold in folds], axis=0).round(4).tolist() for name in LINES},
        "models of 100 clusters": [len(fold.values["clusters"]) for fold in folds],
    }
    for name in ("clusters", CHANCE):
        curves = [fold.values[name] for fold in folds]
        n_models = min(map(len, curves))  # empty clusters are dropped, so the number differs between folds
        curve = np.mean([each[:n_models] for each in curves], axis=0)
        figures[f"r-th best, {name}"] = curve.round(4).tolist()
        figures[f"RankSVM equals the r-th best, {name}"] = rank_of(baseline, curve)
    return figures


EXPERIMENT = Experiment(
    "cluster-oracles",
    "local-models",
    letor_tasks(one_fold, dict(zip(COLLECTIONS, (0.3, 0.15), strict=True))),
    summary,
)
