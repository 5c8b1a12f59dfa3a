"""Normalization of base rankers' scores within each query."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64

Normalize = Literal["minmax", "standard", "none"]


def normalize(scores: Float64, offsets: NDArray[np.int64], how: Normalize) -> tuple[Float64, Float64]:
    """Shift and scale the scores of each ranker within each query.

    Parameters
    ----------
    scores
        One row per candidate, one column per ranker.
    offsets
        Query i owns rows ``offsets[i]:offsets[i + 1]``.
    how
        "minmax": to the range 0 to 1. "standard": to mean 0 and standard deviation 1. "none": unchanged.

    Returns
    -------
    float64 array of shape (rows, rankers)
        Normalized scores; 0 if a ranker gives all candidates of a query the same score.
    float64 array of shape (queries, rankers)
        Scale factors.

    Examples
    --------
    >>> scores, factor = normalize(np.array([[10.0], [30.0], [20.0]]), np.array([0, 3]), "minmax")
    >>> scores.ravel().tolist(), factor.tolist()
    ([0.0, 1.0, 0.5], [[0.05]])
    """
    starts, sizes = offsets[:-1], np.diff(offsets)
    if how == "none":
        return scores, np.ones((len(starts), scores.shape[1]))
    rows = np.repeat(np.arange(len(starts)), sizes)
    origin = np.minimum.reduceat(scores, starts)
    width = np.maximum.reduceat(scores, starts) - origin
    constant = width == 0.0
    if how == "standard":
        origin = origin + np.add.reduceat(scores - origin[rows], starts) / sizes[:, None]
        width = np.sqrt(np.add.reduceat((scores - origin[rows]) ** 2, starts) / sizes[:, None])
    factor = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, width))
    return (scores - origin[rows]) * factor[rows], factor
