"""Graph regularization: similar documents get similar scores (Hoi and Jin 2008, Eq. 9)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from kinrank.learn.hinge_qp import solve_in_place


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
