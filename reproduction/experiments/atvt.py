"""Zha et al., Tables 2 to 7: aTVT compared with the same boosted trees without it, DCG@5 on four collections.

The paper's data are not public: MQ2007, MQ2008, OHSUMED and MSRD replace them. Both sides are LightGBM regression on
the grades with the same settings. The number of trees is chosen for the plain trees on the validation queries by DCG@5,
and aTVT uses the same number. Its penalties are chosen on the validation queries too, among finite ones; the figures
include how often the plain trees beat the best of them. Gains on the test queries are tested with Wilcoxon's
signed-rank test: LETOR pools its five folds, MSRD uses its split by movie. LambdaMART with the same trees is included
for comparison: it learns from pairs within a query, so a level β has no effect on it.

The line of a test query is fitted to its own grades and the plain trees' scores. Grouping queries by the distance of
their line from (1, 0), |α - 1| + |β|, therefore does not depend on which queries gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.learn.lambdamart import LambdaMART
from kinrank.learn.regressors import BoostedTrees
from kinrank.learn.target_transform import TargetTransform
from kinrank.measure import DCG
from kinrank.rankers.atvt import ATVTRanker
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import MSRD_FILES, DataFolder
from reproduction.experiment import Experiment, Task, TaskResult, letor_tasks, results_by_fold
from reproduction.experiments.atvt_tables import collection_figures
from reproduction.rows import per_query

MEASURE = DCG(ties="average") @ 5
N_TREES = (25, 50, 100, 200)
TREE: dict[str, Any] = {"n_leaves": 15, "learning_rate": 0.1, "n_threads": 1}
N_ROUNDS = 2
Setting = tuple[Literal[1, 2], float, float]
"""(p, λ_α, λ_β)"""
PAPER: Setting = (2, 10.0, 1.0)
"""The paper's best setting."""
FREE: Setting = (2, 0.0, 0.0)
CHOICES: tuple[Setting, ...] = (
    (2, 1.0, 1.0),
    PAPER,
    (2, 1.0, 10.0),
    (2, 10.0, 10.0),
    (2, 100.0, 10.0),
    (2, 100.0, 100.0),
    (1, 10.0, 1.0),
    (1, 10.0, 10.0),
)
LETOR = {"MQ2007": 0.5, "MQ2008": 0.3, "OHSUMED": 0.25}
"""Collections with five folds, and the minutes that a fold takes."""


def one_fold(collection: str, fold: int, data: DataFolder) -> TaskResult:
    """Measure a fold of a LETOR collection."""
    return measured(*data.letor_fold(collection, fold))


def movies(data: DataFolder) -> TaskResult:
    """Measure MSRD."""
    return measured(*data.msrd())


def measured(train: QuerySet, vali: QuerySet, test: QuerySet) -> TaskResult:
    """Measure DCG@5 of the plain trees and of every setting on each test query, and the lines of the queries."""
    plains = [ATVTRanker(BoostedTrees(n_trees, **TREE), n_rounds=0).fit(train) for n_trees in N_TREES]
    on_vali = [per_query(ranker, vali, MEASURE).mean() for ranker in plains]
    plain, n_trees = plains[int(np.argmax(on_vali))], N_TREES[int(np.argmax(on_vali))]
    rankers = {setting: _fitted(setting, n_trees, train) for setting in (*CHOICES, FREE)}
    quality = {setting: per_query(rankers[setting], vali, MEASURE).mean() for setting in CHOICES}
    chosen = max(quality, key=quality.__getitem__)
    values = {
        "plain": per_query(plain, test, MEASURE),
        "LambdaMART": per_query(SingleRanker(LambdaMART(n_trees, **TREE)).fit(train), test, MEASURE),
    }
    values |= {label(setting): per_query(ranker, test, MEASURE) for setting, ranker in rankers.items()}
    values["chosen"] = values[label(chosen)]
    for name, setting in (("chosen", chosen), ("paper", PAPER)):
        alpha, beta = _transform(setting).solve(plain.predict(test), test.grades, test.offsets)
        values |= {f"alpha, {name}": alpha, f"beta, {name}": beta}
    raised = np.array([np.diff(ranker.objective_) > 0 for setting, ranker in rankers.items() if setting != FREE])
    figures = {
        "n_trees": n_trees,
        "chosen": list(chosen),
        "plain is best on validation": bool(max(on_vali) >= quality[chosen]),
        "refits that raised the objective": float(raised[:, 1::2].mean()),
        "lines": {label(setting): _moments(ranker) for setting, ranker in rankers.items()},
    }
    return TaskResult(figures, values)


def _fitted(setting: Setting, n_trees: int, train: QuerySet) -> ATVTRanker:
    p, alpha, beta = setting
    ranker = ATVTRanker(
        BoostedTrees(n_trees, **TREE), p=p, alpha_penalty=alpha, beta_penalty=beta, n_rounds=N_ROUNDS, tol=0.0
    )
    return ranker.fit(train)


def _transform(setting: Setting) -> TargetTransform:
    p, alpha, beta = setting
    return TargetTransform(p=p, alpha_penalty=alpha, beta_penalty=beta)


def _moments(ranker: ATVTRanker) -> list[float]:
    """Return mean and variance of α and of β over the training queries."""
    lines: list[Float64] = [ranker.alpha_, ranker.beta_]
    return [float(moment) for line in lines for moment in (line.mean(), line.var())]


def label(setting: Setting) -> str:
    """Return the name of a setting.

    Examples
    --------
    >>> label(PAPER)
    'p=2 alpha=10 beta=1'
    """
    return "p={} alpha={:g} beta={:g}".format(*setting)


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the tables of each collection, over the test queries of all folds."""
    labels = [label(setting) for setting in (*CHOICES, FREE)]
    folds = {name: results_by_fold(results, name) for name in LETOR} | {"MSRD": [results["MSRD"]]}
    return {name: collection_figures(each, labels) for name, each in folds.items()}


EXPERIMENT = Experiment(
    "atvt",
    "atvt",
    letor_tasks(one_fold, LETOR) | {"MSRD": Task(movies, MSRD_FILES, 3.0)},
    summary,
)
