"""Normalize scores within each query, as search engines do before they combine the scores of a hybrid search."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64
from kinrank.registry import check_choice

Normalization = Literal["min_max", "l2", "z_score"]
NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)

FLOOR = 0.001
"""What the lowest score of a query becomes, so that a document that was found counts more than one that was not."""


def normalization_of(scale: str) -> Normalization | None:
    """Return the normalization that a ranker's `scale` names; None if it does not normalize within queries."""
    return next((technique for technique in NORMALIZATIONS if technique == scale), None)


def normalize(X: NDArray[Any], offsets: NDArray[np.int64], technique: Normalization) -> Float32:
    """Normalize each feature within each query.

    A missing value (NaN) is a document that this search did not return. It is left out of the statistics and gets 0,
    in OpenSearch and Elasticsearch alike.

    Parameters
    ----------
    X
        Scores, one row per candidate and one column per search.
    offsets
        Query i owns rows ``offsets[i]:offsets[i + 1]``.
    technique
        ``"min_max"``: the lowest score becomes 0 and the highest 1. ``"l2"``: divided by the root of the sum of
        squares. ``"z_score"``: minus the mean, divided by the standard deviation. As in OpenSearch, 0.001 is the lowest
        value of the first and the last, which also turns every score below the mean into 0.001 in a z-score.
        Where all scores are equal, both give 1.

    Examples
    --------
    >>> X = np.array([[12.0, 0.9], [2.0, 0.5], [7.0, np.nan]])
    >>> normalize(X, np.array([0, 3]), "min_max").round(3).tolist()
    [[1.0, 1.0], [0.0010000000474974513, 0.0010000000474974513], [0.5, 0.0]]
    """
    check_choice("normalization", technique, NORMALIZATIONS)
    values = np.asarray(X, dtype=np.float64)
    returned = ~np.isnan(values)
    scores = np.where(returned, values, 0.0)
    query_of_row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    if technique == "l2":
        norms = np.sqrt(_total(scores**2, offsets))[query_of_row]
        normalized = scores / np.where(norms > 0, norms, 1.0)
    elif technique == "min_max":
        low = np.minimum.reduceat(np.where(returned, values, np.inf), offsets[:-1], axis=0)[query_of_row]
        high = np.maximum.reduceat(np.where(returned, values, -np.inf), offsets[:-1], axis=0)[query_of_row]
        normalized = _scaled(values, low, np.where(returned, high - low, 1.0))
    else:
        counts = _total(returned, offsets)
        mean = (_total(scores, offsets) / np.maximum(counts, 1))[query_of_row]
        squares = _total(np.where(returned, (values - mean) ** 2, 0.0), offsets)
        normalized = _scaled(values, mean, np.sqrt(squares / np.maximum(counts - 1, 1))[query_of_row])
    result: Float32 = np.where(returned, normalized, 0.0).astype(np.float32)
    return result


def _scaled(values: Float64, center: Float64, width: Float64) -> Float64:
    """Return (values - center) / width, at least `FLOOR`; 1 where the width is only rounding."""
    constant = ~(width > 1e-6 * np.abs(center))
    centered = np.where(constant, 0.0, values - center)
    scaled: Float64 = np.where(constant, 1.0, np.maximum(centered / np.where(constant, 1.0, width), FLOOR))
    return scaled


def _total(values: NDArray[Any], offsets: NDArray[np.int64]) -> Float64:
    total: Float64 = np.add.reduceat(values, offsets[:-1], axis=0, dtype=np.float64)
    return total
