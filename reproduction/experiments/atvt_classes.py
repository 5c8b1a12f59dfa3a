"""Zha et al., sections 3 and 5: α and β per class of queries, and a monotone g_q, compared with a line per query.

The paper names both and measures neither. mwmbl's queries have intents, which are the classes, and four grades, so that
a monotone function has something to learn; MQ2008 has three grades and no classes. As in
`reproduction.experiments.atvt` the number of trees is chosen for the plain trees on validation queries, the penalties
(1 and 10) for each method; DCG@5, Wilcoxon's test over the test queries of five folds.

class
    h is learned by regression, so queries matter only for lines: aTVT with the class in place of the query. A placebo
    deals the same intents to other queries.
monotone
    "We seek to find h(x) to match g_q^-1(y)" (section 3). g_q^-1 is an increasing function of the grade: the isotonic
    regression of h on the grades of a query, pulled to the grades themselves by λ judged documents per grade. Without
    this pull a constant h would fit best. Two rounds, as ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from sklearn.isotonic import isotonic_regression

from kinrank.arrays import Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.papers.atvt import BoostedTrees
from reproduction.data_folder import FOLDS, DataFolder, text_files
from reproduction.experiment import Experiment, Task, TaskResult, letor_tasks, results_by_fold
from reproduction.experiments.atvt import MEASURE, N_TREES, OUR_GRID, PAPER, TREE, fitted
from reproduction.experiments.atvt_tables import gain
from reproduction.rows import per_query, pool

PENALTIES = (1.0, 10.0)
ROUNDS = 2
LETOR = {"MQ2008": 0.1}
WEB = "mwmbl"
LINES, CLASSES, PLACEBO = "line per query", "line per class", "line per class, shuffled"
MONOTONE, MONOTONE_CLASSES = "monotone per query", "monotone per class"
Scores = Callable[[QuerySet], Float64]


def one_fold(collection: str, fold: int, data: DataFolder) -> TaskResult:
    """Measure a fold of a LETOR collection, which has no classes."""
    return measured(*data.letor_fold(collection, fold), None)


def web(fold: int, data: DataFolder) -> TaskResult:
    """Measure a fold of mwmbl: one of five folds to test, the next to choose settings, three to train."""
    queries, folds = data.judged_text(WEB)
    vali = fold % len(FOLDS) + 1
    train = queries[(folds != fold) & (folds != vali)]
    return measured(train, queries[folds == vali], queries[folds == fold], np.asarray(train.query_columns["intent"]))


def measured(train: QuerySet, vali: QuerySet, test: QuerySet, classes: Any) -> TaskResult:
    """Measure DCG@5 of the plain trees and of each method on every test query."""
    plains = {n_trees: fitted(PAPER._replace(rounds=0), n_trees, train) for n_trees in N_TREES}
    n_trees = max(plains, key=lambda each: per_query(plains[each], vali, MEASURE).mean())
    tried: dict[str, list[Scores]] = {
        LINES: [fitted(setting, n_trees, train).predict for setting in OUR_GRID],
        MONOTONE: [monotone(train, train.query_of_row, penalty, n_trees) for penalty in PENALTIES],
    }
    if classes is not None:
        shuffled = np.random.default_rng(0).permutation(classes)
        for name, label in ((CLASSES, classes), (PLACEBO, shuffled)):
            merged = by_class(train, label)
            tried[name] = [fitted(setting, n_trees, merged).predict for setting in OUR_GRID]
        number = np.unique(classes, return_inverse=True)[1][train.query_of_row]
        tried[MONOTONE_CLASSES] = [monotone(train, number, penalty, n_trees) for penalty in PENALTIES]
    values = {"plain": per_query(plains[n_trees], test, MEASURE)}
    for name, each in tried.items():
        values[name] = _quality(max(each, key=lambda scores: _quality(scores, vali).mean()), test)
    return TaskResult({"n_trees": n_trees}, values)


def by_class(queries: QuerySet, classes: Any) -> QuerySet:
    """Return the rows of queries as one query per class."""
    qid = np.asarray(classes, dtype=str)[queries.query_of_row]
    return QuerySet.from_arrays(queries.X, queries.grades, qid=qid, feature_names=queries.feature_names)


def monotone(train: QuerySet, owner: Int64, penalty: float, n_trees: int) -> Scores:
    """Alternate between h and the increasing targets of each owner, a number per row; return h."""
    grades = target = train.grades.astype(np.float64)
    h = BoostedTrees(n_trees, **TREE).fit(train.X, target)
    for _ in range(ROUNDS):
        target = increasing_targets(h.predict(train.X), grades, owner, penalty)
        h = BoostedTrees(n_trees, **TREE).fit(train.X, target)
    return lambda queries: h.predict(queries.X)


def increasing_targets(h: Float64, grades: Float64, owner: Int64, penalty: float) -> Float64:
    """Return g^-1(y) of each row: of each owner the increasing t with the least Σ (t(y) - h)² + λ Σ_grades (t(y) - y)².

    Examples
    --------
    >>> h, grades = np.array([0.0, 3.0, 1.0, 9.0]), np.array([0.0, 1.0, 2.0, 0.0])
    >>> increasing_targets(h, grades, np.array([0, 0, 0, 1]), 0.0).tolist()
    [0.0, 2.0, 2.0, 9.0]
    """
    levels, level = np.unique(grades, return_inverse=True)
    shape = (int(owner.max()) + 1, len(levels))
    cell = owner * shape[1] + level
    rows = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape) + penalty
    total = np.bincount(cell, h, shape[0] * shape[1]).reshape(shape) + penalty * levels
    targets = np.zeros(shape)
    for each, (weight, moment) in enumerate(zip(rows, total, strict=True)):
        judged = weight > 0
        targets[each, judged] = isotonic_regression(moment[judged] / weight[judged], sample_weight=weight[judged])
    result: Float64 = targets.ravel()[cell]
    return result


def _quality(scores: Scores, queries: QuerySet) -> Float64:
    return MEASURE.per_query(scores(queries), queries.grades, queries.offsets)


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the gain of each method over the plain trees, and of classes over their placebo."""
    folds = {name: results_by_fold(results, name) for name in LETOR}
    folds[WEB] = [results[f"{WEB} fold {fold}"] for fold in FOLDS]
    figures: dict[str, Any] = {}
    for name, each in folds.items():
        values = pool(each)
        plain = values.pop("plain")
        figures[name] = {"test queries": len(plain), "without": round(float(plain.mean()), 4)}
        figures[name]["gains"] = {method: gain(own, plain) for method, own in values.items()}
        figures[name]["monotone over lines"] = gain(values[MONOTONE], values[LINES])
        if PLACEBO in values:
            figures[name]["classes over shuffled"] = gain(values[CLASSES], values[PLACEBO])
    return figures


EXPERIMENT = Experiment(
    "atvt-classes",
    "atvt",
    letor_tasks(one_fold, LETOR)
    | {f"{WEB} fold {fold}": Task(partial(web, fold), text_files(WEB), 0.4) for fold in FOLDS},
    summary,
)
