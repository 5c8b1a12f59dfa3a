"""Analyze a ranker that learns from neighbors: map, nearest queries, feature shares, effect of k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from kinrank.arrays import Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.measure import Measure, compare_paired
from kinrank.rankers.knn.offline import OfflineModels, change_ratio
from kinrank.rankers.local.explanation import Explanation
from kinrank.rankers.local.nearest import NeighborRanker
from kinrank.rankers.local.neighborhoods import Neighborhoods
from kinrank.study.report.contents import ChangeRatios, FeatureShares, NeighborAnalysis, NeighborCurve
from kinrank.study.report.kinds import kinds_of_groups, names_by_words
from kinrank.study.report.projection import project
from kinrank.study.report.shares import feature_shares, group_by_shares

MOST_SHOWN = 4000
"""Maximum number of queries on the map: those that changed most, and a sample of the others."""

_ALWAYS_SHOWN = 100
_N_NEAREST = 3  # judged queries named for each query
_MAX_TRIED = 1000  # queries that every k is tried on; fewer if there are many judged queries
_MIN_TRIED = 100
_MAX_SUMMED = 20_000_000  # neighbors summed for the largest k
_RATIO_QUERIES = 200
_SET_ENTRIES = 10_000_000  # total size of the training sets of all judged queries, for Offline-1
_SMALLEST_K = 25


def analyze_neighbors(
    name: str,
    ranker: NeighborRanker,
    queries: QuerySet,
    gains: Float64,
    measure: Measure,
    *,
    whole: bool = True,
    names: Sequence[str],
    groups: Mapping[str, Int64] | None = None,
    judged_names: Mapping[str, str] | None = None,
    validation: QuerySet | None = None,
    seed: int = 0,
) -> NeighborAnalysis:
    """Analyze a fitted ranker on the test queries.

    Parameters
    ----------
    name
        Name of the entrant.
    ranker
        The fitted ranker.
    queries
        The test queries.
    gains
        Gain of each query; the queries with the largest changes are shown first.
    measure
        Measure for the effect of k.
    whole
        Whether the ranker is the entrant itself, not a part of it.
    names
        Names of the test queries, whose words name the kinds of queries.
    groups
        Kinds of queries, as positions by name; by default, queries with similar shares.
    judged_names
        Names of the judged queries by id as text; queries without a name are shown by id.
    validation
        Queries to try k on; by default a sample of the test queries.
    seed
        Seed for samples, map and groups.
    """
    shown = shown_queries(gains, seed)
    some = queries[shown]
    explained = ranker.explain(some)
    known = judged_names or {}
    n_judged = count_judged(ranker)
    return NeighborAnalysis(
        name=name,
        whole=whole,
        n_judged=n_judged,
        n_neighbors=None if ranker.radius is not None else min(ranker.k, n_judged),
        shown=shown,
        positions=project(ranker.points(some), seed),
        nearest=tuple(
            tuple(known.get(q, q) for q in map(str, each.neighbors[:_N_NEAREST].tolist())) for each in explained
        ),
        shares=_shares(explained, some, shown, names, groups, seed),
        curve=neighbor_curve(ranker, queries if validation is None else validation, measure, validation is not None),
        ratios=change_ratios(ranker, sample(queries, _RATIO_QUERIES, seed)),
    )


def count_judged(ranker: NeighborRanker) -> int:
    """Return the number of training queries; `qid_` has one query per cell only."""
    return int(ranker.training_set_.counts.sum())


def shown_queries(gains: Float64, seed: int = 0) -> Int64:
    """Return the positions of the queries to show: all, or those that changed most and a sample of the others."""
    if len(gains) <= MOST_SHOWN:
        return np.arange(len(gains))
    order = np.argsort(np.nan_to_num(gains), kind="stable")
    extreme = np.concatenate([order[:_ALWAYS_SHOWN], order[-_ALWAYS_SHOWN:]])
    others = order[_ALWAYS_SHOWN:-_ALWAYS_SHOWN]
    drawn = np.random.default_rng(seed).choice(others, MOST_SHOWN - len(extreme), replace=False)
    return np.sort(np.concatenate([extreme, drawn]))


def sample(queries: QuerySet, n: int, seed: int = 0) -> QuerySet:
    """Return a random sample of `n` queries in the order of the data, or all queries if there are fewer."""
    if len(queries) <= n:
        return queries
    return queries[np.sort(np.random.default_rng(seed).choice(len(queries), n, replace=False))]


def _shares(
    explained: list[Explanation],
    queries: QuerySet,
    shown: Int64,
    names: Sequence[str],
    groups: Mapping[str, Int64] | None,
    seed: int,
) -> FeatureShares | None:
    """Return the feature shares; None if the models are not linear."""
    weights = [each.weights for each in explained if each.weights is not None]
    global_weights = explained[0].global_weights
    if global_weights is None:
        return None
    by_query = feature_shares(np.array(weights), queries)
    overall = feature_shares(global_weights, queries)
    if groups:
        return FeatureShares(by_query, overall, tuple(kinds_of_groups(groups, shown, by_query, overall)))
    found = group_by_shares(by_query, seed)
    words = names_by_words([[names[query] for query in shown[kind.members].tolist()] for kind in found])
    kinds = (replace(kind, name=name) for kind, name in zip(found, words, strict=True))
    return FeatureShares(by_query, overall, tuple(kinds))


def neighbor_counts(n_judged: int, own: int) -> list[int]:
    """Return the values of k to try: doubling up to all judged queries, and the ranker's own.

    Examples
    --------
    >>> neighbor_counts(300, 80)
    [25, 50, 80, 100, 200, 300]
    """
    doubled = [_SMALLEST_K << i for i in range(32) if _SMALLEST_K << i < n_judged]
    return sorted({*doubled, min(own, n_judged), n_judged})


def neighbor_curve(
    ranker: NeighborRanker, queries: QuerySet, measure: Measure, validation: bool, seed: int = 0
) -> NeighborCurve | None:
    """Return the gain of each k over the global model; None if another k needs a new fit."""
    if not ranker.learns_online or ranker.radius is not None or not ranker.learner_.linear:
        return None
    affordable = max(_MIN_TRIED, _MAX_SUMMED // len(ranker.qid_))
    tried = sample(queries, min(_MAX_TRIED, affordable), seed)

    def values(scores: Float64) -> Float64:
        return measure.per_query(scores, tried.grades, tried.offsets, tried.doc_id)

    # The largest k does not give the global model if neighbors are weighted by distance.
    single = values(ranker.global_scores(tried))
    gains = {
        k: compare_paired(values(copy(ranker).set_params(n_neighbors=k).predict(tried)), single)
        for k in neighbor_counts(count_judged(ranker), ranker.k)
    }
    return NeighborCurve(gains, measure, len(tried), validation)


def change_ratios(ranker: NeighborRanker, queries: QuerySet) -> ChangeRatios | None:
    """Return the mean change ratio of both offline modes by k; None if neighbors are chosen by radius, or are cells.

    Offline-1 needs the training sets of all judged queries, so it stops at a k for which those fit into memory.
    """
    if ranker.radius is not None or ranker.capabilities.merges:
        return None
    index, m, pairs = ranker.index_, len(ranker.qid_), ranker.training_set_.pairs
    counts = [k for k in neighbor_counts(m, ranker.k) if k * len(queries) <= _SET_ENTRIES]
    near = index.query(ranker.points(queries), counts[-1])[1]
    theirs = index.query(index.points_[near[:, 0]], counts[-1])[1]
    most = max((k for k in counts if k * m <= _SET_ENTRIES), default=0)
    sets = index.query(index.points_, most)[1] if most else None
    first: dict[int, float] = {}
    second: dict[int, float] = {}
    for k in counts:
        second[k] = _mean_ratio(near[:, :k], theirs[:, :k], pairs)
        if sets is not None and k <= most:
            # The ratio depends on the training sets only, so the models need not be fitted.
            training_sets = Neighborhoods(sets[:, :k].ravel(), np.arange(m + 1) * k, np.zeros(m * k))
            models = OfflineModels([ranker.global_] * m, training_sets, pairs)
            chosen = [models.most_overlapping(members) for members in near[:, :k]]
            first[k] = _mean_ratio(near[:, :k], sets[chosen, :k], pairs)
    return ChangeRatios({"offline-1": first, "offline-2": second}, len(queries))


def _mean_ratio(own: Int64, other: Int64, pairs: Float64) -> float:
    return float(np.mean([change_ratio(a, b, pairs) for a, b in zip(own, other, strict=True)]))
