"""What a query's own judgments would make of it: the oracle that sees all of them, and what half of them tell.

Both learn weights from the query's own pairs, pulled to the global model: w = (A_q / p_q + (λ + μ) I)⁻¹
(b_q / p_q + μ w0), over a ladder of strengths μ. The oracle learns from the very documents it then ranks and takes, for
each query, the μ that measures best: an upper bound that no ranker reaches, and a loose one, since a few documents
with many features can be put in any order. So there is a second figure that cannot flatter itself: weights learned from
half of a query's documents rank the other half, with one μ for all queries, chosen on training queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.data.grouping import offsets_of
from kinrank.data.queryset import QuerySet
from kinrank.learn.statistics import PairStatistics
from kinrank.measure import Measure
from kinrank.measure.base import mean_of
from kinrank.rankers.local.training_sets import Shrinkage
from kinrank.study.sweep import subsample

STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""The ladder of μ; beyond its end is the global model itself."""

_SAMPLE = 2000  # training queries that choose μ


@dataclass(frozen=True, eq=False)
class GlobalModel:
    """One model for all queries: its weights, and the penalty λ it was learned with."""

    weights: Float64
    penalty: float

    def own(self, learned_from: QuerySet, strengths: tuple[float, ...] = STRENGTHS) -> Iterator[Float64]:
        """Weights of each query from its own pairs, strength after strength."""
        statistics = PairStatistics.from_queries(learned_from)
        for strength in strengths:
            yield statistics.solve(*Shrinkage(strength, self.weights).combine(self.penalty))


def oracle_scores(model: GlobalModel, queries: QuerySet, measure: Measure) -> Float64:
    """Scores by the best weights of each query: its own at the best strength, or the global ones.

    Parameters
    ----------
    model
        The global model.
    queries
        Judged queries, features prepared as the model wants them.
    measure
        By which the best are the best.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> from kinrank.measure import NDCG
    >>> camps = make_two_camps(n_queries=20, seed=0)
    >>> scores = oracle_scores(GlobalModel(np.zeros(2), 0.01), camps, NDCG @ 10)
    >>> (NDCG @ 10).mean(scores, camps.grades, camps.offsets)
    1.0
    """
    scores: Float64 = queries.X @ model.weights
    best = measure.per_query(scores, queries.grades, queries.offsets, queries.doc_id)
    for weights in model.own(queries):
        tried = _scores(queries, weights)
        values = measure.per_query(tried, queries.grades, queries.offsets, queries.doc_id)
        better = values > best
        scores = np.where(better[queries.query_of_row], tried, scores)
        best = np.where(better, values, best)
    return scores


@dataclass(frozen=True, eq=False)
class HalfKnown:
    """What half of a query's judgments tell about the other half.

    Attributes
    ----------
    strength : float or None
        μ, chosen on training queries; None where the global model was best there.
    single, own : float64 arrays of shape (queries,)
        The measure of the global model and of the query's own weights on halves of its documents, mean of both halves;
        NaN where a query has fewer than two documents or the measure leaves it out.
    """

    strength: float | None
    single: Float64
    own: Float64


def half_known(model: GlobalModel, train: QuerySet, test: QuerySet, measure: Measure, seed: int = 0) -> HalfKnown:
    """Learn each query's weights from half of its documents and rank the other half, both ways round.

    Parameters
    ----------
    model
        The global model of the training queries.
    train, test
        Judged queries, features prepared as the model wants them; `train` chooses the strength.
    measure
        What to measure.
    seed
        Of the halves.
    """
    single, *each = _on_halves(model, subsample(train, _SAMPLE), measure, seed, STRENGTHS)
    means = [mean_of(values) for values in each]
    best = int(np.argmax(means))
    if not means[best] > mean_of(single):
        values = _on_halves(model, test, measure, seed, ())[0]
        return HalfKnown(None, values, values)
    values, own = _on_halves(model, test, measure, seed, (STRENGTHS[best],))
    return HalfKnown(STRENGTHS[best], values, own)


def _on_halves(
    model: GlobalModel, queries: QuerySet, measure: Measure, seed: int, strengths: tuple[float, ...]
) -> list[Float64]:
    """The measure by query of the global model and of own weights at each strength, mean over both halves."""
    enough = np.flatnonzero(queries.sizes >= 2)
    halves = _halves(queries[enough], seed)
    values = np.full((1 + len(strengths), 2, len(queries)), np.nan)
    for side, (known, asked) in enumerate((halves, halves[::-1])):
        tried = [asked.X @ model.weights, *(_scores(asked, weights) for weights in model.own(known, strengths))]
        for row, scores in enumerate(tried):
            values[row, side, enough] = measure.per_query(scores, asked.grades, asked.offsets, asked.doc_id)
    missing = np.isnan(values)
    counts = np.sum(~missing, axis=1)
    means = np.divide(
        np.where(missing, 0.0, values).sum(axis=1), counts, where=counts > 0, out=np.full(counts.shape, np.nan)
    )
    return list(means)


def _halves(queries: QuerySet, seed: int) -> tuple[QuerySet, QuerySet]:
    """The documents of each query dealt at random to two sets of the same queries."""
    drawn = np.random.default_rng(seed).random(queries.n_rows)
    order = np.lexsort((drawn, queries.query_of_row))
    place = np.empty(queries.n_rows, dtype=np.int64)
    place[order] = np.arange(queries.n_rows) - np.repeat(queries.offsets[:-1], queries.sizes)
    first = place < np.repeat(queries.sizes // 2, queries.sizes)
    return _rows(queries, first), _rows(queries, ~first)


def _rows(queries: QuerySet, chosen: NDArray[np.bool_]) -> QuerySet:
    return QuerySet(
        X=queries.X[chosen],
        y=queries.grades[chosen],
        offsets=offsets_of(np.bincount(queries.query_of_row[chosen], minlength=len(queries))),
        qid=queries.qid,
        doc_id=None if queries.doc_id is None else queries.doc_id[chosen],
        feature_names=queries.feature_names,
    )


def _scores(queries: QuerySet, weights: Float64) -> Float64:
    """Every row by the weights of its query."""
    scores: Float64 = np.einsum("ij,ij->i", queries.X, weights[queries.query_of_row])
    return scores
