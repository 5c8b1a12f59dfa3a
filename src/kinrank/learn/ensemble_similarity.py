"""Similarity of base rankers to the grades of each query by a distance of matrices: Eq. 7 of Hoi and Jin 2008."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64

Distance = Literal["spectral", "bregman"]
DISTANCES: tuple[Distance, ...] = get_args(Distance)


def matrix_distances(
    scores: Float64,
    labels: NDArray[np.int8],
    offsets: NDArray[np.int64],
    distance: Distance,
    *,
    theta: float = 0.5,
    delta: float = 1.0,
) -> Float64:
    """Return d(A_i, R_ij) for each query i and base ranker j, with A and R as in `kinrank.learn.ensemble_agreement`.

    Both distances are among the paper's examples: ``"spectral"`` is the norm that Euclidean vectors induce,
    ``"bregman"`` the Bregman divergence ½|A - R|² of the squared Frobenius norm.

    Examples
    --------
    >>> scores = np.array([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]])
    >>> labels = np.array([1, 0, -1], dtype=np.int8)
    >>> matrix_distances(scores, labels, np.array([0, 3]), "bregman").round(3).tolist()
    [[1.583, 2.667]]
    """
    distances = np.empty((len(offsets) - 1, scores.shape[1]))
    for query, (start, stop) in enumerate(pairwise(offsets)):
        wanted = relevance_matrix(labels[start:stop], theta)
        for ranker in range(scores.shape[1]):
            difference = wanted - transition_matrix(scores[start:stop, ranker], delta)
            if distance == "spectral":
                distances[query, ranker] = np.linalg.norm(difference, 2)
            else:
                distances[query, ranker] = 0.5 * np.sum(difference**2)
    return distances


def relevance_matrix(labels: NDArray[np.int8], theta: float) -> Float64:
    """Return A of Eq. 5: 1 for (+1 before -1), θ for (+1 before 0), and negative values for the reverse."""
    better, worse = labels[:, None], labels[None, :]
    above = ((better == 1) & (worse == -1)) + theta * ((better == 1) & (worse == 0))
    difference: Float64 = above - above.T
    return difference


def transition_matrix(scores: Float64, delta: float) -> Float64:
    """Return R: 1 if one document is before another, plus δ on the diagonal, with columns divided by their sum."""
    before = (scores[:, None] > scores[None, :]) + delta * np.eye(len(scores))
    normalized: Float64 = before / before.sum(axis=0)
    return normalized
