"""Geng et al., section 4.1.2: local models learned by RankRLS compared with those by the paper's RankSVM.

The other experiments learn local models with RankRLS, which is fast. Here KNN Online learns every local model with both
learners: generated intents (1,500 training and 100 test
queries, seed 1, k = 400) and MQ2008 (five folds, k = 100). λ = 0.01, the
paper's description. NDCG@10, paired t-test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.learn.base import Learner
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.ranksvm import RankSVM
from kinrank.measure import compare_paired
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, Task, TaskResult, letor_tasks, results_by_fold
from reproduction.experiments.intents import COMMON, data_set
from reproduction.experiments.knn_letor import REFERENCE
from reproduction.knn import uniform_knn
from reproduction.rows import per_query, pool, two_digits

LEARNERS: dict[str, Learner] = {"RankSVM": RankSVM(), "RankRLS": RankRLS()}
GENERATED, TESTED = "1,500 + 400", 100
COLLECTION = "MQ2008"


def generated(_: DataFolder) -> TaskResult:
    """Measure both learners on generated intents."""
    train, test = data_set(GENERATED, 1)
    return measured(train, test[:TESTED], 400, COMMON)


def one_fold(collection: str, fold: int, data: DataFolder) -> TaskResult:
    """Measure both learners on a fold."""
    train, _, test = data.letor_fold(collection, fold)
    return measured(train, test, 100, {"describe": "mean", "scale": "none", "reference": REFERENCE[collection]})


def measured(train: QuerySet, test: QuerySet, k: int, settings: Mapping[str, Any]) -> TaskResult:
    """Measure NDCG@10 of KNN Online with each learner on every test query."""
    rankers = {
        name: uniform_knn(k, learner=learner, n_jobs=1, **settings).fit(train) for name, learner in LEARNERS.items()
    }
    return TaskResult(values={name: per_query(ranker, test) for name, ranker in rankers.items()})


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Compare RankRLS with RankSVM."""
    of_letor = pool(results_by_fold(results, COLLECTION))
    figures = {}
    for name, values in (("generated", results["generated"].values), (COLLECTION, of_letor)):
        paired = compare_paired(values["RankRLS"], values["RankSVM"])
        figures[name] = {
            "queries": len(values["RankSVM"]),
            **{learner: round(float(values[learner].mean()), 4) for learner in LEARNERS},
            "difference": round(paired.mean_difference, 4),
            "largest difference in the 95% interval": round(float(np.abs(paired.interval).max()), 4),
            "p": two_digits(paired.p),
        }
    return figures


EXPERIMENT = Experiment(
    "local-learner",
    "geng",
    {"generated": Task(generated, minutes=1.0)} | letor_tasks(one_fold, {COLLECTION: 0.2}),
    summary,
)
