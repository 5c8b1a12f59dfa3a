"""`kinrank tune` on MSRD chooses settings within 0.001 NDCG@10 of the best on the test queries, without using them.

It tunes on the training and validation queries, in three folds by movie, with all families: 3 penalties of Single, 6
descriptions of KNN with all values of k and prior strength, 2 shapes of the trees of KinRanker, 3 of LambdaMART, 4
variations of the best KNN, and 2 samples. Then every tried configuration, with all values of every sweep, is fitted on
the same queries and measured on the test queries. Uses two processes with one thread each.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from functools import partial

os.environ["OMP_NUM_THREADS"] = "1"

from sklearn.base import clone

from benchmarks.common import log_progress, msrd
from kinrank import KnnRanker, QuerySet, SingleRanker
from kinrank.measure import NDCG, compare_paired
from kinrank.parallel import map_ordered
from kinrank.rankers._local.choose import choose_neighbors
from kinrank.scale import Processes, use_executor
from kinrank.study._sweep import NEIGHBORS, PRIORS
from kinrank.study.tuning import Plan, Trial, available_families, per_query_values, tune

MEASURE = NDCG @ 10
WITHIN = 0.001
WORKERS = Processes(2)
PLAN = Plan(n_trials=20, folds=3, group="movie", reference="bm25_all", measure=MEASURE)


def run() -> dict[str, object]:
    """Return the chosen settings, their quality on test, and the best configuration on test."""
    parts = msrd()
    train, test = QuerySet.concat([parts["train"], parts["vali"]]), parts["test"]
    with tempfile.TemporaryDirectory() as folder, use_executor(WORKERS):
        tuned = tune(train, folder, PLAN, on_trial=lambda trial: log_progress(f"{trial.quality:.4f} {trial.record}"))
    chosen = per_query_values(tuned.best.make().fit(train), test, MEASURE)
    single = per_query_values(SingleRanker("rankrls").fit(train), test, MEASURE)
    by_test: dict[str, float] = {}
    for measured in map_ordered(WORKERS, partial(on_test, train=train, test=test), tuned.trials):
        by_test |= measured
        log_progress(f"measured {len(by_test)} configurations, best {max(by_test.values()):.4f}")
    best = max(by_test, key=by_test.__getitem__)
    behind = by_test[best] - float(chosen.mean())
    paired = compare_paired(chosen, single, groups=test.query_columns["movie"])
    return {
        "trials": len(tuned.trials),
        "configurations": len(by_test),
        "chosen": tuned.best.record,
        "chosen by cross-validation": round(tuned.best.quality, 4),
        "chosen on test": round(float(chosen.mean()), 4),
        "best by looking at test": round(by_test[best], 4),
        "which is": best,
        "chosen behind it": round(behind, 4),
        "holds": behind <= WITHIN,
        "Single on test": round(float(single.mean()), 4),
        "gain over Single": round(paired.mean_difference, 4),
        "p": float(f"{paired.p:.2g}"),
        "by family": {
            family: round(max(trial.quality for trial in tuned.trials if trial.family == family), 4)
            for family in available_families()
        },
    }


def on_test(trial: Trial, train: QuerySet, test: QuerySet) -> dict[str, float]:
    """Return the measure on the test queries of a trial, or of all settings of its sweep."""
    ranker = trial.make()
    if not isinstance(ranker, KnnRanker) or ranker.neighbor_weights != "uniform":
        return {repr(ranker): float(per_query_values(ranker.fit(train), test, MEASURE).mean())}
    fitted = ranker.set_params(n_neighbors=NEIGHBORS[-1]).fit(train)
    swept = choose_neighbors(fitted, test, NEIGHBORS, prior_strengths=PRIORS, measure=MEASURE)
    return {
        repr(replace(swept, n_neighbors=k, prior_strength=strength).apply(clone(ranker))): value
        for (k, strength), value in swept.quality.items()
    }
