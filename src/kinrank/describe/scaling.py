"""Scaling and principal components of descriptions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.linalg import block_diag

from kinrank.arrays import Float64
from kinrank.errors import ParameterError


def moments(raw: Float64) -> tuple[Float64, Float64]:
    """Return the mean and 1 / standard deviation of each column, ignoring NaN; the latter is 0 for constant columns."""
    present = ~np.isnan(raw)
    counts = np.maximum(present.sum(axis=0), 1)
    mean = np.where(present, raw, 0.0).sum(axis=0) / counts
    deviation = np.sqrt((np.where(present, raw - mean, 0.0) ** 2).sum(axis=0) / counts)
    # A deviation below the rounding of float32 features is noise.
    varies = deviation > 1e-7 * np.abs(mean)
    return mean, np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)


def common_scale(scale: Float64) -> Float64:
    """Return one scale for all values of a block: 1 / the root mean square of their standard deviations.

    The values of a vector have one unit, and their variances say how much each direction counts. Scaling them alike
    keeps that, and makes distances independent of the basis in which an encoder writes its vectors.

    Examples
    --------
    >>> common_scale(np.array([1.0, 1 / 7, 0.0])).round(3).tolist()
    [0.2, 0.2, 0.0]
    """
    varies = scale > 0
    if not varies.any():
        return scale
    return np.where(varies, np.mean(scale[varies] ** -2.0) ** -0.5, 0.0)


def block_scale(scale: Float64, weight: float) -> Float64:
    """Return `scale` times block weight / sqrt(block size), counting only values that vary."""
    varying = int(np.count_nonzero(scale))
    scaled: Float64 = scale * (weight / max(varying, 1) ** 0.5)
    return scaled


def components(points: Float64, n_components: int | Mapping[str, int], widths: Mapping[str, int]) -> Float64:
    """Return the map to principal components, of all blocks together or of the named blocks only."""
    if not isinstance(n_components, Mapping):
        return principal(points, n_components)
    unknown = n_components.keys() - widths.keys()
    if unknown:
        raise ParameterError(f"n_components names unknown blocks {sorted(unknown)}: the blocks are {list(widths)}")
    maps = []
    start = 0
    for block, width in widths.items():
        part = points[:, start : start + width]
        maps.append(principal(part, n_components[block]) if block in n_components else np.eye(width))
        start += width
    return block_diag(*maps)


def principal(points: Float64, count: int) -> Float64:
    """Return the `count` directions of largest variance as columns, or all if there are fewer.

    Examples
    --------
    >>> abs(principal(np.array([[0.0, 1.0], [0.0, -1.0], [0.1, 0.0]]), 1)).round(2).tolist()
    [[0.0], [1.0]]
    """
    if count < 1:
        raise ParameterError(f"n_components must be at least 1, got {count}")
    centered = points - points.mean(axis=0)
    _, directions = np.linalg.eigh(centered.T @ centered)
    chosen: Float64 = directions[:, ::-1][:, :count]
    return chosen
