"""Learning a local model and ranking with it takes less time than LightGBM's prediction alone, at 46 features.

One query of 100 candidates at a time, one thread, m = 10,000 judged queries of 40 candidates, k = 400. "defaults" is
`KnnRanker` as it comes (46 components of the summaries, Gaussian weights, pull to the global model), "uniform weights"
the paper's description and plain neighbors. ``KnnRanker.predict``, with input checks, is compared with
``LGBMRanker.predict`` with 300 trees of 31 leaves; the calls are interleaved.
"""

from __future__ import annotations

from functools import partial

import lightgbm
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import interleaved, log_progress
from kinrank import KnnRanker, QuerySet
from kinrank.learn.rankrls import RankRLS
from reproduction.knn import uniform_knn

M, K, CANDIDATES, QUERIES = 10_000, 400, 100, 200


def run() -> dict[str, object]:
    """Return the milliseconds of each method, for 46 and 136 features."""
    with threadpool_limits(limits=1):
        return {f"{features} features": measure(features) for features in (46, 136)}


def measure(n_features: int) -> dict[str, object]:
    """Return medians and 99th percentiles over many queries; the methods take turns."""
    judged, asked = random_queries(M, 40, n_features, 0), random_queries(QUERIES, CANDIDATES, n_features, 1)
    trees = lightgbm.LGBMRanker(n_estimators=300, num_leaves=31, n_jobs=1, verbosity=-1)
    some = judged[:1000]  # prediction time depends on the trees, not on the number of training rows
    trees.fit(some.X, some.grades, group=some.sizes)
    rankers = {
        "KNN Online, defaults": KnnRanker(K, reference=0).fit(judged),
        "KNN Online, uniform weights": uniform_knn(K, reference=0).fit(judged),
        "KNN Online, uniform weights, RankSVM": uniform_knn(K, learner="ranksvm", reference=0).fit(judged),
    }
    online = rankers["KNN Online, defaults"]
    log_progress(f"{n_features} features: fitted")
    seconds: dict[str, list[float]] = {}
    for query in asked:
        calls = {"LightGBM predict": partial(trees.predict, query.X)}
        calls |= {name: partial(ranker.predict, query.X) for name, ranker in rankers.items()}
        for name, times in interleaved(calls, repeats=1, warm=0).items():
            seconds.setdefault(name, []).extend(times)
    for query in asked:  # a separate loop, so that no call finds its neighbors' statistics in the CPU cache
        for name, times in interleaved(stages(online, query), repeats=1, warm=0).items():
            seconds.setdefault(name, []).extend(times)
    kept = {name: np.array(times[10:]) * 1000 for name, times in seconds.items()}
    figures = {
        name: {"median ms": round(float(np.median(times)), 3), "p99 ms": round(float(np.quantile(times, 0.99)), 3)}
        for name, times in kept.items()
    }
    baseline = float(np.median(kept["LightGBM predict"]))
    ratios = {name: round(float(np.median(kept[name])) / baseline, 2) for name in rankers}
    return {**figures, "times LightGBM's prediction": ratios}


def stages(ranker: KnnRanker, query: QuerySet) -> dict[str, object]:
    """Return the stages of KNN Online as calls to time."""
    points = ranker.points(query)
    near = ranker.model_.index.query(points, K)[1][0]
    statistics = ranker.model_.training_set.statistics
    total = statistics.sum(near)
    return {
        "of which describe": lambda: ranker.points(query),
        "of which find neighbors": lambda: ranker.model_.index.query(points, K),
        "of which sum": lambda: statistics.sum(near),
        "of which solve": lambda: total.solve(RankRLS().penalty),
    }


def random_queries(n_queries: int, n_docs: int, n_features: int, seed: int) -> QuerySet:
    """Generate random queries: time does not depend on their content."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_queries * n_docs, n_features), dtype=np.float32)
    y = np.digitize(X[:, :5].sum(axis=1) + rng.standard_normal(len(X)), [2.0, 4.0])
    return QuerySet.from_arrays(X, y, group=np.full(n_queries, n_docs))
