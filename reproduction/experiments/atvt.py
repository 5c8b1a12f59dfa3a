"""Zha et al., Tables 2 to 7: aTVT compared with the same boosted trees without it, DCG@5 on three collections.

The paper's data are not public: MQ2007, MQ2008 and MSRD replace them. Both sides are LightGBM regression on
the grades with the same settings. The number of trees is chosen for the plain trees on the validation queries by DCG@5,
and aTVT uses the same number. Penalties are chosen on the validation queries. Gains on the test queries are tested with
Wilcoxon's signed-rank test: LETOR pools its five folds, MSRD uses its split by movie.

Two readings of the method are measured:

paper
    The experimental procedure (section 4.3) as far as the text goes. All rows count alike, and each round fits its
    lines to the targets of the round before, so that small steps compose ("then α_q ="). K = 10 rounds: Table 7 sorts
    queries by |α^0.1 - 1| + |β / 10|, the mean step of ten rounds. p = 1 has K = 1, λ = 100 and 0.2 (section 4.4).
ours
    The objective (Eq. 3) as `ATVTRanker` minimizes it by default: weights α², lines fitted to the grades, two rounds.

In five folds every query is in three training sets. Its line is the mean of the three, as sorted in Table 7. MSRD has
one split, so its test queries have no line. LambdaMART with the same trees is included for comparison: it learns from
pairs within a query, so a level β has no effect on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import DCG
from kinrank.papers.atvt import ATVTRanker, BoostedTrees
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import MSRD_FILES, DataFolder
from reproduction.experiment import Experiment, Task, TaskResult, letor_tasks, results_by_fold
from reproduction.experiments.atvt_tables import collection_figures
from reproduction.rows import per_query

MEASURE = DCG(ties="average") @ 5
N_TREES = (25, 50, 100, 200)
TREE: dict[str, Any] = {"n_leaves": 15, "learning_rate": 0.1, "n_threads": 1}


class Setting(NamedTuple):
    """A reading of the method and its parameters.

    Attributes
    ----------
    reading : {"paper", "ours", "ours, unweighted"}
        Whose procedure.
    p : {1, 2}
        The norm of the penalties.
    alpha, beta : float
        λ_α and λ_β.
    rounds : int
        K, the number of rounds.
    """

    reading: str
    p: Literal[1, 2]
    alpha: float
    beta: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.reading}: p={self.p} alpha={self.alpha:g} beta={self.beta:g} K={self.rounds}"


PAPER = Setting("paper", 2, 10.0, 1.0, 10)
"""The paper's best penalties."""
L1 = Setting("paper", 1, 100.0, 0.2, 1)
"""The paper's only setting with p = 1."""
FREE = Setting("paper", 2, 0.0, 0.0, 10)
OURS = Setting("ours", 2, 10.0, 1.0, 2)
PAPER_GRID = tuple(Setting("paper", 2, alpha, beta, 10) for alpha in (1.0, 10.0) for beta in (1.0, 10.0))
OUR_GRID = (*(Setting("ours", 2, alpha, beta, 2) for alpha in (1.0, 10.0) for beta in (1.0, 10.0)),)
OTHERS = (
    PAPER._replace(rounds=1),
    L1,
    FREE,
    FREE._replace(rounds=2),
    OURS._replace(reading="ours, unweighted"),
    FREE._replace(reading="ours", rounds=2),
)
FEW = (PAPER, L1, OURS)
"""The settings measured on MSRD, whose fits take long."""
LETOR = {"MQ2007": 0.9, "MQ2008": 0.3}
"""Collections with five folds, and the minutes that a fold takes."""


def one_fold(collection: str, fold: int, data: DataFolder) -> TaskResult:
    """Measure a fold of a LETOR collection."""
    return measured(*data.letor_fold(collection, fold), PAPER_GRID, OUR_GRID, OTHERS)


def movies(data: DataFolder) -> TaskResult:
    """Measure MSRD."""
    return measured(*data.msrd(), (PAPER,), (OURS,), (L1,))


def measured(
    train: QuerySet,
    vali: QuerySet,
    test: QuerySet,
    paper_grid: tuple[Setting, ...],
    our_grid: tuple[Setting, ...],
    others: tuple[Setting, ...],
) -> TaskResult:
    """Measure DCG@5 of the plain trees and of every setting on each test query, and the lines of training queries."""
    plains = [fitted(PAPER._replace(rounds=0), n_trees, train) for n_trees in N_TREES]
    on_vali = [per_query(ranker, vali, MEASURE).mean() for ranker in plains]
    plain, n_trees = plains[int(np.argmax(on_vali))], N_TREES[int(np.argmax(on_vali))]
    rankers = {setting: fitted(setting, n_trees, train) for setting in (*paper_grid, *our_grid, *others)}
    values: dict[str, Any] = {
        "plain": per_query(plain, test, MEASURE),
        "LambdaMART": per_query(SingleRanker(LambdaMART(n_trees, **TREE)).fit(train), test, MEASURE),
    }
    values |= {str(setting): per_query(ranker, test, MEASURE) for setting, ranker in rankers.items()}
    figures: dict[str, Any] = {
        "n_trees": n_trees,
        "lines": {str(setting): _moments(ranker) for setting, ranker in rankers.items()},
        "chosen": {},
    }
    for reading, grid in (("paper", paper_grid), ("ours", our_grid)):
        quality = {setting: per_query(rankers[setting], vali, MEASURE).mean() for setting in grid}
        chosen = max(quality, key=quality.__getitem__)
        values[f"{reading}, chosen"] = values[str(chosen)]
        figures["chosen"][reading] = [*chosen[2:4], bool(max(on_vali) >= quality[chosen])]
    values |= {"qid": np.asarray(test.qid, dtype=str), "train qid": np.asarray(train.qid, dtype=str)}
    values |= {"train alpha": rankers[PAPER].alpha_, "train beta": rankers[PAPER].beta_}
    return TaskResult(figures, values)


def fitted(setting: Setting, n_trees: int, train: QuerySet) -> ATVTRanker:
    """Fit aTVT as a setting reads it."""
    return ATVTRanker(
        BoostedTrees(n_trees, **TREE),
        p=setting.p,
        alpha_penalty=setting.alpha,
        beta_penalty=setting.beta,
        n_rounds=setting.rounds,
        tol=0.0,
        weighted=setting.reading == "ours",
        composed=setting.reading == "paper",
    ).fit(train)


def _moments(ranker: ATVTRanker) -> list[float]:
    """Return mean and variance of α and of β over the training queries."""
    lines: list[Float64] = [ranker.alpha_, ranker.beta_]
    return [float(moment) for line in lines for moment in (line.mean(), line.var())]


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the tables of each collection, over the test queries of all folds."""
    folds = {name: results_by_fold(results, name) for name in LETOR} | {"MSRD": [results["MSRD"]]}
    return {name: collection_figures(each, str(PAPER)) for name, each in folds.items()}


EXPERIMENT = Experiment(
    "atvt",
    "atvt",
    letor_tasks(one_fold, LETOR) | {"MSRD": Task(movies, MSRD_FILES, 2.5)},
    summary,
)
