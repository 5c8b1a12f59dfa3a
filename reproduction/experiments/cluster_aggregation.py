"""Local models, Table 1 and its future work: rank aggregation baselines, and the aggregation of global models.

Table 1 compares the three approaches with LETOR's rank aggregation baselines on MQ2007-agg and MQ2008-agg, whose input
rankings are runs of TREC systems and are not available to us. Here the 46 features of MQ2007 and MQ2008 are the input
rankings. Five folds, LETOR's conventions.

Borda count
    Sum the ranks of a document.
CPS
    The coset-permutation distance based stagewise model of Qin et al. (2010) with Spearman's rank correlation, one of
    LETOR's three. Its coset distance is linear in the ranks: at stage i of n, document d is chosen with a probability
    proportional to exp(-(n - i + 1) Σ_m θ_m rank_m(d)). θ by maximum likelihood; as grades tie, only the stages of
    relevant documents count, in an order drawn at random among equal grades. The ranking sorts by Σ θ_m rank_m.

"If base learners have good results", global models may be aggregated instead of local ones (section 4 of the paper).
Four global models and BM25 are aggregated by Borda count, by the mean of scores scaled to 0..1, and by Eq. 1 with the
weights of SelectRanker: the average precision of a model on the validation queries whose divergence from BM25 is
nearest (Eq. 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numba
import numpy as np
from scipy.optimize import minimize
from scipy.stats import rankdata

from kinrank.arrays import Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.learn.lambdamart import LambdaMART
from kinrank.learn.ranksvm import RankSVM
from kinrank.measure import LETOR_MAP, compare_paired
from kinrank.papers.atvt import ATVTRanker, BoostedTrees, KernelRidge
from kinrank.papers.cluster import divergences, normalized
from kinrank.rankers import Ranker
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, TaskResult, letor_tasks, results_by_fold
from reproduction.experiments.atvt import TREE
from reproduction.experiments.cluster_methods import BM25, COLLECTIONS, cluster_ranker
from reproduction.rows import pool, two_digits

GLOBAL = ("RankSVM", "LambdaMART", "boosted regression", "kernel ridge")
LOCAL = {"Naive": "naive", "SelectRanker": "select", "Transform": "transform"}
BORDA, CPS = "features, Borda count", "features, CPS"
MEMBERS_BORDA, MEMBERS_MEAN, MEMBERS_WEIGHTED = "global, Borda count", "global, mean of scores", "global, Eq. 1"
AGGREGATED = (MEMBERS_BORDA, MEMBERS_MEAN, MEMBERS_WEIGHTED)
N_CLUSTERS, N_NEIGHBORS = 5, 50
STAGES = 10
"""CPS learns from at most this many stages of a query."""


def one_fold(collection: str, fold: int, data: DataFolder) -> TaskResult:
    """Measure the average precision of every method on every test query."""
    train, vali, test = data.letor_fold(collection, fold)
    scores = {f"{name}, {N_CLUSTERS} clusters": _fit(mode, train).predict(test) for name, mode in LOCAL.items()}
    ranks = feature_ranks(test)
    scores |= {BORDA: -ranks.sum(axis=1), CPS: -ranks @ cps_weights(train)}
    members = [ranker.fit(train) for ranker in _globals()]
    on_test, on_vali = (np.column_stack([q.X[:, BM25], *(each.predict(q) for each in members)]) for q in (test, vali))
    scores |= dict(zip(("BM25", *GLOBAL), on_test.T, strict=True))
    scaled = normalized(on_test, test.offsets)
    scores[MEMBERS_BORDA] = -_ranks(on_test, test).sum(axis=1)
    scores[MEMBERS_MEAN] = scaled.mean(axis=1)
    weights = selected_weights(on_test, test, on_vali, vali)
    scores[MEMBERS_WEIGHTED] = (weights[test.query_of_row] * scaled).sum(axis=1)
    return TaskResult(values={name: _precision(np.asarray(each), test) for name, each in scores.items()})


def _fit(mode: str, train: QuerySet) -> Ranker:
    return cluster_ranker(mode, N_CLUSTERS).fit(train)


def _globals() -> list[Ranker]:
    return [
        SingleRanker(RankSVM(), scale="none"),
        SingleRanker(LambdaMART(n_trees=100, **TREE)),
        ATVTRanker(BoostedTrees(100, **TREE), n_rounds=0),
        ATVTRanker(KernelRidge(n_landmarks=200), n_rounds=0, scale="none"),
    ]


def feature_ranks(queries: QuerySet) -> Float64:
    """Return the rank of each document by each feature, 1 for the highest value; ties share their mean rank."""
    return _ranks(queries.X, queries)


def _ranks(scores: Any, queries: QuerySet) -> Float64:
    starts = queries.offsets[1:-1]
    return np.concatenate([rankdata(-each, axis=0) for each in np.split(np.asarray(scores, np.float64), starts)])


def cps_weights(train: QuerySet, seed: int = 0) -> Float64:
    """Return θ of CPS with Spearman's rank correlation, by maximum likelihood."""
    tied = np.random.default_rng(seed).random(train.n_rows)
    order = np.lexsort((tied, -train.grades, train.query_of_row))
    ranks = feature_ranks(train)[order]
    relevant = np.add.reduceat(train.grades > 0, train.offsets[:-1])
    stages = np.minimum(np.minimum(relevant, STAGES), np.diff(train.offsets) - 1)
    scale = 1.0 / np.median(np.diff(train.offsets)) ** 2  # so that steps of the solver have the size of 1

    def loss(theta: Float64) -> tuple[float, Float64]:
        value, slope = stagewise_loss(scale * (ranks @ theta), train.offsets, stages)
        return value / len(train), scale * (slope @ ranks) / len(train)

    theta: Float64 = minimize(loss, np.zeros(ranks.shape[1]), jac=True, method="L-BFGS-B").x
    return theta


@numba.njit
def stagewise_loss(cost: Float64, offsets: Int64, stages: Int64) -> tuple[float, Float64]:
    """Return the negative log-likelihood of choosing the documents of each query in their order, and its gradient.

    At stage i, one of the documents from i on is chosen with a probability proportional to exp(-(n - i) cost).
    """
    value, slope = 0.0, np.zeros_like(cost)
    for query in range(len(stages)):
        start, end = offsets[query], offsets[query + 1]
        for stage in range(start, start + stages[query]):
            rate = float(end - stage)
            logits = -rate * cost[stage:end]
            p = np.exp(logits - logits.max())
            p /= p.sum()
            value -= np.log(max(p[0], 1e-300))
            slope[stage:end] -= rate * p
            slope[stage] += rate
    return value, slope


def selected_weights(scores: Float64, queries: QuerySet, judged_scores: Float64, judged: QuerySet) -> Float64:
    """Return SelectRanker's weight of each model for each query, from judged queries of similar divergence."""
    base = queries.X[:, BM25].astype(np.float64), judged.X[:, BM25].astype(np.float64)
    asked = divergences(scores, base[0], queries.offsets)
    known = divergences(judged_scores, base[1], judged.offsets)
    precision = np.column_stack([_precision(each, judged) for each in judged_scores.T])
    weights = np.empty_like(asked)
    for model in range(asked.shape[1]):
        distance = np.abs(asked[:, model, None] - known[None, :, model])
        near = np.argsort(distance, axis=1, kind="stable")[:, :N_NEIGHBORS]
        weights[:, model] = precision[near, model].sum(axis=1)
    return weights


def _precision(scores: Float64, queries: QuerySet) -> Float64:
    return LETOR_MAP.per_query(scores, queries.grades, queries.offsets)


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return MAP, and tests against RankSVM, against the best member and against the best aggregated features."""
    figures: dict[str, Any] = {}
    for collection in COLLECTIONS:
        values = pool(results_by_fold(results, collection))
        mean = {name: float(each.mean()) for name, each in values.items()}
        best = max(GLOBAL, key=mean.__getitem__)
        baseline = max((BORDA, CPS), key=mean.__getitem__)
        figures[collection] = {
            "MAP": {name: round(each, 4) for name, each in mean.items()},
            "over RankSVM": {name: _test(values[name], values["RankSVM"]) for name in (*AGGREGATED, BORDA, CPS)},
            "best member": best,
            "over the best member": {name: _test(values[name], values[best]) for name in AGGREGATED},
            "best of aggregated features": baseline,
            "local models over it": {
                name: _test(values[f"{name}, {N_CLUSTERS} clusters"], values[baseline]) for name in LOCAL
            },
        }
    return figures


def _test(values: Float64, baseline: Float64) -> dict[str, float]:
    paired = compare_paired(values, baseline)
    low, high = (round(each, 4) for each in paired.interval)
    return {"difference": round(paired.mean_difference, 4), "low": low, "high": high, "p": two_digits(paired.p)}


EXPERIMENT = Experiment(
    "cluster-aggregation",
    "local-models",
    letor_tasks(one_fold, dict(zip(COLLECTIONS, (0.4, 0.2), strict=True))),
    summary,
)
