"""Find out when ensembles gain: a generated world with two dials, and real collections placed in it.

The worlds have 25 rankers that are equally good on average, so that every difference between their weights is chance.
The dials are how much of their errors the rankers share, and how many training queries there are. SER and SSER are
compared with RankSVM, once almost without a penalty and once with λ chosen on validation queries. γ is chosen there,
too. The measure is MAP; scores are scaled to 0..1 within each query for all methods.

Real collections are placed by the number of their training queries and by the mean rank correlation of their rankers
within a query, which is measured alike in the worlds. The paper's data is also placed with fewer training queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import rankdata

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.papers.ensemble import EnsembleRanker
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, Task, TaskResult, letor_tasks, results_by_fold
from reproduction.experiments.ensemble import (
    COLLECTION,
    MAIN,
    PENALTIES,
    average_precision,
    choose,
    try_rank_svm,
    try_ranker,
)
from reproduction.experiments.map_local import gain
from reproduction.rows import pool

SHARED = (0.0, 0.3, 0.6, 0.9)
QUERIES = (5, 10, 20, 60, 200)
N_RANKERS, N_DOCS, N_VALIDATION, N_TEST, SEEDS = 25, 30, 40, 100, (0, 1, 2, 3)
SIGNAL, NOISE = 0.7, 1.0
"""Weight of the relevance in a ranker's score, and the standard deviation of the noise of judgments."""
GAMMAS = (0.1, 0.5, 2.0, 10.0)
WEAKEST = min(PENALTIES)
ALL = "all"
FEWER = (5, 20)
"""Numbers of training queries with which the paper's data is placed, besides all of them."""
GAINS = {
    "SER over RankSVM without penalty": ("SER", "RankSVM without penalty"),
    "SER over RankSVM": ("SER", "RankSVM"),
    "SSER over SER": ("SSER", "SER"),
    "SSER over RankSVM": ("SSER", "RankSVM"),
    "SSER over RankSVM without penalty": ("SSER", "RankSVM without penalty"),
}


def world(shared: float, _: DataFolder) -> TaskResult:
    """Measure the worlds of one share of common errors, pooled over the seeds."""
    figures: dict[str, Any] = {}
    for n_train in QUERIES:
        results, alike = [], []
        for seed in SEEDS:
            rng = np.random.default_rng([seed, n_train, round(100 * shared)])
            split = [generate(n, shared, rng) for n in (n_train, N_VALIDATION, N_TEST)]
            results.append(TaskResult(values=measured(*split)))
            alike.append(redundancy(split[2]))
        figures[str(n_train)] = {**compared(results), "redundancy": round(float(np.mean(alike)), 4)}
    return TaskResult(figures)


def generate(n_queries: int, shared: float, rng: np.random.Generator) -> QuerySet:
    """Generate queries with grades 0 to 2 and rankers that share a part of their errors."""
    relevance = rng.standard_normal((n_queries, N_DOCS, 1))
    own = rng.standard_normal((n_queries, N_DOCS, N_RANKERS))
    common = rng.standard_normal((n_queries, N_DOCS, 1))
    scores = SIGNAL * relevance + np.sqrt(1 - shared) * own + np.sqrt(shared) * common
    judged = relevance[..., 0] + NOISE * rng.standard_normal((n_queries, N_DOCS))
    grades = np.digitize(judged, [0.8, 1.5]).astype(np.float64)
    return QuerySet.from_arrays(scores.reshape(-1, N_RANKERS), grades.ravel(), group=np.full(n_queries, N_DOCS))


def one_fold(collection: str, fold: int, data: DataFolder) -> TaskResult:
    """Measure a fold of a collection; the paper's data also with fewer training queries, drawn once per seed."""
    train, validation, test = data.letor_fold(collection, fold)
    orient = collection != COLLECTION
    by_size = {ALL: measured(train, validation, test, orient=orient)}
    sizes = {ALL: len(train)}
    for n in FEWER if collection == COLLECTION else ():
        draws = [np.random.default_rng([fold, n, seed]).permutation(len(train))[:n] for seed in SEEDS]
        each = [measured(train[np.sort(draw)], validation, test, orient=orient) for draw in draws]
        by_size[str(n)] = {method: np.mean([values[method] for values in each], axis=0) for method in each[0]}
        sizes[str(n)] = n
    values = {f"{size}: {method}": each for size, methods in by_size.items() for method, each in methods.items()}
    return TaskResult({"queries": sizes, "redundancy": redundancy(test)}, values)


def measured(train: QuerySet, validation: QuerySet, test: QuerySet, *, orient: bool = False) -> dict[str, Float64]:
    """Return the average precision of each method on every test query.

    Features that are not rankers need `orient`: some of them are higher for worse documents.
    """
    svms = [try_rank_svm(MAIN, penalty, train, validation, test) for penalty in PENALTIES]
    ser, *sser = (
        try_ranker(gamma, EnsembleRanker(gamma, normalize=MAIN, orient=orient).fit(train), validation, test)
        for gamma in (0.0, *GAMMAS)
    )
    methods = {
        "RankSVM without penalty": next(each for each in svms if each.setting == WEAKEST),
        "RankSVM": choose(svms),
        "SER": ser,
        "SSER": choose(sser),
    }
    return {name: average_precision(test, each.scores) for name, each in methods.items()}


def compared(results: list[TaskResult], prefix: str = "") -> dict[str, Any]:
    """Return the gain in MAP and its p-value for each pair of methods."""
    values = pool(results)
    return {name: gain(values[prefix + one], values[prefix + other]) for name, (one, other) in GAINS.items()}


def redundancy(queries: QuerySet) -> float:
    """Return the mean rank correlation of two rankers within a query; constant rankers are left out.

    Examples
    --------
    >>> scores = np.array([[1.0, 10.0, 3.0], [2.0, 30.0, 2.0], [3.0, 90.0, 1.0]])
    >>> round(redundancy(QuerySet.from_arrays(scores, [0, 0, 1], group=[3])), 4)
    -0.3333
    """
    means = []
    for query in queries:
        ranks = rankdata(query.X, axis=0)
        ranks = ranks[:, ranks.std(axis=0) > 0]
        n = ranks.shape[1]
        if n > 1:
            means.append((np.corrcoef(ranks.T).sum() - n) / (n * (n - 1)))
    return float(np.mean(means))


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the maps, the redundancy of the worlds, and the places of the collections."""
    worlds = {f"{shared:g}": results[f"shared {shared:g}"].figures for shared in SHARED}
    few, many = str(min(QUERIES)), str(max(QUERIES))
    return {
        "shared": SHARED,
        "queries": QUERIES,
        "gain": {
            name: [[worlds[f"{shared:g}"][str(n)][name]["gain"] for n in QUERIES] for shared in SHARED]
            for name in GAINS
        },
        "redundancy": [
            round(float(np.mean([worlds[f"{shared:g}"][str(n)]["redundancy"] for n in QUERIES])), 4)
            for shared in SHARED
        ],
        "corners": {
            "few queries, shared errors": worlds["0.9"][few],
            "few queries, own errors": worlds["0"][few],
            "many queries, shared errors": worlds["0.9"][many],
            "many queries, own errors": worlds["0"][many],
        },
        "places": {name: place for collection in PLACES for name, place in _placed(collection, results)},
    }


def _placed(collection: str, results: Mapping[str, TaskResult]) -> list[tuple[str, dict[str, Any]]]:
    folds = results_by_fold(results, collection)
    places = []
    for size in folds[0].figures["queries"]:
        n = round(float(np.mean([fold.figures["queries"][size] for fold in folds])))
        statistics = {
            "training queries": n,
            "redundancy": round(float(np.mean([fold.figures["redundancy"] for fold in folds])), 4),
        }
        places.append((f"{collection}, {n} queries", statistics | compared(folds, f"{size}: ")))
    return places


PLACES = {COLLECTION: 0.2, "OHSUMED": 0.15, "MQ2008": 0.1}
"""Minutes of a fold of each collection."""
EXPERIMENT = Experiment(
    "map-ensemble",
    "sser",
    {f"shared {shared:g}": Task(partial(world, shared), minutes=0.2) for shared in SHARED}
    | letor_tasks(one_fold, PLACES),
    summary,
)
