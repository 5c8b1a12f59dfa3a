"""Choosing k, the strength of the prior and the number of cells on validation queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from kinrank.arrays import Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.measure import NDCG, Measure
from kinrank.measure.base import mean_of
from kinrank.parallel import Serial, current_executor, map_ordered
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.local.base import coefficients
from kinrank.rankers.local.memory import Pull, SummedMemory

_QUERIES_AT_ONCE = 1024


@dataclass(frozen=True)
class NeighborChoice:
    """What validation says.

    Attributes
    ----------
    n_neighbors
        The best k.
    prior_strength
        The best strength of the pull to the global model; None for no prior.
    quality
        The measure of every (k, strength) tried.
    single
        The measure of the global model on the same queries: a best below it says that nothing gains.
    n_queries
        How many queries that is: those which the measure gives a value.
    """

    n_neighbors: int
    prior_strength: float | None
    quality: dict[tuple[int, float | None], float]
    single: float
    n_queries: int

    def apply(self, ranker: KnnRanker) -> KnnRanker:
        """Set the choice on a fitted online ranker; nothing has to be fitted again."""
        strength = {} if self.prior_strength is None else {"prior_strength": self.prior_strength}
        prior = "none" if self.prior_strength is None else "global"
        set_up: KnnRanker = ranker.set_params(n_neighbors=self.n_neighbors, prior=prior, **strength)
        return set_up


def choose_neighbors(
    ranker: KnnRanker,
    queries: QuerySet,
    n_neighbors: Sequence[int],
    *,
    prior_strengths: Sequence[float | None] = (None,),
    measure: Measure = NDCG @ 10,
) -> NeighborChoice:
    """Try every k, and every strength of the prior, on judged queries that the ranker was not fitted on.

    The neighbors of a query are sought once; their statistics are summed once, and each k reads the sum so far.

    Parameters
    ----------
    ranker
        A fitted `KnnRanker` with ``mode="online"``, RankRLS and uniform neighbor weights.
    queries
        Validation queries.
    n_neighbors
        The k to try.
    prior_strengths
        The strengths to try; None is no prior.
    measure
        What to maximize.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=80, seed=0)
    >>> ranker = KnnRanker().fit(camps[:60])
    >>> choose_neighbors(ranker, camps[60:], [5, 60]).n_neighbors
    5
    """
    memory = ranker.memory_
    uniform = ranker.neighbor_weights == "uniform" and ranker.radius is None
    if not isinstance(memory, SummedMemory) or ranker.mode != "online" or not uniform:
        raise ParameterError(
            "choose_neighbors needs mode='online', learner='rankrls', uniform neighbor_weights and no radius"
        )
    if not len(n_neighbors) or min(n_neighbors) < 1:
        raise ParameterError(f"n_neighbors must be a list of numbers from 1, got {list(n_neighbors)}")
    queries = ranker._take(queries)
    counts = np.unique(np.minimum(n_neighbors, int(memory.counts.sum())))
    pulls = [None if strength is None else Pull(strength, coefficients(ranker.global_)) for strength in prior_strengths]
    trial = _Trial(ranker, memory, queries, counts, pulls)
    starts = range(0, len(queries), _QUERIES_AT_ONCE)
    scores = np.concatenate(list(map_ordered(current_executor(Serial()), trial, starts)), axis=2)
    return _best(queries, scores[:-1], counts.tolist(), prior_strengths, measure, scores[-1, 0])


@dataclass(frozen=True, eq=False)
class _Trial:
    """The scores of some validation queries under every setting."""

    ranker: KnnRanker
    memory: SummedMemory
    queries: QuerySet
    counts: Int64
    pulls: list[Pull | None]

    def __call__(self, start: int) -> Float64:
        """Shape (strengths + 1, counts, rows); the last is the global model's."""
        some = self.queries[start : start + _QUERIES_AT_ONCE]
        X, by_global = self.ranker._prepared(some), coefficients(self.ranker.global_)
        scores = np.empty((len(self.pulls) + 1, len(self.counts), some.n_rows))
        scores[-1] = X @ by_global
        for query, (near, _) in enumerate(self.ranker.near(self.ranker._points(some), int(self.counts[-1]))):
            rows = slice(some.offsets[query], some.offsets[query + 1])
            sums = self.memory.prefix_sums(near, self.counts)
            for row, pull in enumerate(self.pulls):
                solved = np.where(sums.pairs[:, None] > 0, self.memory.solve(sums, pull), by_global)
                scores[row, :, rows] = (X[rows] @ solved.T).T
        return scores


@dataclass(frozen=True)
class CellChoice:
    """What validation says about cells.

    Attributes
    ----------
    cells
        The best number of cells.
    ranker
        Fitted with it, and with the best k and prior for it.
    quality
        The measure of every number of cells, each with its own best k and prior.
    neighbors
        What was found for each number of cells.
    """

    cells: int
    ranker: KnnRanker
    quality: dict[int, float]
    neighbors: dict[int, NeighborChoice]


def choose_cells(
    ranker: KnnRanker,
    train: QuerySet,
    queries: QuerySet,
    cells: Sequence[int],
    n_neighbors: Sequence[int],
    *,
    prior_strengths: Sequence[float | None] = (None,),
    measure: Measure = NDCG @ 10,
) -> CellChoice:
    """Fit with every number of cells and try every k and prior on judged queries that were not fitted on.

    Parameters
    ----------
    ranker
        The settings; it is not fitted.
    train
        What to fit on.
    queries
        Validation queries.
    cells
        The numbers of cells to try; of equally good ones the smallest is taken.
    n_neighbors, prior_strengths, measure
        See `choose_neighbors`.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=80, seed=0)
    >>> choose_cells(KnnRanker(), camps[:60], camps[60:], [1, 2, 6], [10]).cells
    2
    """
    if not len(cells):
        raise ParameterError("cells must be a list of numbers from 1, got none")
    fitted: dict[int, KnnRanker] = {}
    found: dict[int, NeighborChoice] = {}
    for count in sorted(set(cells)):
        fitted[count] = clone(ranker).set_params(cells=count).fit(train)
        found[count] = choose_neighbors(
            fitted[count], queries, n_neighbors, prior_strengths=prior_strengths, measure=measure
        )
    quality = {count: max(choice.quality.values()) for count, choice in found.items()}
    best = max(quality, key=quality.__getitem__)
    return CellChoice(best, found[best].apply(fitted[best]), quality, found)


def _best(
    queries: QuerySet,
    scores: Float64,
    counts: list[int],
    strengths: Sequence[float | None],
    measure: Measure,
    single: Float64,
) -> NeighborChoice:
    judged = queries.grades, queries.offsets, queries.doc_id
    quality = {
        (k, strength): measure.mean(scores[row, column], *judged)
        for row, strength in enumerate(strengths)
        for column, k in enumerate(counts)
    }
    k, strength = max(quality, key=quality.__getitem__)
    by_single = measure.per_query(single, *judged)
    return NeighborChoice(k, strength, quality, mean_of(by_single), int(np.isfinite(by_single).sum()))
