"""Hold out judged queries, and choose k on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kinrank.arrays import Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.data.split import fold_of_query, groups_of
from kinrank.learn.ranksvm import JudgedPairs
from kinrank.measure import NDCG
from kinrank.measure.base import mean_of, query_means
from kinrank.progress import report_progress
from kinrank.rankers.local.nearest import NeighborRanker

NEIGHBORS = (10, 25, 50, 100, 200, 400, 800)
ENOUGH = 2_000  # held-out queries that decide well enough
# Judgments are often sorted by grade, and trees give equal scores: tied documents get the mean of their ranks.
MEASURE = NDCG(ties="average") @ 10


def assign_folds(queries: QuerySet, n_folds: int, group: str | None, seed: int) -> Int64 | None:
    """Return the fold of each query, or None if there are too few queries or groups for cross-fitting."""
    # By position, not by id, so that query ids do not affect the result.
    together = np.arange(len(queries)) if group is None else groups_of(queries, group)
    if len(np.unique(together)) < 2 * n_folds:
        return None
    fold = fold_of_query(queries, n_folds, group=together, seed=seed)
    pairs = np.bincount(fold, JudgedPairs.from_queries(queries).pairs, n_folds)
    return fold if np.count_nonzero(pairs) > 1 else None


def best_n_neighbors(
    without: Callable[[int], NeighborRanker],
    queries: QuerySet,
    fold: Int64,
    n_seen: int,
    tried: Sequence[int] = NEIGHBORS,
) -> int:
    """Return the k whose local models rank held-out queries best.

    Folds are held out one after the other until `ENOUGH` queries were ranked.

    `without` returns a fitted ranker that has not seen a fold; each of these has seen at least `n_seen` queries.
    """
    # Past half of the queries a local model is hardly local.
    counts = [k for k in tried if 2 * k <= n_seen] or [tried[0]]
    quality: dict[int, list[Float64]] = {k: [] for k in counts}
    weights: list[Float64] = []
    n_folds = int(fold.max()) + 1
    for held_out in range(n_folds):
        out = queries[fold == held_out]
        ranker = without(held_out)
        for k, values in quality.items():
            scores = ranker.set_params(n_neighbors=k).predict_unchecked(out).scores
            values.append(MEASURE.per_query(scores, out.grades, out.offsets, sample_weight=out.sample_weight))
        weights.append(query_means(out.row_weights, out.offsets))
        report_progress("folds to choose k", held_out + 1, n_folds)
        if np.count_nonzero(fold <= held_out) >= ENOUGH:
            break
    return max(counts, key=lambda k: mean_of(np.concatenate(quality[k]), np.concatenate(weights)))


def quality_of(scores: Float64, queries: QuerySet) -> float:
    """Return the mean quality of scores by which parts of a ranker are chosen."""
    return MEASURE.mean(scores, queries.grades, queries.offsets, sample_weight=queries.sample_weight)
