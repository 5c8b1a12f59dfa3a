"""What a ranker that learns from neighbors tells of test queries: map, weights, kin, what k does."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

import numpy as np

from kinrank.arrays import Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.measure import Measure, compare_paired
from kinrank.rankers.knn.offline import OfflineModels, change_ratio
from kinrank.rankers.local.explanation import Explanation
from kinrank.rankers.local.nearest import NeighborRanker
from kinrank.rankers.local.neighborhoods import Neighborhoods
from kinrank.study.report.contents import ChangeRatios, NeighborAnalysis, NeighborCurve, Weights
from kinrank.study.report.projection import deciding_shares, kinds_of, map_of

MOST_SHOWN = 4000
"""Queries on the map; of more, those that changed most and a sample of the others."""

_ALWAYS_SHOWN = 100
_KIN = 3
_TRIED = 1000  # queries that every k is tried on, fewer where judged queries are many
_FEWEST_TRIED = 100
_SUMMED = 20_000_000  # neighbors summed up for the largest k
_RATIO_QUERIES = 200
_SET_ENTRIES = 10_000_000  # the sets of all judged queries together, for Offline-1
_SMALLEST_K = 25


def analyze_neighbors(
    name: str,
    ranker: NeighborRanker,
    queries: QuerySet,
    gains: Float64,
    measure: Measure,
    *,
    whole: bool = True,
    judged_names: Mapping[str, str] | None = None,
    validation: QuerySet | None = None,
    seed: int = 0,
) -> NeighborAnalysis:
    """Everything that neighbors tell.

    Parameters
    ----------
    name
        What the ranker is called.
    ranker
        Fitted.
    queries
        The test queries.
    gains
        What each gained, which decides whom to show where there are too many.
    measure
        What to try k by.
    whole
        Whether that is all there is to the entrant of this name.
    judged_names
        Names of the judged queries by id as text, which is how cells know them; the id itself where one has none.
    validation
        Queries to try k on; a sample of the test queries where not given.
    seed
        Of samples, map and groups.
    """
    shown = shown_queries(gains, seed)
    some = queries[shown]
    explained = ranker.explain(some)
    known = judged_names or {}
    judged = judged_queries(ranker)
    return NeighborAnalysis(
        name=name,
        whole=whole,
        judged=judged,
        n_neighbors=None if ranker.radius is not None else min(ranker.n_neighbors, judged),
        shown=shown,
        places=map_of(ranker.describer_.transform(some), seed),
        kin=tuple(tuple(known.get(q, q) for q in map(str, each.neighbors[:_KIN].tolist())) for each in explained),
        weights=_weights(explained, some, seed),
        curve=neighbor_curve(ranker, queries if validation is None else validation, measure, validation is not None),
        ratios=change_ratios(ranker, sample(queries, _RATIO_QUERIES, seed)),
    )


def judged_queries(ranker: NeighborRanker) -> int:
    """How many queries it learned from; with cells, `qid_` names one of each."""
    return int(ranker.training_set_.counts.sum())


def shown_queries(gains: Float64, seed: int = 0) -> Int64:
    """All queries, or those that changed most and a sample of the others, in the order of the data."""
    if len(gains) <= MOST_SHOWN:
        return np.arange(len(gains))
    order = np.argsort(np.nan_to_num(gains), kind="stable")
    extreme = np.concatenate([order[:_ALWAYS_SHOWN], order[-_ALWAYS_SHOWN:]])
    others = order[_ALWAYS_SHOWN:-_ALWAYS_SHOWN]
    drawn = np.random.default_rng(seed).choice(others, MOST_SHOWN - len(extreme), replace=False)
    return np.sort(np.concatenate([extreme, drawn]))


def sample(queries: QuerySet, n: int, seed: int = 0) -> QuerySet:
    """Some of the queries, in order; all where there are no more."""
    if len(queries) <= n:
        return queries
    return queries[np.sort(np.random.default_rng(seed).choice(len(queries), n, replace=False))]


def _weights(explained: list[Explanation], queries: QuerySet, seed: int) -> Weights | None:
    """None where the models are not linear."""
    weights = [each.weights for each in explained if each.weights is not None]
    everywhere = explained[0].global_weights
    if everywhere is None:
        return None
    shares = deciding_shares(np.array(weights), queries)
    return Weights(shares, deciding_shares(everywhere, queries), tuple(kinds_of(shares, seed)))


def neighbor_counts(n_judged: int, own: int) -> list[int]:
    """The k to try: doubling up to all judged queries, and the ranker's own.

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
    """What each k gains over the global model; None where another k means fitting again."""
    if not ranker.learns_online or ranker.radius is not None or not ranker.learner_.linear:
        return None
    affordable = max(_FEWEST_TRIED, _SUMMED // len(ranker.qid_))
    tried = sample(queries, min(_TRIED, affordable), seed)

    def reached(scores: Float64) -> Float64:
        return measure.per_query(scores, tried.grades, tried.offsets, tried.doc_id)

    # Not the largest k: where nearer neighbors weigh more, all of them are no single model.
    single = reached(ranker.global_scores(tried))
    gains = {
        k: compare_paired(reached(copy(ranker).set_params(n_neighbors=k).predict(tried)), single)
        for k in neighbor_counts(judged_queries(ranker), ranker.n_neighbors)
    }
    return NeighborCurve(gains, measure, len(tried), validation)


def change_ratios(ranker: NeighborRanker, queries: QuerySet) -> ChangeRatios | None:
    """The mean change ratio of both offline modes by k; None where neighbors go by radius, or are cells.

    Offline-1 needs the sets of all judged queries, so it stops at a k where those would fill the memory.
    """
    if ranker.radius is not None or ranker.capabilities.merges:
        return None
    index, m, pairs = ranker.index_, len(ranker.qid_), ranker.training_set_.pairs
    counts = [k for k in neighbor_counts(m, ranker.n_neighbors) if k * len(queries) <= _SET_ENTRIES]
    near = index.query(ranker.describer_.transform(queries), counts[-1])[1]
    theirs = index.query(index.points_[near[:, 0]], counts[-1])[1]
    most = max((k for k in counts if k * m <= _SET_ENTRIES), default=0)
    sets = index.query(index.points_, most)[1] if most else None
    first: dict[int, float] = {}
    second: dict[int, float] = {}
    for k in counts:
        second[k] = _mean_ratio(near[:, :k], theirs[:, :k], pairs)
        if sets is not None and k <= most:
            # Which sets the models would be learned from is all that the ratio asks; the models are not needed.
            taught = Neighborhoods(sets[:, :k].ravel(), np.arange(m + 1) * k, np.zeros(m * k))
            models = OfflineModels([ranker.global_] * m, taught, pairs)
            chosen = [models.most_overlapping(members) for members in near[:, :k]]
            first[k] = _mean_ratio(near[:, :k], sets[chosen, :k], pairs)
    return ChangeRatios({"offline-1": first, "offline-2": second}, len(queries))


def _mean_ratio(own: Int64, other: Int64, pairs: Float64) -> float:
    return float(np.mean([change_ratio(a, b, pairs) for a, b in zip(own, other, strict=True)]))
