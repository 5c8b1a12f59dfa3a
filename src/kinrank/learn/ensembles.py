"""The parts of `EnsembleRanker`: normalized scores, similarity of queries, their graph, and agreement of rankers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal, get_args

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float64
from kinrank.learn.hinge_qp import solve_in_place

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
    """Return d(A_i, R_ij) for each query i and base ranker j, with A and R as in `kinrank.learn.ensembles`.

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


@numba.njit(cache=True, nogil=True)
def smoothness(G: Any, n_neighbors: int) -> Any:
    """Return G'LG, L being the normalized Laplacian of the k-nearest-neighbor graph of the rows of G.

    Two documents are connected if one is among the k nearest of the other in Euclidean distance. All documents that
    tie with the k-th count, so the graph does not depend on the order of rows.
    """
    n, m = G.shape
    connected = _neighbor_graph(G, min(n_neighbors, n - 1))
    scaled = np.zeros((n, m))
    for row in range(n):
        degree = connected[row].sum()
        if degree > 0:
            scaled[row] = G[row] / np.sqrt(degree)
    # L = I - D^-1/2 S D^-1/2, so G'LG = G'G - scaled' S scaled.
    matrix = np.zeros((m, m))
    neighbor_sum = np.empty(m)
    for row in range(n):
        neighbor_sum[:] = 0.0
        for other in range(n):
            if connected[row, other]:
                for j in range(m):
                    neighbor_sum[j] += scaled[other, j]
        for j in range(m):
            for k in range(m):
                matrix[j, k] += G[row, j] * G[row, k] - scaled[row, j] * neighbor_sum[k]
    return 0.5 * (matrix + matrix.T)


@numba.njit(cache=True, nogil=True)
def _neighbor_graph(G: Any, k: int) -> Any:
    """Return the adjacency matrix: symmetric, without self-loops."""
    n, m = G.shape
    columns = np.ascontiguousarray(G.T)
    connected = np.zeros((n, n), dtype=np.bool_)
    distance = np.empty(n)
    nearest = np.empty(k)
    if k < 1:
        return connected
    for row in range(n):
        distance[:] = 0.0
        for j in range(m):
            for other in range(n):
                step = columns[j, other] - columns[j, row]
                distance[other] += step * step
        distance[row] = np.inf
        nearest[:] = np.inf
        for other in range(n):
            if distance[other] < nearest[k - 1]:
                place = k - 1
                while place > 0 and nearest[place - 1] > distance[other]:
                    nearest[place] = nearest[place - 1]
                    place -= 1
                nearest[place] = distance[other]
        for other in range(n):
            if distance[other] <= nearest[k - 1]:
                connected[row, other] = True
                connected[other, row] = True
    return connected


@numba.njit(cache=True, nogil=True)
def query_weights(
    G: Any, offsets: Any, gamma: float, n_neighbors: int, B: Any, C: float, w: Any, alpha: Any, eta: Any
) -> tuple[Any, Any]:
    """Return the weights of each query (Eq. 10) and their residuals; each solve starts from the shared solution."""
    n_queries, m = len(offsets) - 1, G.shape[1]
    weights = np.empty((n_queries, m))
    residuals = np.empty(n_queries)
    for query in range(n_queries):
        Q = np.eye(m) + gamma * smoothness(G[offsets[query] : offsets[query + 1]], n_neighbors)
        own, own_alpha, own_eta = w.copy(), alpha.copy(), eta.copy()
        residuals[query], _ = solve_in_place(Q, B, C, own, own_alpha, own_eta)
        weights[query] = own
    return weights, residuals


def agreement(
    scores: Float64,
    labels: NDArray[np.int8],
    offsets: NDArray[np.int64],
    *,
    theta: float = 0.5,
    delta: float = 1.0,
    weights: ArrayLike | None = None,
) -> Float64:
    """Return b[i, j] = tr(A_i' R_ij) for each query i and base ranker j (Eqs. 5 and 6).

    A holds the order that the grades ask for: 1 for (+1 before -1), θ for (+1 before 0), and negative values for the
    reverse. R holds the order of the ranker: R~[k, l] = 1 if k is before l, plus δ on the diagonal, with columns
    divided by their sum. Documents with equal scores are not before each other.

    Parameters
    ----------
    scores
        One row per candidate, one column per base ranker.
    labels
        +1, 0 or -1 for each candidate.
    offsets
        Query i owns rows ``offsets[i]:offsets[i + 1]``.
    theta, delta
        θ and δ.
    weights
        How often each candidate counts, once by default.

    Examples
    --------
    >>> scores = np.array([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]])
    >>> agreement(scores, np.array([1, 0, -1], dtype=np.int8), np.array([0, 3])).round(3).tolist()
    [[0.583, -0.5]]
    """
    counted = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=np.float64)
    values = np.ascontiguousarray(scores, dtype=np.float64)
    return np.asarray(_agreement(values, labels, counted, offsets, theta, delta))


@numba.njit(cache=True, nogil=True)
def _agreement(scores: Any, labels: Any, weights: Any, offsets: Any, theta: float, delta: float) -> Any:
    """Go down each ranking and count the labels seen so far: column l of R is 1 / (documents before l + δ)."""
    n_queries, n_rankers = len(offsets) - 1, scores.shape[1]
    b = np.zeros((n_queries, n_rankers))
    seen = np.zeros(3)
    tied = np.zeros(3)
    for query in range(n_queries):
        start, stop = offsets[query], offsets[query + 1]
        for ranker in range(n_rankers):
            values = scores[start:stop, ranker].copy()
            order = np.argsort(-values)
            seen[:] = 0
            tied[:] = 0
            for place in range(stop - start):
                row = order[place]
                if place > 0 and values[row] < values[order[place - 1]]:
                    seen += tied
                    tied[:] = 0
                label, weight = labels[start + row], weights[start + row]
                if label == 1:
                    wrong = -(seen[0] + theta * seen[1])
                    b[query, ranker] += weight * wrong / (seen.sum() + delta)
                else:
                    right = seen[2] if label == -1 else theta * seen[2]
                    b[query, ranker] += weight * right / (seen.sum() + delta)
                tied[label + 1] += weight
    return b
