"""Ideas for KinRanker's trees, tried on half of MSRD's training and validation queries: NDCG@10, three folds by movie.

Weights per query are cross-fitted once. Each idea then trains a bag of four members on what KinRanker's trees
see, and ranks with the number of trees that KinRanker would choose. "mixed" is the mean of the idea's scores and those
of the bag as it is. Gains are over that bag, with paired t-tests. The test queries are not read.
``--ideas`` tries one group of them: bags of one or two objectives, larger trees, or the others. ``--data-set`` takes
mwmbl (all queries, three folds) or MQ2007 (training and validation queries of its first fold, three folds) instead.

- ``init_score``: boosting starts from half of the standardized local score;
- ``trust``: how far the query is from its kin, and the difference of local and global score, as further features;
- ``linear leaves``: a linear model in each leaf;
- ``random pairs``: the YetiRank objective (Gulin et al. 2011) in LightGBM: pairs of neighbors in two random orders that
  follow the scores, with weights that fall by 0.85 from rank to rank;
- ``both objectives``: every other member learns from random pairs, so the bag costs the same;
- ``twice the members``: eight members with the usual objective, for comparison with mixed bags;
- ``31 leaves``, ``63 leaves``: larger trees; ``both shapes``: every other member has 31 leaves; ``larger steps``: a
  learning rate of 0.08;
- ``catboost``: members are CatBoost models with its own YetiRank objective.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numba
import numpy as np
from sklearn.base import clone

from benchmarks.common import judged_text, letor_folds, log_progress, msrd
from benchmarks.knn_msrd import row
from kinrank import KinRanker, QuerySet, fold_queries
from kinrank.describe.blocks import standardize
from kinrank.learn.lambdamart import LambdaMART
from kinrank.rankers._local.choose import MEASURE
from kinrank.rankers.kin._fitting import KinFitting
from kinrank.rankers.kin._trees import TreeView, best_number_of_trees, linear_scores, rows_of
from kinrank.rankers.knn.ranker import KnnRanker

Settings = dict[str, Any]
OPTIONS = {"data-set": ("msrd", "mwmbl", "MQ2007"), "ideas": ("all", "objectives", "shapes", "others")}
FOLDS, MEMBERS, MOST, STEP = 3, 4, 300, 10
SETTINGS = {
    "objective": "lambdarank",
    "num_leaves": 15,
    "learning_rate": 0.05,
    "min_data_in_leaf": 50,
    "feature_fraction": 0.5,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}
LARGE = {"num_leaves": 31, "min_data_in_leaf": 20}


@dataclass(frozen=True, eq=False)
class Side:
    """Queries as trees see them, with the linear scores and the distance from kin."""

    queries: QuerySet
    X: np.ndarray
    linear: np.ndarray
    novelty: np.ndarray

    @property
    def standard(self) -> np.ndarray:
        """Standardized local and global scores."""
        return standardize(self.linear, self.queries.offsets)

    @property
    def trusted(self) -> np.ndarray:
        """What trees see, and how far to trust the local score."""
        local, everywhere = self.standard.T
        distance = np.repeat(self.novelty, self.queries.sizes)
        return np.column_stack([self.X, distance, local - everywhere, local]).astype(np.float32)


def run(data_set: str = "msrd", ideas: str = "all") -> dict[str, object]:
    """Compare every idea with the bag as it is."""
    collected: dict[str, list[np.ndarray]] = {}
    with ProcessPoolExecutor(2) as pool:
        for fold, values in enumerate(pool.map(partial(measured, data_set, ideas), range(FOLDS))):
            for name, each in values.items():
                collected.setdefault(name, []).append(each)
                log_progress(f"fold {fold} {name:24} {np.nanmean(each):.4f}")
    quality = {name: np.concatenate(values) for name, values in collected.items()}
    judged, settings = queries_of(data_set)
    tests = [test for _, test in folds_of(judged, settings)]
    groups = None if data_set != "msrd" else np.concatenate([test.query_columns["movie"] for test in tests])
    return {name: row(values, quality["as it is"], groups) for name, values in quality.items()}


def measured(data_set: str, ideas: str, fold: int) -> dict[str, np.ndarray]:
    """Measure NDCG@10 of every idea on a fold."""
    train, test, folds = prepared(*queries_of(data_set), fold)
    bag = partial(lightgbm_bag, train, test, folds)
    plain: list[Settings] = [{}] * MEMBERS
    tried: dict[str, dict[str, Callable[[], np.ndarray]]] = {
        "objectives": {
            "random pairs": lambda: bag([{"objective": RandomPairs()} for _ in plain]),
            "both objectives": lambda: bag([{"objective": RandomPairs()}, {}] * (MEMBERS // 2)),
            "twice the members": lambda: bag(2 * plain),
        },
        "shapes": {
            "31 leaves": lambda: bag([LARGE] * MEMBERS),
            "both shapes": lambda: bag([{}, LARGE] * (MEMBERS // 2)),
            "63 leaves": lambda: bag([{"num_leaves": 63, "min_data_in_leaf": 10}] * MEMBERS),
            "31 leaves, larger steps": lambda: bag([{**LARGE, "learning_rate": 0.08}] * MEMBERS),
        },
        "others": {
            "init_score": lambda: bag(plain, start=0.5),
            "trust": lambda: bag(plain, columns=lambda side: side.trusted),
            "linear leaves": lambda: bag([{"linear_tree": True, "linear_lambda": 1.0}] * MEMBERS),
            "catboost": lambda: catboost_bag(train, test, folds),
        },
    }
    bags = {"as it is": lambda: bag(plain)}
    for group, each in tried.items():
        bags |= each if ideas in ("all", group) else {}
    judged = test.queries.grades, test.queries.offsets
    scores = {name: standardize(make()[:, None], test.queries.offsets)[:, 0] for name, make in bags.items()}
    mixed = {f"{name}, mixed": own + scores["as it is"] for name, own in scores.items() if name != "as it is"}
    return {name: MEASURE.per_query(each, *judged) for name, each in (scores | mixed).items()}


def queries_of(data_set: str) -> tuple[QuerySet, Settings]:
    """Return the queries to try ideas on, and settings of KinRanker for them."""
    if data_set == "mwmbl":
        return judged_text("mwmbl")[0], {}
    if data_set == "MQ2007":
        train, vali, _ = next(iter(letor_folds("MQ2007")))
        return QuerySet.concat([train, vali]), {"reference": 24}
    parts = msrd()
    _, half = next(fold_queries(QuerySet.concat([parts["train"], parts["vali"]]), 2, group="movie", seed=3))
    return half, {"reference": "bm25_all", "group_column": "movie"}


def folds_of(judged: QuerySet, settings: Settings) -> list[tuple[QuerySet, QuerySet]]:
    """Return the training and test queries of three folds, by group if there is one."""
    return list(fold_queries(judged, FOLDS, group=settings.get("group_column"), seed=7))


def prepared(judged: QuerySet, settings: Settings, fold: int) -> tuple[Side, Side, np.ndarray]:
    """Return training queries with cross-fitted local scores, test queries, and the fold of each training query."""
    train, test = folds_of(judged, settings)[fold]
    ranker = KinRanker(trees=LambdaMART(1, n_leaves=2), n_repeats=1, **settings).fit(train)
    fold_of_query, by_fold = crossfitted(ranker, train)
    sides = []
    everything = np.ones(len(test), dtype=bool)
    for queries, local in ((train, by_fold), (test, [(everything, ranker.local_)])):
        linear, novelty = np.empty((queries.n_rows, 2)), np.empty(len(queries))
        encoded = ranker.encoded(queries)
        for chosen, model in local:
            some = encoded[chosen]
            found = model.predict_local(some)
            linear[rows_of(queries, chosen)], novelty[chosen] = (
                linear_scores(found, some, model.model_.highest_novelty),
                found.novelty,
            )
        sides.append(Side(queries, TreeView().table(queries, linear[:, 0], None), linear, novelty))
    return (*sides, fold_of_query)


def crossfitted(ranker: KinRanker, queries: QuerySet) -> tuple[np.ndarray, list[tuple[np.ndarray, KnnRanker]]]:
    """Return the fold of each query, and for each fold its queries and the local model that has not seen them."""
    (fold,) = KinFitting(ranker).assign_folds(queries)
    encoded, local = ranker.encoded(queries), ranker.local_
    return fold, [(fold == held_out, clone(local).fit(encoded[fold != held_out])) for held_out in range(MEMBERS)]


class RandomPairs:
    """The YetiRank objective, with the number of calls as its seed."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, scores, rows):
        """Return gradient and curvature for LightGBM."""
        self.calls += 1
        offsets = np.concatenate([[0], np.cumsum(rows.get_group())]).astype(np.int64)
        return random_pairs(scores, rows.get_label(), offsets, 2, 0.85, self.calls)


@numba.njit(cache=True)
def random_pairs(scores, grades, offsets, n_orders, decay, seed):
    """Compute the logistic loss of neighbors in orders by score plus Gumbel noise."""
    np.random.seed(seed)  # noqa: NPY002 - Numba's own generator
    gradient, curvature = np.zeros(len(scores)), np.full(len(scores), 1e-6)
    for query in range(len(offsets) - 1):
        start, size = offsets[query], offsets[query + 1] - offsets[query]
        for _ in range(n_orders):
            noise = -np.log(-np.log(np.random.random(size) + 1e-300) + 1e-300)  # noqa: NPY002
            order = np.argsort(-(scores[start : start + size] + noise))
            weight = 1.0 / n_orders
            for rank in range(size - 1):
                better, worse = start + order[rank], start + order[rank + 1]
                if grades[better] < grades[worse]:
                    better, worse = worse, better
                loss = weight * (grades[better] - grades[worse])
                wrong = 1 / (1 + np.exp(scores[better] - scores[worse]))
                gradient[better] -= loss * wrong
                gradient[worse] += loss * wrong
                curvature[better] += loss * wrong * (1 - wrong)
                curvature[worse] += loss * wrong * (1 - wrong)
                weight *= decay
    return gradient, curvature


def lightgbm_bag(
    train, test, folds, params: Sequence[Settings], *, start=0.0, columns=lambda side: side.X
) -> np.ndarray:
    """Return the test scores of a bag of LightGBM models, one for each of the settings in `params`.

    `start` is the share of the local score to boost from.
    """
    import lightgbm

    X, X_test = columns(train), columns(test)
    offset = start * train.standard[:, 0]
    members, curves = [], []
    for number, settings in enumerate(params):
        held_out = number % MEMBERS
        seen = np.repeat(folds != held_out, train.queries.sizes)
        rows = lightgbm.Dataset(
            X[seen],
            train.queries.grades[seen],
            group=train.queries.sizes[folds != held_out],
            init_score=offset[seen] if start else None,
        )
        member = lightgbm.train({**SETTINGS, **settings, "seed": number}, rows, MOST)
        steps = (member.predict(X[~seen], start_iteration=first, num_iteration=STEP) for first in range(0, MOST, STEP))
        curves.append(_curve(np.cumsum([offset[~seen], *steps], axis=0)[1:], train.queries[folds == held_out]))
        members.append(member)
    n_trees = _bag_size(curves, folds)
    scores = sum(member.predict(X_test, num_iteration=n_trees) for member in members) / len(members)
    return scores + start * test.standard[:, 0]


def catboost_bag(train, test, folds, most: int = 150) -> np.ndarray:
    """Return the test scores of a bag of CatBoost models."""
    import catboost

    members, curves = [], []
    for held_out in range(MEMBERS):
        seen = np.repeat(folds != held_out, train.queries.sizes)
        member = catboost.CatBoost(
            {
                "loss_function": "YetiRank",
                "iterations": most,
                "depth": 6,
                "learning_rate": 0.1,
                "thread_count": 1,
                "random_seed": held_out,
                "verbose": 0,
                "allow_writing_files": False,
            }
        )
        member.fit(catboost.Pool(train.X[seen], train.queries.grades[seen], group_id=train.queries.query_of_row[seen]))
        stages = member.staged_predict(catboost.Pool(train.X[~seen]), eval_period=STEP)
        curves.append(_curve(stages, train.queries[folds == held_out]))
        members.append(member)
    n_trees = _bag_size(curves, folds)
    return sum(member.predict(test.X, ntree_end=n_trees) for member in members) / MEMBERS


def _curve(stages, queries: QuerySet) -> np.ndarray:
    """Return the quality after each tree, measured every `STEP` trees."""
    return np.repeat([MEASURE.mean(scores, queries.grades, queries.offsets) for scores in stages], STEP)


def _bag_size(curves: list[np.ndarray], folds: np.ndarray) -> int:
    sizes = np.tile(np.bincount(folds), len(curves) // MEMBERS)
    return min(2 * best_number_of_trees(curves, sizes), len(curves[0]))
