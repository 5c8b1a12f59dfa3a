"""KinRanker compared with tuned LightGBM, XGBoost and CatBoost: NDCG@10 on eight collections, paired tests, Holm.

Every library tries the same three tree shapes. The peers choose the shape and the number of trees on the validation
queries and are refitted on training and validation queries. KinRanker chooses its shape on the same queries by its
out-of-fold record. Nothing is chosen on test queries, except that "best peer" is the library that is best *on test*,
which favors the peers. "bag" is as many LightGBM models as KinRanker has members, of the chosen shape, each on four
fifths of the rows and features, with the tuned number of trees or twice as many, chosen on validation queries.
"described" is LightGBM with the query's description among its features: it has the same information as KinRanker. Holm
corrects all tests against the best peer and the bag together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import numpy as np

from benchmarks.common import judged_text, letor_folds, log_progress, msrd
from kinrank import KinRanker, QuerySet, SingleRanker, fold_queries
from kinrank.data.vectors import VECTORS
from kinrank.datasets import make_intents
from kinrank.describe import Describer
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import NDCG, compare_paired, holm
from kinrank.study.peers import PEERS

# Trees produce ties, and rows may be sorted by grade, so tied documents share their mean rank.
MEASURE = NDCG(ties="average") @ 10
COLLECTIONS = ("msrd", "msrd-tenth", "MQ2007", "mwmbl", "MQ2008", "OHSUMED", "icecat", "one-intent")
OPTIONS = {"only": ("all", *COLLECTIONS), "workers": ("2", "1")}
LIBRARIES = ("lightgbm", "xgboost", "catboost")
MEMBERS = 4
MOST_TREES = 300
# Leaves, minimum rows per leaf, learning rate.
SHAPES = ((7, 50, 0.05), (15, 50, 0.05), (31, 20, 0.05))
SETTINGS: dict[str, dict[str, object]] = {
    "msrd": {"reference": "bm25_all", "group_column": "movie"},
    "msrd-tenth": {"reference": "bm25_all", "group_column": "movie"},
    "MQ2007": {"reference": 24},  # BM25 of the whole document
    "MQ2008": {"reference": 24},
}

# Required gain over the best peer: minimum, upper limit of p, lower limit of the 95% interval.
REQUIRED: dict[str, dict[str, float]] = {
    "msrd": {"gain": 0.004, "p": 0.01},
    "msrd-tenth": {"gain": 0.004, "p": 0.01},
    "MQ2007": {"gain": 0.0, "p": 0.05},
    "mwmbl": {"gain": 0.0, "p": 0.05},
}
NOT_BEHIND = {"low": -0.005}

Split = tuple[QuerySet, QuerySet, QuerySet]


def run(only: str = "all", workers: str = "2") -> dict[str, object]:
    """Measure every method on every collection, and test KinRanker against the best peer and the bag."""
    chosen = COLLECTIONS if only == "all" else (only,)
    os.environ["OMP_NUM_THREADS"] = "1"  # one process per core: more OpenMP threads would compete
    jobs = [(name, split, method) for name in chosen for split in range(len(splits(name))) for method in methods(name)]
    collected: dict[tuple[str, str], list[np.ndarray]] = {}
    notes: dict[str, list[str]] = {}
    with ProcessPoolExecutor(int(workers)) as pool:
        for (name, split, method), (values, note) in zip(jobs, pool.map(_measured, jobs), strict=True):
            collected.setdefault((name, method), []).append(values)
            notes.setdefault(f"{name} {method}", []).append(note)
            log_progress(f"{name:11} {split} {method:9} {values.mean():.4f}  {note}")
    quality = {key: np.concatenate(parts) for key, parts in collected.items()}
    rows = {name: verdict(name, quality) for name in chosen}
    family = [row[rival] for row in rows.values() for rival in ("against best peer", "against the bag") if rival in row]
    for kind in ("p", "p permutation"):
        for tested, p in zip(family, holm([tested[kind] for tested in family]), strict=True):
            tested[f"{kind}, Holm"] = float(f"{p:.2g}")
    return {"NDCG@10": rows, "tests in the family": len(family), "chosen": notes}


def methods(name: str) -> tuple[str, ...]:
    """Return the methods to compare on a collection."""
    return ("single", "kin") if name == "one-intent" else (*LIBRARIES, "bag", "described", "single", "kin")


@cache
def splits(name: str) -> list[Split]:
    """Return the (train, validation, test) splits of a collection: one, or five folds."""
    return list(_splits(name))


def _splits(name: str) -> Iterator[Split]:
    if name.startswith("msrd"):
        parts = msrd()
        train, vali, test = parts["train"], parts["vali"], parts["test"]
        if name == "msrd-tenth":
            train, vali = (next(part for _, part in fold_queries(each, 10, group="movie")) for each in (train, vali))
        yield train, vali, test
    elif name in ("mwmbl", "icecat"):
        queries, fold = judged_text(name)
        labels = np.unique(fold)
        for i, label in enumerate(labels):
            validation = labels[(i + 1) % len(labels)]
            yield (
                queries[(fold != label) & (fold != validation)],
                queries[fold == validation],
                queries[fold == label],
            )
    elif name == "one-intent":
        queries = make_intents(1_000, 1_000, n_features=46, n_intents=3, spread=0.0, seed=1)
        train, test = queries[:1_000], queries[1_000:]
        yield train[:800], train[800:], test
    else:
        yield from letor_folds(name)


def _measured(job: tuple[str, int, str]) -> tuple[np.ndarray, str]:
    name, split, method = job
    train, vali, test = splits(name)[split]
    scores, note = score(method, train, vali, test, SETTINGS.get(name, {}))
    return MEASURE.per_query(scores, test.grades, test.offsets), note


def score(
    method: str, train: QuerySet, vali: QuerySet, test: QuerySet, settings: dict[str, object]
) -> tuple[np.ndarray, str]:
    """Return the scores of the test queries, and the chosen settings."""
    both = QuerySet.concat([train, vali])
    if method == "single":
        return SingleRanker(missing="zero").fit(both).predict(test), ""
    if method == "kin":
        rankers = [KinRanker(trees=_trees(*shape), n_members=MEMBERS, **settings).fit(both) for shape in SHAPES]
        best = max(range(len(SHAPES)), key=lambda i: rankers[i].record_["blend"])
        ranker = rankers[best]
        shares = ", ".join(f"{part} {share:.1f}" for part, share in ranker.shares_.items())
        return ranker.predict(
            test
        ), f"{SHAPES[best][0]} leaves, {ranker.n_trees_} trees, k={ranker.n_neighbors_}; {shares}"
    if method == "described":
        (train, vali, test), both = _described(train, vali, test, settings)
    library = method if method in LIBRARIES else "lightgbm"
    shape, n_trees = _tuned(library, train, vali)
    if method == "bag":
        n_trees = max(
            (n_trees, 2 * n_trees), key=lambda n: MEASURE.mean(_bag(shape, n, train, vali), vali.grades, vali.offsets)
        )
        return _bag(shape, n_trees, both, test), f"{shape[0]} leaves, {n_trees} trees"
    peer = PEERS[library](n_trees, learning_rate=shape[2], params=_params(library, shape), validation=0).fit(both)
    return peer.predict(test), f"{shape[0]} leaves, {n_trees} trees"


def _bag(shape: tuple[int, int, float], n_trees: int, train: QuerySet, test: QuerySet) -> np.ndarray:
    """Sum the scores of LightGBM models trained on different samples of rows and features."""
    sampled = {"feature_fraction": 0.8, "bagging_fraction": 0.8, "bagging_freq": 1}
    params = _params("lightgbm", shape) | sampled
    members = [
        PEERS["lightgbm"](n_trees, learning_rate=shape[2], params=params, validation=0, seed=seed)
        for seed in range(MEMBERS)
    ]
    return np.sum([member.fit(train).predict(test) for member in members], axis=0)


def _described(train: QuerySet, vali: QuerySet, test: QuerySet, settings: dict[str, object]) -> tuple[Split, QuerySet]:
    """Add KinRanker's description of the query to the features of all queries."""
    blocks = "summaries+text" if VECTORS in train.query_columns else "summaries"
    both = QuerySet.concat([train, vali])
    describer = Describer(blocks, reference=settings.get("reference"), n_components=46).fit(both)

    def widened(queries: QuerySet) -> QuerySet:
        points = np.repeat(describer.transform(queries), queries.sizes, axis=0)
        return queries.replace(X=np.hstack([queries.X, points]).astype(np.float32), feature_names=())

    return (widened(train), widened(vali), widened(test)), widened(both)


def _trees(leaves: int, least: int, rate: float) -> LambdaMART:
    return LambdaMART(
        n_trees=MOST_TREES,
        n_leaves=leaves,
        learning_rate=rate,
        min_rows_in_leaf=least,
        params={"feature_fraction": 0.5},
        n_threads=1,
    )


def _tuned(library: str, train: QuerySet, vali: QuerySet) -> tuple[tuple[int, int, float], int]:
    """Return the best shape on the validation queries, and its number of trees."""
    tried = []
    for shape in SHAPES:
        peer = PEERS[library](MOST_TREES, learning_rate=shape[2], params=_params(library, shape))
        peer.fit(train, validation=vali)
        quality = MEASURE.mean(peer.predict(vali), vali.grades, vali.offsets)
        tried.append((quality, shape, peer.n_trees_))
    _, shape, n_trees = max(tried, key=lambda each: each[0])
    return shape, n_trees


def _params(library: str, shape: tuple[int, int, float]) -> dict[str, object]:
    """Return the parameters of a shape in the naming of a library."""
    leaves, least, _ = shape
    if library == "lightgbm":
        return {"num_leaves": leaves, "min_data_in_leaf": least}
    if library == "xgboost":
        return {"max_leaves": leaves, "max_depth": 0, "grow_policy": "lossguide"}
    return {
        "depth": leaves.bit_length() + 1
    }  # symmetric trees are weaker for the same number of leaves: one more level


def verdict(name: str, quality: dict[tuple[str, str], np.ndarray]) -> dict[str, object]:
    """Return the means of a collection, and KinRanker's difference from the best peer and the bag."""
    values = {method: quality[name, method] for method in methods(name)}
    rivals = [method for method in methods(name) if method in LIBRARIES] or ["single"]
    best = max(rivals, key=lambda method: values[method].mean())
    result: dict[str, object] = {
        "queries": len(values["kin"]),
        **{method: round(float(each.mean()), 4) for method, each in values.items()},
        "best peer": best,
        "against best peer": difference(values["kin"], values[best]),
    }
    if "bag" in values:
        result["against the bag"] = difference(values["kin"], values["bag"])
        result["against described"] = difference(values["kin"], values["described"])
    gain, required = result["against best peer"], REQUIRED.get(name, NOT_BEHIND)
    result["holds"] = (
        gain["gain"] >= required.get("gain", -1.0)
        and gain["p"] < required.get("p", 2.0)
        and gain["low"] > required.get("low", -1.0)
    )
    return result


def difference(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    """Return the mean difference, its 95% interval, and p of a paired t-test and of a permutation test."""
    paired = compare_paired(ours, theirs)
    low, high = paired.interval
    permuted = compare_paired(ours, theirs, test="permutation")
    return {
        "gain": round(paired.mean_difference, 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "p": float(f"{paired.p:.2g}"),
        "p permutation": float(f"{permuted.p:.2g}"),
    }
