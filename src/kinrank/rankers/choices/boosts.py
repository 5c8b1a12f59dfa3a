"""What people chose as boosts of documents, for engines that rank by a weighted sum of features."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.normalization import normalize
from kinrank.data.queryset import QuerySet
from kinrank.rankers.choices.fitting import scores_of
from kinrank.rankers.kendall import kendall_tau


class BoostedWeights(NamedTuple):
    """Weights of a query and boosts of its candidates."""

    weights: Float64
    """One weight per feature: those of the wrapped ranker."""
    boosts: Float64
    """What is added to the weighted sum of each candidate; 0 without evidence."""
    fidelity: float | None
    """Kendall's τ between the ranking by choices and that by weights and boosts; None if both are equal."""


def boosted_weights(ranker: Any, query: QuerySet, rates: Float64) -> BoostedWeights:
    """Return weights and boosts that rank the candidates of one query nearly as choices do.

    The boost of a document lifts or lowers its weighted sum to where its expected rate of choices belongs among the
    rates that the wrapped ranker predicts for the candidates: on straight lines between their weighted sums, and beyond
    the highest and the lowest. If the wrapped ranker is linear, the order is that of `ranker`.

    Parameters
    ----------
    ranker
        A fitted `kinrank.ChoiceRanker` around a ranker with weights.
    query
        The query and its candidates.
    rates
        Their scores by `ranker`.
    """
    linear = ranker.ranker_.weights_with_fidelity(query)
    weights: Float64 = linear.weights[0]
    fidelity = None if linear.fidelity is None else float(linear.fidelity[0])
    scores = scores_of(ranker.ranker_, query)
    boosts = np.zeros(query.n_rows)
    if np.array_equal(rates, scores):  # no evidence
        return BoostedWeights(weights, boosts, fidelity)
    technique = ranker.ranker_.normalization
    values = np.nan_to_num(query.X) if technique is None else normalize(query.X, query.offsets, technique)
    sums = values.astype(np.float64) @ weights
    predicted = ranker.combined_.calibration.predict(scores, query.offsets)
    moved = rates != predicted
    boosts[moved] = _sums_at(rates[moved], np.sort(predicted), np.sort(sums)) - sums[moved]
    return BoostedWeights(weights, boosts, None if fidelity is None else float(kendall_tau(sums + boosts, rates)))


def _sums_at(rates: Float64, predicted: Float64, sums: Float64) -> Float64:
    """Return the weighted sums that belong to rates; both arrays are sorted, and pairs of them are points of a line."""
    width = float(predicted[-1] - predicted[0])
    height = float(sums[-1] - sums[0])
    slope = (height or 1.0) / (width or 1.0)
    beyond = np.maximum(rates - predicted[-1], 0.0) + np.minimum(rates - predicted[0], 0.0)
    found: Float64 = np.interp(rates, predicted, sums) + slope * beyond
    return found
