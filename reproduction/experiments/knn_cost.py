"""Geng et al., Table 1 and section 3.3.3: what each step of KNN costs, measured over n, m and k.

CPU seconds of one thread, the minimum of three runs, on generated queries of 20 features. Exponents are the slope of
the logarithm of the time over the logarithm of the size, from the second smallest size on: small sizes show overhead.

Training: the paper estimates k (k/m)^(c-1) global fits for m offline models, with c from 1.2 to 2 the exponent of
RankSVM in the number of pairs. c is measured here for our RankSVM, which builds no pairs, and the ratio for RankRLS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from kinrank.arrays import Int64
from kinrank.data.queryset import QuerySet
from kinrank.kin.indexes.base import ExactIndex, Neighborhoods
from kinrank.learn.rankrls import RankRLS
from kinrank.rankers.knn import KnnRanker, OfflineModels
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.experiments.ensemble_time import least_seconds
from reproduction.knn import uniform_knn
from reproduction.rows import two_digits

FEATURES, DOCUMENTS = 20, 20
DOCS = (1_000, 10_000, 100_000)
JUDGED = (10_000, 20_000, 40_000, 80_000)
NEIGHBORS = (50, 100, 200, 400, 800)
M, K, N = 10_000, 400, 1_000
TRAINED = (500, 1_000, 2_000, 4_000)
"""Judged queries of the training curves."""
OFFLINE = 1_000
"""Models learned in advance."""
RATIO = "offline models over a global fit, over k"
REPEATS = 5
"""Calls per timing."""
Curve = dict[str, float]


def testing(_: DataFolder) -> TaskResult:
    """Measure the steps of ranking a query: over n, over m, and over k."""
    curves: dict[str, Curve] = {}
    ranker = uniform_knn(K, reference=0).fit(queries(K, DOCUMENTS, 0))
    weights = np.ones(FEATURES, dtype=np.float32)
    for n in DOCS:
        asked = queries(1, n, 1)
        _add(curves, "query feature, over n", n, partial(ranker.points, asked))
        _add(curves, "rank, over n", n, partial(ranked, asked, weights))
    for m in JUDGED:
        for name, call in steps(m, K).items():
            _add(curves, f"{name}, over m", m, call)
    for k in NEIGHBORS:
        of_k = steps(M, k)
        for name in ("k nearest", "offline model"):
            _add(curves, f"{name}, over k", k, of_k[name])
    return TaskResult(curves)


def ranked(asked: QuerySet, weights: Any) -> Int64:
    """Score and sort the candidates of a query, as one model for all does, too."""
    order: Int64 = np.argsort(-(asked.X @ weights))
    return order


def steps(m: int, k: int) -> dict[str, Callable[[], object]]:
    """Return the steps that depend on m and k, as calls.

    The training sets of the models are windows of k on a ring of m queries: their overlaps cost what those of
    neighborhoods cost, and no m neighbor searches are needed to set them up.
    """
    points = np.random.default_rng(0).standard_normal((m + 1, FEATURES), dtype=np.float32)
    index = ExactIndex().fit(points[:-1])
    ring = (np.arange(m)[:, None] + np.arange(k) - k // 2) % m
    sets = OfflineModels(
        [RankRLS()] * m, Neighborhoods(ring.ravel(), np.arange(m + 1) * k, np.zeros(ring.size)), np.ones(m)
    )
    return {
        "k nearest": partial(index.query, points[-1:], k),
        "the nearest": partial(index.query, points[-1:], 1),
        "offline model": partial(sets.most_overlapping, ring[m // 2]),
    }


def _add(curves: dict[str, Curve], name: str, size: int, call: Callable[[], object]) -> None:
    curves.setdefault(name, {})[str(size)] = least_seconds(lambda: [call() for _ in range(REPEATS)]) / REPEATS


def training(_: DataFolder) -> TaskResult:
    """Measure global fits over m, and m offline models over k relative to one global fit."""
    curves: dict[str, Curve] = {}
    for m in TRAINED:
        judged = queries(m, DOCUMENTS, 0)
        for learner in ("ranksvm", "rankrls"):
            seconds = least_seconds(partial(SingleRanker(learner).fit, judged))
            curves.setdefault(f"{learner}, over m", {})[str(m)] = seconds
    judged = queries(OFFLINE, DOCUMENTS, 0)
    single = least_seconds(partial(SingleRanker("rankrls").fit, judged))
    curves[RATIO] = {str(k): least_seconds(partial(_offline(k).fit, judged)) / single for k in NEIGHBORS}
    return TaskResult(curves)


def _offline(k: int) -> KnnRanker:
    return uniform_knn(k, mode="offline-2", reference=0, n_jobs=1)


def queries(n_queries: int, n_docs: int, seed: int) -> QuerySet:
    """Generate random queries: time hardly depends on their content."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_queries * n_docs, FEATURES), dtype=np.float32)
    y = np.digitize(X[:, :5].sum(axis=1) + rng.standard_normal(len(X)), [2.0, 4.0])
    return QuerySet.from_arrays(X, y, group=np.full(n_queries, n_docs))


def exponent(curve: Mapping[str, float]) -> float:
    """Return the slope in logarithms, without the smallest size."""
    sizes, seconds = (np.log(list(each)[1:]) for each in (map(float, curve), curve.values()))
    return float(np.polyfit(sizes, seconds, 1)[0])


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the curves in milliseconds, their exponents, and the cost of a query by step."""
    curves: dict[str, Curve] = results["testing"].figures | results["training"].figures
    ratio = curves.pop(RATIO)
    at = {"query feature, over n": N, "k nearest, over m": M, "offline model, over m": M, "rank, over n": N}
    by_step = {name.partition(",")[0]: 1000 * curves[name][str(size)] for name, size in at.items()}
    low, c = estimate(ratio, 1.2), exponent(curves["ranksvm, over m"])
    return {
        "milliseconds": {
            name: {size: two_digits(1000 * each) for size, each in curve.items()} for name, curve in curves.items()
        },
        "exponent": {name: round(exponent(curve), 2) for name, curve in curves.items()},
        "milliseconds by step": {name: two_digits(each) for name, each in by_step.items()},
        "share of ranking in Offline-1": round(by_step["rank"] / sum(by_step.values()), 2),
        RATIO: {k: round(each, 1) for k, each in ratio.items()},
        "the paper's estimate, c = 1.2": low,
        "the paper's estimate, c measured": estimate(ratio, c),
        "measured over the estimate, c = 1.2": {k: two_digits(ratio[k] / each) for k, each in low.items()},
    }


def estimate(neighbors: Iterable[str], c: float) -> dict[str, float]:
    """Return k (k/m)^(c-1), the paper's cost of the offline models in global fits."""
    return {k: round(int(k) * (int(k) / OFFLINE) ** (c - 1), 1) for k in neighbors}


EXPERIMENT = Experiment(
    "knn-cost", "geng", {"testing": Task(testing, minutes=0.5), "training": Task(training, minutes=0.5)}, summary
)
