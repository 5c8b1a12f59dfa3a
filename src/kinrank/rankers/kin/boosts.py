"""What people chose as boosts of documents, for engines that rank by a weighted sum of features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kinrank.arrays import Float32, Float64
from kinrank.data.queryset import QuerySet
from kinrank.rankers.kendall import kendall_tau
from kinrank.rankers.kin.chosen import ChosenPart
from kinrank.rankers.linear_weights import LinearWeights


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
