"""Cross-validate all values of k and prior strength, or all numbers of trees, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from sklearn.base import clone

from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import Measure
from kinrank.rankers._local.choose import NeighborChoice, choose_neighbors
from kinrank.rankers.knn.ranker import KnnRanker

NEIGHBORS = (5, 10, 25, 50, 100, 200, 400, 800)
PRIORS = (None, 0.03, 0.1, 0.3, 1.0)


def sweep_neighbors(
    ranker: KnnRanker,
    folds: Iterable[tuple[QuerySet, QuerySet]],
    measure: Measure,
    *,
    counts: Sequence[int] = NEIGHBORS,
    strengths: Sequence[float | None] = PRIORS,
    enough: int | None = None,
) -> NeighborChoice:
    """Choose k and the strength of the prior by cross-validation.

    A k above half of the training queries of any fold is skipped. Folds after `enough` validation queries are skipped,
    and larger ones are subsampled.
    """
    choices: list[NeighborChoice] = []
    used = 0
    for train, held_out in folds:
        chosen = held_out if enough is None else subsample(held_out, enough)
        tried = [k for k in counts if k <= max(counts[0], len(train) // 2)]
        fitted = clone(ranker).set_params(n_neighbors=tried[-1]).fit(train)
        choice = choose_neighbors(fitted, chosen, tried, prior_strengths=strengths, measure=measure)
        if choice.n_queries:
            choices.append(choice)
        used += len(chosen)
        if enough is not None and used >= enough:
            break
    if not choices:
        raise DataError(f"no fold has queries with a value of {measure!r}: pass folds with relevant documents")
    weights = [choice.n_queries for choice in choices]
    # A k that only larger folds allow would be measured on other queries than the rest.
    everywhere = [setting for setting in choices[0].quality if all(setting in choice.quality for choice in choices)]
    mean = {setting: _mean([choice.quality[setting] for choice in choices], weights) for setting in everywhere}
    k, strength = max(mean, key=mean.__getitem__)
    return NeighborChoice(k, strength, mean, _mean([choice.single for choice in choices], weights), sum(weights))


def sweep_trees(learner: LambdaMART, folds: Iterable[tuple[QuerySet, QuerySet]]) -> int:
    """Return the number of trees, up to that of the learner, with the best NDCG@10 on the validation queries."""
    curves, weights = [], []
    for train, held_out in folds:
        curves.append(clone(learner).fit(train, validation=held_out).validation_ndcg_)
        weights.append(len(held_out))
    return int(np.argmax(np.average(curves, axis=0, weights=weights))) + 1


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    return float(np.average(values, weights=weights))


def subsample(queries: QuerySet, n: int) -> QuerySet:
    """Return at most `n` of the queries, evenly spaced."""
    if len(queries) <= n:
        return queries
    return queries[np.linspace(0, len(queries) - 1, n).astype(np.int64)]
