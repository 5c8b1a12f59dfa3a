"""RankSVM, RankRLS and LambdaMART on LETOR, five folds, compared with the published RankSVM row.

The local models are RankSVMs, and the paper compares them with LETOR's RankSVM. This experiment checks that our RankSVM
matches it. LETOR's conventions, λ = 0.01 as in the KNN paper; nothing is tuned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kinrank.learn.base import Learner
from kinrank.learn.lambdamart import LambdaMART
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.ranksvm import RankSVM
from kinrank.measure import LETOR_MAP, LETOR_NDCG, MEAN_NDCG_LETOR, Measure, evaluate
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, TaskResult, letor_tasks, results_by_fold

MEASURES: dict[str, Measure] = {
    "NDCG@1": LETOR_NDCG @ 1,
    "NDCG@3": LETOR_NDCG @ 3,
    "NDCG@5": LETOR_NDCG @ 5,
    "NDCG@10": LETOR_NDCG @ 10,
    "MAP": LETOR_MAP,
    "MeanNDCG": MEAN_NDCG_LETOR,
}
LEARNERS: dict[str, Learner] = {
    "RankSVM": RankSVM(),
    "RankRLS": RankRLS(),
    "LambdaMART": LambdaMART(n_trees=200, n_leaves=15, learning_rate=0.05, n_threads=1),
}
# The RankSVM rows published with LETOR 4.0 (MQ2007, MQ2008) and LETOR 3.0 (OHSUMED).
PUBLISHED = {
    "MQ2007": {
        "NDCG@1": 0.4096,
        "NDCG@3": 0.4063,
        "NDCG@5": 0.4143,
        "NDCG@10": 0.4439,
        "MAP": 0.4645,
        "MeanNDCG": 0.4966,
    },
    "MQ2008": {"NDCG@1": 0.3627, "NDCG@3": 0.4286, "NDCG@5": 0.4695, "MAP": 0.4696, "MeanNDCG": 0.4832},
    "OHSUMED": {"NDCG@1": 0.4958, "NDCG@3": 0.4207, "NDCG@5": 0.4164, "NDCG@10": 0.4140, "MAP": 0.4334},
}
# OHSUMED differs most. Is it the regularization, the loss, or a solver that stopped early?
SWEPT = "OHSUMED"
PENALTIES = (100.0, 10.0, 1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5)
STEPS = (0, 1, 2)
"""Newton steps after which the solver stops, at the weakest penalty."""
VARIANTS: dict[str, Learner] = {
    **{f"squared hinge, λ = {penalty:g}": RankSVM(penalty) for penalty in PENALTIES},
    **{f"hinge, λ = {penalty:g}": RankSVM(penalty, loss="hinge") for penalty in PENALTIES},
    **{f"squared hinge, λ = 1e-05, {steps} steps": RankSVM(1e-5, max_iter=steps) for steps in STEPS},
}


def one_fold(collection: str, fold: int, data: DataFolder) -> TaskResult:
    """Measure every learner on the test queries of a fold."""
    learners = dict(LEARNERS)
    if collection == SWEPT:
        learners |= VARIANTS
    return TaskResult({name: fold_means(collection, fold, learner, data) for name, learner in learners.items()})


def fold_means(collection: str, fold: int, learner: Learner, data: DataFolder) -> dict[str, float]:
    """Return every measure of one learner on the test queries of a fold."""
    train, _, test = data.letor_fold(collection, fold)
    scores = SingleRanker(learner, scale="none").fit(train).predict(test)
    return dict(zip(MEASURES, evaluate(test, scores, MEASURES.values()).means.values(), strict=True))


def five_folds(folds: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of every measure over the folds."""
    return {name: round(float(np.mean([fold[name] for fold in folds])), 4) for name in folds[0]}


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the measures of each learner by collection, and the differences from the published row."""
    figures: dict[str, Any] = {}
    for collection, published in PUBLISHED.items():
        folds = [fold.figures for fold in results_by_fold(results, collection)]
        own = {name: five_folds([fold[name] for fold in folds]) for name in LEARNERS}
        off = {name: round(own["RankSVM"][name] - value, 4) for name, value in published.items()}
        figures[collection] = {"published RankSVM": published, **own, "RankSVM minus published": off}
    folds = [fold.figures for fold in results_by_fold(results, SWEPT)]
    swept = {name: five_folds([fold[name] for fold in folds]) for name in VARIANTS}
    published = PUBLISHED[SWEPT]
    figures[f"{SWEPT} by variant"] = {
        name: {measure: means[measure] for measure in published}
        | {"farthest from published": round(max(abs(means[each] - published[each]) for each in published), 4)}
        for name, means in swept.items()
    }
    closest = min(figures[f"{SWEPT} by variant"].values(), key=lambda row: row["farthest from published"])
    figures[f"{SWEPT}, closest variant"] = closest["farthest from published"]
    return figures


EXPERIMENT = Experiment(
    "letor-baselines",
    "local-models",
    letor_tasks(one_fold, {"MQ2007": 0.06, "MQ2008": 0.02, SWEPT: 0.1}),
    summary,
)
