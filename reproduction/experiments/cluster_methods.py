"""Local models, Tables 2 and 3: Naive, SelectRanker and Transform compared with RankSVM on LETOR 4.0, by difficulty.

Five folds, LETOR's conventions. The number of clusters, the penalty and the other settings of each method are chosen
on the validation queries by MAP; so is the penalty of RankSVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.learn.ranksvm import RankSVM
from kinrank.measure import LETOR_MAP, LETOR_NDCG, MEAN_NDCG_LETOR, Measure, P, compare_paired, evaluate
from kinrank.papers.cluster import ClusterRanker
from kinrank.rankers import Ranker
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import DataFolder
from reproduction.difficulty import difficulty_levels, mean_by_level
from reproduction.experiment import Experiment, TaskResult, letor_tasks, results_by_fold
from reproduction.rows import pool, two_digits

COLLECTIONS = ("MQ2007", "MQ2008")
BM25 = 24  # whole document: the last of the five BM25 columns
MEASURES: dict[str, Measure] = {
    **{f"P@{k}": P @ k for k in (1, 2, 5, 10)},
    "MAP": LETOR_MAP,
    **{f"NDCG@{k}": LETOR_NDCG @ k for k in (1, 3, 5, 10)},
    "MeanNDCG": MEAN_NDCG_LETOR,
}
PENALTIES = (0.01, 0.1)
CLUSTERS = (2, 5, 10, 20, 50)
METHODS = ("RankSVM", "Naive", "SelectRanker", "Transform")
# Published with LETOR 4.0.
PUBLISHED_MEASURES = ("MAP", "NDCG@1", "NDCG@3", "NDCG@5", "MeanNDCG")
PUBLISHED = {
    "MQ2007": {
        "RankSVM": (0.4645, 0.4096, 0.4063, 0.4143, 0.4966),
        "ListNet": (0.4652, 0.4002, 0.4091, 0.4170, 0.4988),
        "RankBoost": (0.4662, 0.4134, 0.4072, 0.4183, 0.5003),
        "AdaRank-MAP": (0.4577, 0.3821, 0.3984, 0.4070, 0.4891),
    },
    "MQ2008": {
        "RankSVM": (0.4696, 0.3627, 0.4286, 0.4695, 0.4832),
        "ListNet": (0.4775, 0.3754, 0.4324, 0.4747, 0.4914),
        "AdaRank-NDCG": (0.4824, 0.3826, 0.4420, 0.4821, 0.4950),
    },
}
LEVEL = "level"
BEST = ("P@1", "MeanNDCG")
"""Measures in which the paper calls SelectRanker best on MQ2007."""
Settings = dict[str, float]


def one_fold(collection: str, fold: int, data: DataFolder) -> TaskResult:
    """Measure every method on every test query, with settings chosen on the validation queries."""
    train, validation, test = data.letor_fold(collection, fold)
    values: dict[str, Any] = {LEVEL: difficulty_levels(test.grades, test.offsets)}
    chosen = {}
    for method, candidates in _candidates().items():
        tried = [(settings, ranker.fit(train)) for settings, ranker in candidates]
        chosen[method], ranker = max(tried, key=lambda pair: average_precision(pair[1], validation).mean())
        per_query = evaluate(test, ranker.predict(test), MEASURES.values()).per_query
        values |= {f"{method}: {name}": per_query[measure] for name, measure in MEASURES.items()}
    return TaskResult({"chosen": chosen}, values)


def _candidates() -> dict[str, Iterator[tuple[Settings, Ranker]]]:
    """Return the settings to choose from for each method, simplest first; ties go to the first."""
    singles = (({"penalty": penalty}, SingleRanker(RankSVM(penalty), scale="none")) for penalty in PENALTIES)
    return {
        "RankSVM": singles,
        "Naive": _clusters("naive", "top", (5, 20)),
        "SelectRanker": _clusters("select", "n_neighbors", (5, 50)),
        "Transform": _clusters("transform", "top", (5, 20)),
    }


def _clusters(mode: str, name: str, choices: tuple[int, ...]) -> Iterator[tuple[Settings, Ranker]]:
    for n_clusters, penalty, choice in product(CLUSTERS, PENALTIES, choices):
        settings = {"n_clusters": n_clusters, "penalty": penalty, name: choice}
        yield settings, cluster_ranker(mode, n_clusters, penalty, **{name: choice})


def cluster_ranker(mode: Any, n_clusters: int, penalty: float = 0.01, **more: Any) -> ClusterRanker:
    """Return an unfitted ranker that does not scale features."""
    return ClusterRanker(n_clusters, mode=mode, reference=BM25, learner=RankSVM(penalty), scale="none", **more)


def average_precision(ranker: Ranker, queries: QuerySet) -> Float64:
    """Return the average precision of each query."""
    return LETOR_MAP.per_query(ranker.predict(queries), queries.grades, queries.offsets)


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return test measures, MAP by difficulty and the chosen settings of each collection."""
    return {collection: _collection(collection, results_by_fold(results, collection)) for collection in COLLECTIONS}


def _collection(collection: str, folds: list[TaskResult]) -> dict[str, Any]:
    values = pool(folds)
    level, single = values[LEVEL], values["RankSVM: MAP"]
    published = {name: dict(zip(PUBLISHED_MEASURES, row, strict=True)) for name, row in PUBLISHED[collection].items()}
    figures: dict[str, Any] = {"published": published, "methods": {}, "by difficulty (MAP)": {}, "over RankSVM": {}}
    for method in METHODS:
        # The mean of five fold means, as LETOR reports it: folds differ in size by a query or two.
        row = {
            name: round(float(np.mean([fold.values[f"{method}: {name}"].mean() for fold in folds])), 4)
            for name in MEASURES
        }
        own = values[f"{method}: MAP"]
        if method != "RankSVM":
            row["p against RankSVM (MAP)"] = two_digits(compare_paired(own, single).p)
        figures["methods"][method] = row
        means = mean_by_level(own, level)
        figures["by difficulty (MAP)"][method] = {name: round(each.mean, 4) for name, each in means.items()}
        if method != "RankSVM":
            figures["over RankSVM"][method] = {
                name: _interval(own[level == name], single[level == name]) for name in means if name != "none"
            }
    figures["SelectRanker over RankSVM"] = {
        name: _interval(values[f"SelectRanker: {name}"], values[f"RankSVM: {name}"]) for name in BEST
    }
    figures["queries by difficulty"] = {name: each.queries for name, each in mean_by_level(single, level).items()}
    figures["chosen"] = {method: [fold.figures["chosen"][method] for fold in folds] for method in METHODS}
    return figures


def _interval(values: Float64, baseline: Float64) -> dict[str, float]:
    """Return the mean difference and its 95% interval."""
    paired = compare_paired(values, baseline)
    low, high = paired.interval
    return {"difference": round(paired.mean_difference, 4), "low": round(low, 4), "high": round(high, 4)}


EXPERIMENT = Experiment(
    "cluster-methods",
    "local-models",
    letor_tasks(one_fold, dict(zip(COLLECTIONS, (0.3, 0.15), strict=True))),
    summary,
)
