"""Hoi and Jin, Table 3: seconds to train RankSVM and SER, and to rank a query with SSER, on the 25 rankers of OHSUMED.

CPU seconds of one thread, the minimum of three runs: the least sensitive to other load on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from kinrank.papers.ensemble import EnsembleRanker
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import FOLDS, DataFolder, letor_files
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.experiments.ensemble import COLLECTION

REPEATS = 3


def one_fold(fold: int, data: DataFolder) -> TaskResult:
    """Measure the seconds of each step."""
    train, _, test = data.letor_fold(COLLECTION, fold)
    fitted = EnsembleRanker(0.5, normalize="none", orient=False).fit(train)
    return TaskResult(
        {
            "RankSVM, train": least_seconds(lambda: SingleRanker("ranksvm").fit(train)),
            "SER, train": least_seconds(lambda: EnsembleRanker(0.0, normalize="none", orient=False).fit(train)),
            "SSER, per query": least_seconds(lambda: fitted.predict(test)) / len(test),
        }
    )


def least_seconds(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call, the minimum of three runs after a first one that may compile."""
    call()
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return seconds by trial and on average, and the ratio of training times."""
    names = list(results["fold 1"].figures)
    seconds = {name: [round(fold.figures[name], 4) for fold in results.values()] for name in names}
    means = {name: float(np.mean([fold.figures[name] for fold in results.values()])) for name in names}
    return {
        "seconds": seconds,
        "mean seconds": {name: round(mean, 4) for name, mean in means.items()},
        "RankSVM over SER": round(means["RankSVM, train"] / means["SER, train"], 2),
    }


EXPERIMENT = Experiment(
    "ensemble-time",
    "sser",
    {f"fold {fold}": Task(partial(one_fold, fold), letor_files(COLLECTION), 0.02) for fold in FOLDS},
    summary,
)
