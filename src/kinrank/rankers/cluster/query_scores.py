"""Scores made comparable between queries: scaled to 0 to 1, and as distributions."""

from __future__ import annotations

import numpy as np

from kinrank.arrays import Float64, Int64


def normalized(scores: Float64, offsets: Int64) -> Float64:
    """Scale scores within each query to the range 0 to 1; equal scores become 0.

    Parameters
    ----------
    scores
        One column per model.
    offsets
        Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``. Every query has rows.

    Examples
    --------
    >>> normalized(np.array([[3.0], [5.0], [4.0], [7.0]]), np.array([0, 3, 4])).ravel().tolist()
    [0.0, 1.0, 0.5, 0.0]
    """
    sizes = np.diff(offsets)
    low = np.minimum.reduceat(scores, offsets[:-1], axis=0)
    width = np.maximum.reduceat(scores, offsets[:-1], axis=0) - low
    factor = np.divide(1.0, width, out=np.zeros_like(width), where=width > 0)
    unit: Float64 = (scores - np.repeat(low, sizes, axis=0)) * np.repeat(factor, sizes, axis=0)
    return unit


def divergences(scores: Float64, reference: Float64, offsets: Int64) -> Float64:
    """Return the Kullback-Leibler divergence of each model from a reference on each query (the paper's Eq. 2).

    δ_i(q) = Σ_d p_i(d) log(p_i(d) / p_b(d)), where p_i and p_b are the softmax over q's documents of the scores of
    model i and of the reference, both scaled to 0 to 1 within the query so that units do not matter.

    Parameters
    ----------
    scores
        One column per model.
    reference
        One score per row.
    offsets
        Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``. Every query has rows.

    Returns
    -------
    float64 array of shape (queries, models)

    Examples
    --------
    >>> scores = np.array([[1.0, 9.0], [2.0, 5.0], [4.0, 3.0]])
    >>> divergences(scores, np.array([10.0, 20.0, 40.0]), np.array([0, 3])).round(3).tolist()
    [[0.0, 0.336]]
    """
    log_p = _log_softmax(normalized(scores, offsets), offsets)
    log_b = _log_softmax(normalized(reference[:, None], offsets), offsets)
    return np.add.reduceat(np.exp(log_p) * (log_p - log_b), offsets[:-1], axis=0)


def _log_softmax(scores: Float64, offsets: Int64) -> Float64:
    """Return the log softmax within each query. Scores are between 0 and 1, so nothing overflows."""
    total = np.log(np.add.reduceat(np.exp(scores), offsets[:-1], axis=0))
    logs: Float64 = scores - np.repeat(total, np.diff(offsets), axis=0)
    return logs
