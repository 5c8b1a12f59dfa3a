"""What non-negative weights cost in NDCG@10 on MSRD, MQ2007 and mwmbl, for Single and KNN Online.

Three forms of each ranker: any sign, no weight below zero, and a sign per feature: a feature whose pairs, summed over
the training queries, point downwards is declared lower-is-better, the others higher-is-better. Paired t-test of each
form against any sign, corrected by Holm for the tests of a collection. KNN has the settings of the pages (MSRD: k = 400
gaussian neighbors, pulled to the global model; mwmbl: k = 100; MQ2007: k = 400); nothing is tuned here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.common import interleaved, judged_text, letor_folds, log_progress, medians, msrd
from benchmarks.knn_msrd import per_query, row
from kinrank import KnnRanker, QuerySet, SingleRanker
from kinrank.describe import Describer
from kinrank.learn.prepare import Missing, Preparer, Scale
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.statistics import PairStatistics
from kinrank.measure import holm
from kinrank.rankers import Ranker

PULLED = {"prior": "global", "prior_strength": 0.1}
FREE = "any sign"


def run() -> dict[str, object]:
    """Every form on every collection, and the time of the solve."""
    return {collection: figures(collection) for collection in ("MSRD", "MQ2007", "mwmbl")} | {"solve": solve_time()}


def figures(collection: str) -> dict[str, object]:
    """NDCG@10 of each form over all test queries, against the form with any sign."""
    quality: dict[str, list[np.ndarray]] = {}
    weights: dict[str, list[np.ndarray]] = {}
    lower: list[int] = []
    for train, test, settings in splits(collection):
        names = downwards(train, settings["scale"], settings["missing"])
        lower.append(len(names))
        for name, ranker in forms(names, settings).items():
            quality.setdefault(name, []).append(per_query(ranker.fit(train), test))
            weights.setdefault(name, []).append(ranker.weights(test))
    values = {name: np.concatenate(parts) for name, parts in quality.items()}
    rows = {name: row(value, values[f"{name.split(',')[0]}, {FREE}"]) for name, value in values.items()}
    for name, entry in rows.items():
        entry["weights below 0"] = round(float(np.mean(np.concatenate(weights[name]) < 0)), 3)
        entry["weights at 0"] = round(float(np.mean(np.concatenate(weights[name]) == 0)), 3)
    tested = [name for name in rows if not name.endswith(FREE)]
    for name, corrected in zip(tested, holm([rows[name]["p"] for name in tested]), strict=True):
        rows[name]["p Holm"] = float(f"{corrected:.2g}")
    log_progress(f"{collection}: " + ", ".join(f"{name} {entry['NDCG@10']}" for name, entry in rows.items()))
    return {"queries": len(next(iter(values.values()))), "lower is better": lower, "test": rows}


def forms(lower: list[str], settings: dict[str, object]) -> dict[str, Ranker]:
    """Single and KNN Online with each kind of constraint."""
    learners = {
        FREE: RankRLS(),
        "non-negative": RankRLS(nonnegative=True),
        "sign per feature": RankRLS(nonnegative=True, lower_is_better=lower),
    }
    shared = {"scale": settings["scale"], "missing": settings["missing"]}
    return {f"Single, {name}": SingleRanker(learner, **shared) for name, learner in learners.items()} | {
        f"KNN, {name}": KnnRanker(learner=learner, **settings) for name, learner in learners.items()
    }


def splits(collection: str) -> Iterator[tuple[QuerySet, QuerySet, dict[str, object]]]:
    """Training queries, test queries, and the settings of KNN."""
    plain = {"scale": "standard", "missing": "error"}
    if collection == "MSRD":
        parts = msrd()
        describer = Describer("summaries+text", reference="bm25_all", n_components=46)
        own = {"n_neighbors": 400, "neighbor_weights": "gaussian", "describe": describer}
        yield parts["train"], parts["test"], plain | PULLED | own
    elif collection == "MQ2007":
        for train, _, test in letor_folds(collection):
            yield train, test, {"n_neighbors": 400, "reference": 24, "scale": "none", "missing": "error"} | PULLED
    else:
        queries, fold = judged_text(collection)
        own = {"n_neighbors": 100, "describe": "summaries+text", "missing": "zero"}
        for held_out in np.unique(fold):
            yield queries[fold != held_out], queries[fold == held_out], plain | PULLED | own


def downwards(train: QuerySet, scale: Scale, missing: Missing) -> list[str]:
    """The features that are lower in the better document of a pair, on average over all pairs."""
    prepared = Preparer(scale, missing).fit(train).apply(train)
    moment = PairStatistics.from_queries(prepared).sum().moment[0]
    return [name for name, value in zip(train.feature_names, moment, strict=True) if value < 0]


def solve_time() -> dict[str, float]:
    """The solve at 46 features with and without signs, on sums of 400 queries of MQ2007."""
    train, _, _ = next(letor_folds("MQ2007"))
    each = PairStatistics.from_queries(train)
    rng = np.random.default_rng(0)
    sums = PairStatistics.concat([each.sum(rng.choice(len(each), 400, replace=False)) for _ in range(100)])
    signs = np.ones(sums.n_features, dtype=np.int8)
    calls = {"any sign": lambda: sums.solve(0.01), "non-negative": lambda: sums.solve(0.01, None, signs)}
    seconds = medians(interleaved(calls, repeats=11, warm=2))
    return {f"{name}, ms": round(1000 * each / len(sums), 4) for name, each in seconds.items()} | {
        "ratio": round(seconds["non-negative"] / seconds["any sign"], 2)
    }
