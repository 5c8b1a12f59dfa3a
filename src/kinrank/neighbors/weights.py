"""Weights of neighbors: uniform, or decreasing with distance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from kinrank.arrays import Float64
from kinrank.errors import ParameterError

# A kernel maps u = distance / bandwidth to a weight; compact kernels are 0 beyond the bandwidth.
KERNELS: dict[str, Callable[[Float64], Float64]] = {
    "uniform": np.ones_like,
    "gaussian": lambda u: np.exp(-0.5 * (2 * u) ** 2),
    "tricube": lambda u: (1 - np.minimum(u, 1) ** 3) ** 3,
    "epanechnikov": lambda u: 1 - np.minimum(u, 1) ** 2,
    "inverse": lambda u: 0.01 / np.maximum(u, 0.01),
}


def neighbor_weights(distances: ArrayLike, kind: str = "uniform", bandwidth: ArrayLike | None = None) -> Float64:
    """Return the weight of each neighbor in the local model, between 0 and 1.

    Parameters
    ----------
    distances
        Distances of one query's neighbors, or one row per query, ascending.
    kind
        ``"uniform"``: 1, as in the KNN paper. ``"gaussian"``: exp(-2 u²), u = distance / bandwidth.
        ``"tricube"``: (1 - u³)³. ``"epanechnikov"``: 1 - u². ``"inverse"``: proportional to 1 / distance, with
        distances of at least 1% of the bandwidth, so that no single query dominates.
    bandwidth
        Distance at which the compact kernels reach 0: one number, or one per row. Defaults to the distance of the
        last neighbor; pass the radius if neighbors were found by radius.

    Returns
    -------
    float64 array of the shape of `distances`
        A row that would be all 0, because every neighbor is at the bandwidth, is all 1.

    Examples
    --------
    >>> neighbor_weights([0.0, 1.0, 2.0], "epanechnikov").tolist()
    [1.0, 0.75, 0.0]
    """
    if kind not in KERNELS:
        raise ParameterError(f"unknown weights {kind!r}: choose from {', '.join(map(repr, KERNELS))}")
    values = np.asarray(distances, dtype=np.float64)
    if values.shape[-1:] == (0,) or kind == "uniform":
        return np.ones_like(values)
    width = values[..., -1:] if bandwidth is None else np.asarray(bandwidth, dtype=np.float64)[..., None]
    u = np.divide(values, width, out=np.zeros_like(values), where=width > 0)
    weights = KERNELS[kind](u)
    weights[~weights.any(axis=-1)] = 1.0
    return weights
