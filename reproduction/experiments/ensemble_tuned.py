"""Hoi and Jin: SER and SSER with C chosen as RankSVM's λ is, on the paper's data with few and all training queries.

The paper has C = 1 and does not say how RankSVM was tuned. To compare C = 1 with a λ chosen among six values would
credit RankSVM with its regularization. Here C is chosen among as many values as λ, by MAP on the validation queries;
SSER chooses γ and C together. The draws of few training queries are those of `map_ensemble`, averaged for each test
query.
Tests are paired t-tests over the 106 queries, corrected by Holm for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.measure import compare_paired, holm
from kinrank.papers.ensemble import EnsembleRanker
from reproduction.data_folder import FOLDS, DataFolder, letor_files
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.experiments.ensemble import (
    COLLECTION,
    MAIN,
    PENALTIES,
    Tried,
    average_precision,
    choose,
    try_rank_svm,
    try_ranker,
)
from reproduction.experiments.map_ensemble import ALL, FEWER, SEEDS
from reproduction.rows import pool, two_digits

COSTS = (1e-3, 0.01, 0.1, 1.0, 10.0, 100.0)
"""Values of C, as many as penalties of RankSVM."""
GAMMAS = (0.0, 0.1, 0.5, 2.0, 10.0)
PAIRS = (("SER", "RankSVM"), ("SSER", "RankSVM"), ("SSER", "SER"), ("SER", "SER, C = 1"))


def one_fold(fold: int, data: DataFolder) -> TaskResult:
    """Measure a fold with few and with all training queries."""
    train, validation, test = data.letor_fold(COLLECTION, fold)
    values: dict[str, Float64] = {}
    for size in (*FEWER, ALL):
        draws = [train]
        if size != ALL:
            orders = [np.random.default_rng([fold, int(size), seed]).permutation(len(train)) for seed in SEEDS]
            draws = [train[np.sort(order[: int(size)])] for order in orders]
        each = [measured(some, validation, test) for some in draws]
        values |= {f"{size}: {method}": np.mean([found[method] for found in each], axis=0) for method in each[0]}
    return TaskResult(values=values)


def measured(train: QuerySet, validation: QuerySet, test: QuerySet) -> dict[str, Float64]:
    """Return the average precision of each method on every test query."""
    tried: dict[tuple[float, float], Tried] = {}
    for gamma, cost in product(GAMMAS, COSTS):
        ranker = EnsembleRanker(gamma, C=cost, normalize=MAIN, orient=False).fit(train)
        tried[gamma, cost] = try_ranker(gamma, ranker, validation, test)
    methods = {
        "RankSVM": choose([try_rank_svm(MAIN, penalty, train, validation, test) for penalty in PENALTIES]),
        "SER, C = 1": tried[0.0, 1.0],
        "SER": choose([tried[0.0, cost] for cost in COSTS]),
        "SSER, C = 1": choose([tried[gamma, 1.0] for gamma in GAMMAS]),
        "SSER": choose(list(tried.values())),
    }
    return {name: average_precision(test, each.scores) for name, each in methods.items()}


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return MAP of each method, and the differences with their tests, by number of training queries."""
    values = pool(results.values())
    sizes = [str(size) for size in (*FEWER, ALL)]
    tests = {
        (size, f"{one} - {other}"): compare_paired(values[f"{size}: {one}"], values[f"{size}: {other}"])
        for size in sizes
        for one, other in PAIRS
    }
    corrected = dict(zip(tests, holm([paired.p for paired in tests.values()]).tolist(), strict=True))
    return {
        size: {
            "MAP": {
                name.partition(": ")[2]: round(float(each.mean()), 4)
                for name, each in values.items()
                if name.startswith(f"{size}: ")
            },
            "tests": {
                name: {
                    "difference": round(paired.mean_difference, 4),
                    "low": round(paired.interval[0], 4),
                    "high": round(paired.interval[1], 4),
                    "p": two_digits(paired.p),
                    "p Holm": two_digits(corrected[of, name]),
                }
                for (of, name), paired in tests.items()
                if of == size
            },
        }
        for size in sizes
    }


EXPERIMENT = Experiment(
    "ensemble-tuned",
    "sser",
    {f"fold {fold}": Task(partial(one_fold, fold), letor_files(COLLECTION), 0.5) for fold in FOLDS},
    summary,
)
