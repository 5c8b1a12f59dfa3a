"""Linear weights and boosts for a search engine, which rank the candidates of one query as `KinRanker` does.

Trees have no weights, but on the few candidates of one query a weighted sum of the features comes close to their
scores. No grade is involved: the weights w minimize

    1/n Σ_i (s_i - w·z_i)² + λ |w - α w0|²

over the n candidates, with s and z the scores and features centered within the query, which is least squares over all
pairs of candidates. w0 are the weights of the query's local model, and α scales them to the scores.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64
from kinrank.data.queryset import QuerySet
from kinrank.learn.statistics import PairStatistics
from kinrank.rankers.base import LinearWeights
from kinrank.rankers.kin._chosen import ChosenPart


@numba.njit(cache=True, nogil=True)
def kendall_tau(first, second):  # type: ignore[no-untyped-def]
    """Return Kendall's τ-b between two lists of scores: 1 if the second has only ties, because any order is right."""
    agreement, in_first, in_second = 0.0, 0.0, 0.0
    for i in range(len(first)):
        for j in range(i):
            a, b = np.sign(first[i] - first[j]), np.sign(second[i] - second[j])
            agreement += a * b
            in_first += a * a
            in_second += b * b
    if in_second == 0.0:
        return 1.0
    return agreement / np.sqrt(in_first * in_second) if in_first > 0.0 else 0.0


RIDGE = 0.1  # λ. Less is closer to the scores of these candidates, more to the local model, which knows other documents


def fit_stand_ins(
    queries: QuerySet, scores: Float64, prior: Float64, factor: Float64, signs: NDArray[np.int8] | None
) -> tuple[Float64, Float64]:
    """Return the weights that come closest to the scores of each query's candidates, and their fidelity.

    A missing value counts as 0, as in an engine's weighted sum. The prior is the weights of each query's local model,
    for features multiplied by `factor`; for `signs` see `PairStatistics.solve`.
    """
    X = np.nan_to_num(queries.X.astype(np.float64), nan=0.0)
    weights, fidelity = np.empty((len(queries), queries.n_features)), np.empty(len(queries))
    upper = np.triu_indices(queries.n_features)
    for query in range(len(queries)):
        rows = slice(queries.offsets[query], queries.offsets[query + 1])
        features, wanted = (X[rows] - X[rows].mean(axis=0)) * factor, scores[rows] - scores[rows].mean()
        by_prior = features @ prior[query]
        size = by_prior @ by_prior
        # With nothing to fit, such as before any search, the local weights stay.
        stretch = max(by_prior @ wanted / size, 0.0) if size > 0 else 1.0
        gram, moment = features.T @ features / len(features), features.T @ wanted / len(features)
        one = PairStatistics(gram[upper][None], moment[None], np.ones(1))
        weights[query] = one.solve(RIDGE, stretch * prior[query], signs)[0] * factor
        fidelity[query] = kendall_tau(X[rows] @ weights[query], scores[rows])
    return weights, fidelity


# --- boosts -----------------------------------------------------------------------------------------------------------


class BoostedWeights(NamedTuple):
    """Weights of a query and boosts of its candidates."""

    weights: Float64
    """One weight per feature."""
    boosts: Float64
    """What is added to the weighted sum of each candidate; 0 without evidence."""
    fidelity: float | None
    """Kendall's τ between the ranking with what people chose and that by weights and boosts; None if both are equal."""


def boosted(
    linear: LinearWeights, values: Float32, query: QuerySet, scores: Float64, chosen: ChosenPart | None
) -> BoostedWeights:
    """Return weights and boosts that rank the candidates of one query nearly as what people chose does.

    The boost of a document lifts or lowers its weighted sum to where its score belongs among the scores of the
    candidates without evidence: on straight lines between their weighted sums, and beyond the highest and the lowest.

    `values` are the features that the weights apply to, `scores` those of the candidates without what people chose.
    """
    weights: Float64 = linear.weights[0]
    fidelity = None if linear.fidelity is None else float(linear.fidelity[0])
    boosts = np.zeros(query.n_rows)
    looked = np.zeros(query.n_rows, dtype=np.bool_)
    if chosen is not None:
        own = chosen.totals(query)
        looked = (own.looks != 0) | (own.choices != 0)
    if chosen is None or not looked.any():
        return BoostedWeights(weights, boosts, fidelity)
    sums = values.astype(np.float64) @ weights
    placed, predicted = chosen.with_and_without(query, scores)
    boosts[looked] = _sums_at(placed[looked], np.sort(predicted), np.sort(sums)) - sums[looked]
    return BoostedWeights(weights, boosts, None if fidelity is None else float(kendall_tau(sums + boosts, placed)))


def _sums_at(scores: Float64, predicted: Float64, sums: Float64) -> Float64:
    """Return the weighted sums that belong to scores; pairs of the two sorted arrays are points of a line."""
    width = float(predicted[-1] - predicted[0])
    height = float(sums[-1] - sums[0])
    slope = (height or 1.0) / (width or 1.0)
    beyond = np.maximum(scores - predicted[-1], 0.0) + np.minimum(scores - predicted[0], 0.0)
    found: Float64 = np.interp(scores, predicted, sums) + slope * beyond
    return found
