"""Hold out judged queries, and choose k and the strength of the prior on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kinrank.arrays import Float32, Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.data.split import fold_of_query, groups_of
from kinrank.errors import ParameterError
from kinrank.learn.ranksvm import JudgedPairs
from kinrank.learn.statistics import PairStatistics
from kinrank.measure import NDCG, Measure
from kinrank.measure.base import mean_of, query_means
from kinrank.parallel import Serial, current_executor, map_ordered
from kinrank.progress import report_progress
from kinrank.rankers._local.model import coefficients
from kinrank.rankers._local.nearest import NeighborRanker
from kinrank.rankers._local.training_sets import EditableTrainingSet, Shrinkage, StatisticsTrainingSet

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
            scores = ranker.set_params(n_neighbors=k).predict_with_novelty(out).scores
            values.append(MEASURE.per_query(scores, out.grades, out.offsets, sample_weight=out.sample_weight))
        weights.append(query_means(out.row_weights, out.offsets))
        report_progress("folds to choose k", held_out + 1, n_folds)
        if np.count_nonzero(fold <= held_out) >= ENOUGH:
            break
    return max(counts, key=lambda k: mean_of(np.concatenate(quality[k]), np.concatenate(weights)))


def quality_of(scores: Float64, queries: QuerySet) -> float:
    """Return the mean quality of scores by which parts of a ranker are chosen."""
    return MEASURE.mean(scores, queries.grades, queries.offsets, sample_weight=queries.sample_weight)


# --- k and the strength of the prior on validation queries ------------------------------------------------------------


_QUERIES_AT_ONCE = 1024

R = TypeVar("R", bound=NeighborRanker)


@dataclass(frozen=True)
class NeighborChoice:
    """The best k and prior on validation queries."""

    n_neighbors: int
    """The best k."""
    prior_strength: float | None
    """The best strength of the shrinkage to the global model; None for no prior."""
    quality: dict[tuple[int, float | None], float]
    """The measure of every (k, strength) tried."""
    single: float
    """The measure of the global model on the same queries. If it is above the best, local models do not help."""
    n_queries: int
    """How many queries have a value of the measure."""

    def apply(self, ranker: R) -> R:
        """Set the choice on a ranker and return it. A fitted ranker need not be fitted again."""
        strength = {} if self.prior_strength is None else {"prior_strength": self.prior_strength}
        prior = "none" if self.prior_strength is None else "global"
        changed: R = ranker.set_params(n_neighbors=self.n_neighbors, prior=prior, **strength)
        return changed


def choose_neighbors(
    ranker: R,
    queries: QuerySet,
    n_neighbors: Sequence[int],
    *,
    prior_strengths: Sequence[float | None] = (None,),
    measure: Measure = NDCG @ 10,
) -> NeighborChoice:
    """Try every k, and every strength of the prior, on judged queries that the ranker was not fitted on.

    With uniform weights the neighbors' statistics are summed once, and each k reads the running sum. Other weights
    depend on the farthest neighbor, so that each k sums anew.

    Parameters
    ----------
    ranker
        A fitted `KnnRanker` or `CellRanker` with RankRLS and no radius.
    queries
        Validation queries.
    n_neighbors
        The k to try.
    prior_strengths
        The strengths to try; None is no prior.
    measure
        The measure to maximize.

    Examples
    --------
    >>> from kinrank import KnnRanker
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=80, seed=0)
    >>> ranker = KnnRanker().fit(camps[:60])
    >>> choose_neighbors(ranker, camps[60:], [5, 60]).n_neighbors
    5
    """
    check_is_fitted(ranker)
    training_set = ranker.model_.training_set
    by_count = ranker.learns_online and ranker.radius is None
    if not isinstance(training_set, StatisticsTrainingSet) or not by_count:
        raise ParameterError("choose_neighbors needs mode='online', learner='rankrls' and radius=None")
    if not len(n_neighbors) or min(n_neighbors) < 1:
        raise ParameterError(f"n_neighbors must be a list of whole numbers from 1, got {list(n_neighbors)}")
    ranker.check_features(queries.feature_names)
    editable = isinstance(training_set, EditableTrainingSet)  # it keeps the positions of removed queries
    n_judged = ranker.n_judged_ if editable else int(training_set.counts.sum())
    counts = np.unique(np.minimum(n_neighbors, n_judged))
    target = coefficients(ranker.global_)
    shrinkages = [None if strength is None else Shrinkage(strength, target) for strength in prior_strengths]
    trial = _Trial(ranker, training_set, queries, counts, shrinkages)
    starts = range(0, len(queries), _QUERIES_AT_ONCE)
    scores = np.concatenate(list(map_ordered(current_executor(Serial()), trial, starts)), axis=2)
    return _best(queries, scores[:-1], counts.tolist(), prior_strengths, measure, scores[-1, 0])


@dataclass(frozen=True, eq=False)
class _Trial:
    """Scores a block of validation queries with every setting."""

    ranker: NeighborRanker
    training_set: StatisticsTrainingSet
    queries: QuerySet
    counts: Int64
    shrinkages: list[Shrinkage | None]

    def __call__(self, start: int) -> Float64:
        """Return an array of shape (strengths + 1, counts, rows); the last is the global model's."""
        block = self.queries[start : start + _QUERIES_AT_ONCE]
        X, by_global = self.ranker.model_.prepared(block), coefficients(self.ranker.global_)
        points = self.ranker.points(block)
        by_count = np.empty((len(self.shrinkages), len(self.counts), len(block), len(by_global)))
        if self.ranker.neighbor_weights == "uniform":
            for query, (near, _) in enumerate(self.ranker.near(points, int(self.counts[-1]))):
                by_count[:, :, query] = self._solved(self.training_set.prefix_sums(near, self.counts), by_global)
        else:
            for column, count in enumerate(self.counts.tolist()):
                by_count[:, column] = self._solved(self._sums(points, count), by_global)
        scores = np.empty((len(self.shrinkages) + 1, len(self.counts), block.n_rows))
        scores[-1] = X @ by_global
        for query, (first, last) in enumerate(pairwise(block.offsets.tolist())):
            scores[:-1, :, first:last] = by_count[:, :, query] @ X[first:last].T
        return scores

    def _sums(self, points: Float32, count: int) -> PairStatistics:
        """Return the weighted sums over the nearest `count` queries of each point."""
        near = self.ranker.near(points, count)
        weights = near.weights(self.ranker.neighbor_weights, None)
        return self.training_set.sum_sets(
            near.members, near.starts, self.training_set.pair_weights(near.members, weights)
        )

    def _solved(self, sums: PairStatistics, by_global: Float64) -> Float64:
        """Return the weights for every shrinkage and every sum; the global ones where there is no pair."""
        learned = sums.pairs[:, None] > 0
        solved = [self.training_set.solve(sums, shrinkage) for shrinkage in self.shrinkages]
        return np.where(learned, solved, by_global)


def _best(
    queries: QuerySet,
    scores: Float64,
    counts: list[int],
    strengths: Sequence[float | None],
    measure: Measure,
    single: Float64,
) -> NeighborChoice:
    judged = queries.grades, queries.offsets, queries.doc_id, queries.sample_weight
    quality = {
        (k, strength): measure.mean(scores[row, column], *judged)
        for row, strength in enumerate(strengths)
        for column, k in enumerate(counts)
    }
    k, strength = max(quality, key=quality.__getitem__)
    by_single = measure.per_query(single, *judged)
    return NeighborChoice(k, strength, quality, mean_of(by_single), int(np.isfinite(by_single).sum()))
