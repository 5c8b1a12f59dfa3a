"""Local models, section 2.3: the time to rank a query, which is longest for SelectRanker.

CPU seconds of one thread to rank the test queries of the first fold of MQ2007, the minimum of three runs, by number of
clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from reproduction.data_folder import DataFolder, letor_files
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.experiments.cluster_methods import cluster_ranker
from reproduction.experiments.ensemble_time import least_seconds

COLLECTION = "MQ2007"
MODES = {"Naive": "naive", "SelectRanker": "select", "Transform": "transform"}
CLUSTERS = (5, 50)


def measured(data: DataFolder) -> TaskResult:
    """Measure milliseconds per query of each mode and number of clusters."""
    train, _, test = data.letor_fold(COLLECTION, 1)
    figures: dict[str, dict[str, float]] = {}
    for name, mode in MODES.items():
        figures[name] = {}
        for n_clusters in CLUSTERS:
            ranker = cluster_ranker(mode, n_clusters).fit(train)
            seconds = least_seconds(partial(ranker.predict, test))
            figures[name][str(n_clusters)] = 1000 * seconds / len(test)
    return TaskResult(figures)


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return milliseconds per query, and SelectRanker's time relative to the slower of the others."""
    times = results["all"].figures
    most = str(CLUSTERS[-1])
    return {
        "milliseconds": {name: {n: round(each, 3) for n, each in row.items()} for name, row in times.items()},
        "SelectRanker over the slower of the others": round(
            times["SelectRanker"][most] / max(times["Naive"][most], times["Transform"][most]), 1
        ),
    }


EXPERIMENT = Experiment("cluster-time", "local-models", {"all": Task(measured, letor_files(COLLECTION), 0.2)}, summary)
