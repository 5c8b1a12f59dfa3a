"""How much each neighbor counts: uniform, or less with distance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from kinrank.arrays import Float64
from kinrank.errors import ParameterError

# A kernel maps u = distance / bandwidth to a weight; beyond the bandwidth the compact ones give nothing.
KERNELS: dict[str, Callable[[Float64], Float64]] = {
    "uniform": np.ones_like,
    "gaussian": lambda u: np.exp(-0.5 * (2 * u) ** 2),
    "tricube": lambda u: (1 - np.minimum(u, 1) ** 3) ** 3,
    "epanechnikov": lambda u: 1 - np.minimum(u, 1) ** 2,
    "inverse": lambda u: 0.01 / np.maximum(u, 0.01),
}


def neighbor_weights(distances: ArrayLike, kind: str = "uniform", bandwidth: ArrayLike | None = None) -> Float64:
    """The weight of each neighbor in the local model, between 0 and 1.

    Parameters
    ----------
    distances
        Of one query's neighbors, or one row per query, ascending.
    kind
        ``"uniform"``: all count 1, as in the paper. ``"gaussian"``: exp(-2 u²), u = distance / bandwidth.
        ``"tricube"``: (1 - u³)³. ``"epanechnikov"``: 1 - u². ``"inverse"``: falls with 1 / distance, where
        anything nearer than 1% of the bandwidth counts as that far, so that no single query takes all.
    bandwidth
        The distance at which the compact kernels reach 0: one, or one per row. None for the distance of the
        last neighbor; give the radius where neighbors are found by radius.

    Returns
    -------
    float64 array of the shape of `distances`
        Where a row would be all 0, because every neighbor is at the bandwidth, it is all 1.

    Examples
    --------
    >>> neighbor_weights([0.0, 1.0, 2.0], "epanechnikov").tolist()
    [1.0, 0.75, 0.0]
    """
    if kind not in KERNELS:
        raise ParameterError(f"unknown weights {kind!r}: choose one of {', '.join(map(repr, KERNELS))}")
    far = np.asarray(distances, dtype=np.float64)
    if far.shape[-1:] == (0,) or kind == "uniform":
        return np.ones_like(far)
    width = far[..., -1:] if bandwidth is None else np.asarray(bandwidth, dtype=np.float64)[..., None]
    u = np.divide(far, width, out=np.zeros_like(far), where=width > 0)
    weights = KERNELS[kind](u)
    weights[~weights.any(axis=-1)] = 1.0
    return weights
