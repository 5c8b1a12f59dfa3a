"""Measure the loss of NDCG@10 from non-negative weights on MSRD, MQ2007 and mwmbl, for Single and KNN Online.

Each ranker is measured with weights of any sign, with non-negative weights, and with a sign per feature: a feature is
declared lower-is-better if it is lower in the better document of a pair, on average over the training queries. Each
variant is compared with weights of any sign by a paired t-test, Holm-corrected within a collection. KNN has the
settings of the documentation (MSRD: k = 400 gaussian neighbors and a prior on the global model; mwmbl: k = 100; MQ2007:
k = 400); nothing is tuned here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.common import interleaved, judged_text, letor_folds, log_progress, medians, msrd
from benchmarks.knn_msrd import per_query, row
from kinrank import QuerySet, SingleRanker
from kinrank.kin import Describer
from kinrank.learn._prepare import Missing, Preparer, Scale
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.statistics import PairStatistics
from kinrank.measure import holm
from kinrank.rankers import Ranker
from reproduction.knn import uniform_knn

PRIOR = {"prior": "global", "prior_strength": 0.1}
ANY_SIGN = "any sign"


def run() -> dict[str, object]:
    """Measure every variant on every collection, and the time of the solver."""
    return {collection: figures(collection) for collection in ("MSRD", "MQ2007", "mwmbl")} | {"solve": solve_time()}


def figures(collection: str) -> dict[str, object]:
    """Measure NDCG@10 of each variant over all test queries, compared with weights of any sign."""
    quality: dict[str, list[np.ndarray]] = {}
    weights: dict[str, list[np.ndarray]] = {}
    lower: list[int] = []
    for train, test, settings in splits(collection):
        names = lower_is_better(train, settings["scale"], settings["missing"])
        lower.append(len(names))
        for name, ranker in variants(names, settings).items():
            quality.setdefault(name, []).append(per_query(ranker.fit(train), test))
            weights.setdefault(name, []).append(ranker.weights(test))
    values = {name: np.concatenate(parts) for name, parts in quality.items()}
    rows = {name: row(value, values[f"{name.split(',')[0]}, {ANY_SIGN}"]) for name, value in values.items()}
    for name, entry in rows.items():
        entry["weights below 0"] = round(float(np.mean(np.concatenate(weights[name]) < 0)), 3)
        entry["weights at 0"] = round(float(np.mean(np.concatenate(weights[name]) == 0)), 3)
    tested = [name for name in rows if not name.endswith(ANY_SIGN)]
    for name, corrected in zip(tested, holm([rows[name]["p"] for name in tested]), strict=True):
        rows[name]["p Holm"] = float(f"{corrected:.2g}")
    log_progress(f"{collection}: " + ", ".join(f"{name} {entry['NDCG@10']}" for name, entry in rows.items()))
    return {"queries": len(next(iter(values.values()))), "lower is better": lower, "test": rows}


def variants(lower: list[str], settings: dict[str, object]) -> dict[str, Ranker]:
    """Return Single and KNN Online with each kind of constraint."""
    learners = {
        ANY_SIGN: RankRLS(),
        "non-negative": RankRLS(nonnegative=True),
        "sign per feature": RankRLS(nonnegative=True, lower_is_better=lower),
    }
    shared = {"scale": settings["scale"], "missing": settings["missing"]}
    return {f"Single, {name}": SingleRanker(learner, **shared) for name, learner in learners.items()} | {
        f"KNN, {name}": uniform_knn(learner=learner, **settings) for name, learner in learners.items()
    }


def splits(collection: str) -> Iterator[tuple[QuerySet, QuerySet, dict[str, object]]]:
    """Yield training queries, test queries, and the settings of KNN."""
    plain = {"scale": "standard", "missing": "error"}
    if collection == "MSRD":
        parts = msrd()
        describer = Describer("summaries+text", reference="bm25_all", n_components=46)
        own = {"n_neighbors": 400, "neighbor_weights": "gaussian", "describe": describer}
        yield parts["train"], parts["test"], plain | PRIOR | own
    elif collection == "MQ2007":
        for train, _, test in letor_folds(collection):
            yield train, test, {"n_neighbors": 400, "reference": 24, "scale": "none", "missing": "error"} | PRIOR
    else:
        queries, fold = judged_text(collection)
        own = {"n_neighbors": 100, "describe": "summaries+text", "missing": "zero"}
        for held_out in np.unique(fold):
            yield queries[fold != held_out], queries[fold == held_out], plain | PRIOR | own


def lower_is_better(train: QuerySet, scale: Scale, missing: Missing) -> list[str]:
    """Return the features that are lower in the better document of a pair, on average over all pairs."""
    prepared = Preparer(scale, missing).fit(train).apply(train)
    moment = PairStatistics.from_queries(prepared).sum().moment[0]
    return [name for name, value in zip(train.feature_names, moment, strict=True) if value < 0]


def solve_time() -> dict[str, float]:
    """Measure the solver at 46 features with and without signs, on sums of 400 queries of MQ2007."""
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
