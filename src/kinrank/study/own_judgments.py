"""Rank a query with weights fitted to its own judgments: to all of them (the oracle), or to half of them.

Both fit weights to the query's own pairs, shrunk to the global model: w = (A_q / p_q + (λ + μ) I)⁻¹
(b_q / p_q + μ w0), for several strengths μ. The oracle ranks the documents it was fitted on and takes the best μ for
each query. It is an upper bound that no ranker reaches, and a loose one: with many features, a few documents can be
put in any order. The second estimate is not optimistic: weights fitted to half of a query's documents rank the other
half, with one μ for all queries, chosen on training queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.learn.statistics import PairStatistics
from kinrank.measure import Measure
from kinrank.measure.base import mean_of
from kinrank.rankers.local.training_base import Shrinkage
from kinrank.study.sweep import subsample

STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Values of μ; a larger μ approaches the global model."""

_SAMPLE = 2000  # training queries used to choose μ


@dataclass(frozen=True, eq=False)
class GlobalModel:
    """Weights of one model for all queries, and its penalty λ."""

    weights: Float64
    penalty: float

    def own(self, judged: QuerySet, strengths: tuple[float, ...] = STRENGTHS) -> Iterator[Float64]:
        """Yield, for each strength, the weights of each query fitted to its own pairs."""
        statistics = PairStatistics.from_queries(judged)
        for strength in strengths:
            yield statistics.solve(*Shrinkage(strength, self.weights).combine(self.penalty))


def scores_by_own_judgments(model: GlobalModel, queries: QuerySet, measure: Measure) -> Float64:
    """Return scores by the best weights of each query: its own at the best strength, or the global ones.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> from kinrank.measure import NDCG
    >>> camps = make_two_camps(n_queries=20, seed=0)
    >>> scores = scores_by_own_judgments(GlobalModel(np.zeros(2), 0.01), camps, NDCG @ 10)
    >>> (NDCG @ 10).mean(scores, camps.grades, camps.offsets)
    1.0
    """
    scores: Float64 = queries.X @ model.weights
    best = measure.per_query(scores, queries.grades, queries.offsets, queries.doc_id, queries.sample_weight)
    for weights in model.own(queries):
        tried = _scores(queries, weights)
        values = measure.per_query(tried, queries.grades, queries.offsets, queries.doc_id, queries.sample_weight)
        better = values > best
        scores = np.where(better[queries.query_of_row], tried, scores)
        best = np.where(better, values, best)
    return scores


@dataclass(frozen=True, eq=False)
class HalfKnown:
    """How well half of a query's judgments predict the other half."""

    strength: float | None
    """μ, chosen on training queries; None if the global model was best."""
    single: Float64
    own: Float64
    """Measure of the global model and of the query's own weights, averaged over both halves of its documents; NaN if a
    query has fewer than two documents or the measure skips it; shape (queries,).
    """


def half_known(model: GlobalModel, train: QuerySet, test: QuerySet, measure: Measure, seed: int = 0) -> HalfKnown:
    """Fit weights to half of each query's documents and rank the other half, for both halves.

    The strength is chosen on the training queries.
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
    """Return the measure per query of the global model and of own weights at each strength, mean of both halves."""
    enough = np.flatnonzero(queries.sizes >= 2)
    halves = _halves(queries[enough], seed)
    values = np.full((1 + len(strengths), 2, len(queries)), np.nan)
    for side, (known, held_out) in enumerate((halves, halves[::-1])):
        tried = [held_out.X @ model.weights, *(_scores(held_out, weights) for weights in model.own(known, strengths))]
        for row, scores in enumerate(tried):
            values[row, side, enough] = measure.per_query(
                scores, held_out.grades, held_out.offsets, held_out.doc_id, held_out.sample_weight
            )
    missing = np.isnan(values)
    counts = np.sum(~missing, axis=1)
    means = np.divide(
        np.where(missing, 0.0, values).sum(axis=1), counts, where=counts > 0, out=np.full(counts.shape, np.nan)
    )
    return list(means)


def _halves(queries: QuerySet, seed: int) -> tuple[QuerySet, QuerySet]:
    """Split the documents of each query at random into two sets of the same queries."""
    drawn = np.random.default_rng(seed).random(queries.n_rows)
    order = np.lexsort((drawn, queries.query_of_row))
    position = np.empty(queries.n_rows, dtype=np.int64)
    position[order] = np.arange(queries.n_rows) - np.repeat(queries.offsets[:-1], queries.sizes)
    first = position < np.repeat(queries.sizes // 2, queries.sizes)
    return queries.take_rows(first), queries.take_rows(~first)


def _scores(queries: QuerySet, weights: Float64) -> Float64:
    """Score each row by the weights of its query."""
    scores: Float64 = np.einsum("ij,ij->i", queries.X, weights[queries.query_of_row])
    return scores
