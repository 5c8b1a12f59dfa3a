"""Geng et al., Figure 8 on LETOR: NDCG@5 and NDCG@10 of the three modes over k, five folds, nothing tuned.

The paper draws this figure for its own data and omits LETOR as too small. The paper's description and λ, no prior. The
one test compares k = 0.27 m, the paper's 400 of 1,500, with k = m, which is Single.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kinrank.measure import evaluate
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, TaskResult, Values, letor_tasks, results_by_fold
from reproduction.experiments.intent_curves import SHOWN
from reproduction.experiments.intents import MEASURES, MODES
from reproduction.experiments.knn_letor import REFERENCE
from reproduction.knn import uniform_knn
from reproduction.rows import pool, row

SHARES = (0.02, 0.05, 0.13, 0.27, 0.53, 0.8, 1.0)
PUBLISHED = 0.27
"""The paper's k / m."""


def one_fold(collection: str, fold: int, data: DataFolder) -> TaskResult:
    """Measure every mode and k on every test query."""
    train, _, test = data.letor_fold(collection, fold)
    values: dict[str, Values] = {}
    for share in SHARES:
        k = max(1, round(share * len(train)))
        ranker = uniform_knn(k, mode="offline-1", n_jobs=1, scale="none", reference=REFERENCE[collection])
        ranker.fit(train)
        for mode in MODES:
            scores = ranker.set_params(mode=mode.removeprefix("KNN ").lower()).predict(test)
            per_query = evaluate(test, scores, [MEASURES[name] for name in SHOWN]).per_query
            values |= {_name(mode, share, name): per_query[MEASURES[name]] for name in SHOWN}
    return TaskResult({"m": len(train)}, values)


def _name(mode: str, share: float, measure: str) -> str:
    return f"{mode}, {share:g} m, {measure}"


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the curves of each collection, and the paper's k compared with Single."""
    figures: dict[str, Any] = {}
    for collection in REFERENCE:
        folds = results_by_fold(results, collection)
        values = pool(folds)
        figures[collection] = {
            "m": round(float(np.mean([fold.figures["m"] for fold in folds]))),
            "by k / m": {
                mode: {
                    name: {f"{share:g}": round(float(values[_name(mode, share, name)].mean()), 4) for share in SHARES}
                    for name in SHOWN
                }
                for mode in MODES
            },
            "the paper's k over Single": {
                mode: row(values[_name(mode, PUBLISHED, "NDCG@10")], values[_name(mode, 1.0, "NDCG@10")])
                for mode in MODES
            },
        }
        online = figures[collection]["by k / m"][MODES[0]]["NDCG@10"]
        figures[collection]["best k / m of Online"] = float(max(online, key=online.__getitem__))
    return figures


EXPERIMENT = Experiment(
    "knn-letor-curves",
    "geng",
    letor_tasks(one_fold, {"MQ2007": 0.2, "MQ2008": 0.1, "OHSUMED": 0.02}),
    summary,
)
