"""Analyze a ranker that learns from neighbors: map, nearest queries, feature shares, effect of k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from kinrank.arrays import Float32, Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.measure import Measure, compare_paired
from kinrank.rankers.knn.offline import OfflineModels, change_ratio
from kinrank.rankers.local.explanation import Explanation
from kinrank.rankers.local.nearest import NeighborRanker
from kinrank.rankers.local.neighborhoods import Neighborhoods
from kinrank.study.report.contents import ChangeRatios, FeatureShares, NeighborAnalysis, NeighborCurve
from kinrank.study.report.shares import feature_shares, group_by_shares, kinds_of_groups, names_by_words

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
    return int(ranker.model_.training_set.counts.sum())


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
    index, m, pairs = ranker.model_.index, len(ranker.qid_), ranker.model_.training_set.pairs
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


_N_COMPONENTS = 50  # principal components given to t-SNE; the rest is mostly noise and costs time
_PERPLEXITY = 30.0
_MAX_ITER = 500


def project(points: Float32, seed: int = 0) -> Float64:
    """Project points into the unit square so that neighbors stay neighbors.

    Uses t-SNE, initialized with the first two principal components so that the overall layout follows the data.
    Distances between groups mean little. A few points are placed by the principal components alone.

    Examples
    --------
    >>> project(np.array([[0.0, 0.0, 5.0], [0.0, 4.0, 5.0], [2.0, 2.0, 5.0]], dtype=np.float32)).round(2).tolist()
    [[0.0, 0.25], [1.0, 0.25], [0.5, 0.75]]
    """
    from sklearn.manifold import TSNE

    components = _principal_components(points)
    spread = float(components[:, 0].std())
    if len(points) <= 3 * _PERPLEXITY or not spread:
        return _in_unit_square(components[:, :2])
    # As small as scikit-learn's own PCA initialization, which t-SNE needs to unfold.
    start = (components[:, :2] / spread * 1e-4).astype(np.float32)
    tsne = TSNE(init=start, perplexity=_PERPLEXITY, max_iter=_MAX_ITER, random_state=seed)
    return _in_unit_square(tsne.fit_transform(components).astype(np.float64))


def _principal_components(points: Float32) -> Float64:
    """Return the first principal components, at least two; the sign makes the largest loading positive."""
    centered = points.astype(np.float64) - points.mean(axis=0, dtype=np.float64)
    left, size, right = np.linalg.svd(centered, full_matrices=False)
    largest = right[np.arange(len(right)), np.abs(right).argmax(axis=1)]
    components: Float64 = (left * size * np.where(largest < 0, -1.0, 1.0))[:, :_N_COMPONENTS]
    return components if components.shape[1] > 1 else np.column_stack([components, np.zeros(len(components))])


def _in_unit_square(plane: Float64) -> Float64:
    low, high = plane.min(axis=0), plane.max(axis=0)
    placed: Float64 = 0.5 + (plane - (low + high) / 2) / (float((high - low).max()) or 1.0)
    return placed
