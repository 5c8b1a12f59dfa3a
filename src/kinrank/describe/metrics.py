"""Learned metrics: linear maps that bring queries with similar models close together.

A metric has ``fit(points, targets)``, which sets ``map_``, and ``transform(points)``. The target of a training query
stands for its model: its pairwise moment b_q / p (see RankRLS) or the weights of its local model. Both metrics return
as many dimensions as there are targets, so searching a description of hundreds of values costs no more than one of
dozens.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import BaseEstimator

from kinrank.arrays import Float64
from kinrank.errors import DataError, ParameterError
from kinrank.registry import Registry

METRICS = Registry(
    "metric",
    {"ridge": "kinrank.describe.metrics:RidgeMetric", "nca": "kinrank.describe.metrics:NCAMetric"},
)


class RidgeMetric(BaseEstimator):
    """Distance between targets predicted by ridge regression.

    Parameters
    ----------
    strength
        Ridge penalty, in units of the mean variance of the dimensions.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> points = rng.normal(size=(200, 3))
    >>> metric = RidgeMetric(strength=0.1).fit(points, points[:, :1])  # only the first dimension matters
    >>> np.abs(metric.map_).argmax()
    np.int64(0)
    """

    def __init__(self, strength: float = 10.0) -> None:
        self.strength = strength

    def fit(self, points: Float64, targets: Float64) -> Self:
        """Solve (P'P + strength v n I) map = P' targets, v being the mean variance."""
        if not self.strength > 0:
            raise ParameterError(f"strength must be above 0, got {self.strength}")
        centered, centered_targets = _center(points, targets)
        gram = centered.T @ centered
        ridge = self.strength * max(np.trace(gram) / len(gram), np.finfo(np.float64).tiny)
        self.map_: Float64 = np.linalg.solve(gram + ridge * np.eye(len(gram)), centered.T @ centered_targets)
        return self

    def transform(self, points: Float64) -> Float64:
        """Map points to the learned space."""
        return points @ self.map_


class NCAMetric(BaseEstimator):
    """Neighborhood components analysis for vector targets: a query's target is predicted from its neighbors'.

    Minimizes Σ_i |t_i - Σ_j p_ij t_j|², p_ij ∝ exp(-|L x_i - L x_j|²) over j ≠ i (Weinberger and Tesauro, 2007;
    NCA's softmax with regression in place of classes), starting from the ridge map, by Adam over batches.

    Parameters
    ----------
    steps
        Number of gradient steps.
    batch
        Queries per step; a step costs batch² times the number of dimensions.
    rate
        Learning rate, relative to the mean size of the map's entries.
    n_effective
        Effective number of neighbors in a batch, (Σ p)² / Σ p², at the start; it sets the scale of the map.
    random_state
        Random seed of the batches.
    """

    def __init__(
        self,
        steps: int = 100,
        batch: int = 1500,
        rate: float = 0.02,
        n_effective: float = 60.0,
        random_state: int = 0,
    ) -> None:
        self.steps = steps
        self.batch = batch
        self.rate = rate
        self.n_effective = n_effective
        self.random_state = random_state

    def fit(self, points: Float64, targets: Float64) -> Self:
        """Fit the map by gradient descent from the ridge map."""
        x, t = _center(points, targets)
        t = t / max(np.sqrt((t * t).sum(axis=1).mean()), np.finfo(np.float64).tiny)
        rng = np.random.default_rng(self.random_state)
        size = min(self.batch, len(x))
        linear = RidgeMetric(strength=1.0).fit(x, t).map_
        linear = linear * self._scale(x[rng.choice(len(x), size, replace=False)] @ linear)
        unit = self.rate * np.abs(linear).mean()
        momentum, variance = np.zeros_like(linear), np.zeros_like(linear)
        for step in range(1, self.steps + 1):
            chosen = rng.choice(len(x), size, replace=False)
            gradient = x[chosen].T @ _gradient(x[chosen] @ linear, t[chosen])
            momentum = 0.9 * momentum + 0.1 * gradient
            variance = 0.99 * variance + 0.01 * gradient**2
            corrected = momentum / (1 - 0.9**step)
            linear = linear - unit * corrected / (np.sqrt(variance / (1 - 0.99**step)) + 1e-12)
        self.map_: Float64 = linear
        return self

    def transform(self, points: Float64) -> Float64:
        """Map points to the learned space."""
        return points @ self.map_

    def _scale(self, z: Float64) -> float:
        """Return the factor of `z` at which the median query has `n_effective` neighbors, by bisection."""
        low, high = -12.0, 12.0
        for _ in range(24):
            middle = (low + high) / 2
            effective = np.median(1 / (_neighbors(z * np.exp(middle)) ** 2).sum(axis=1))
            low, high = (middle, high) if effective > self.n_effective else (low, middle)
        return float(np.exp(low))


def _neighbors(z: Float64) -> Float64:
    """Return p_ij: the softmax of the negative squared distances to the other points."""
    norms = (z * z).sum(axis=1)
    squares = norms[:, None] + norms - 2 * z @ z.T
    np.fill_diagonal(squares, np.inf)
    p: Float64 = np.exp(squares.min(axis=1, keepdims=True) - squares)
    p /= p.sum(axis=1, keepdims=True)
    return p


def _gradient(z: Float64, t: Float64) -> Float64:
    """Return the gradient of the mean of |t_i - Σ_j p_ij t_j|² with respect to z."""
    p = _neighbors(z)
    by_p = 2 * (p @ t - t) @ t.T / len(t)
    by_distance = p * ((p * by_p).sum(axis=1, keepdims=True) - by_p)
    both = by_distance + by_distance.T
    gradient: Float64 = 2 * (both.sum(axis=1)[:, None] * z - both @ z)
    return gradient


def _center(points: Float64, targets: Float64) -> tuple[Float64, Float64]:
    if targets.ndim != 2 or len(targets) != len(points):
        raise DataError(f"a metric needs one target vector per query ({len(points)}), got shape {targets.shape}")
    if not np.isfinite(targets).all():
        raise DataError("targets contain missing or infinite values: give each training query a finite vector")
    points = points.astype(np.float64)
    return points - points.mean(axis=0), targets - targets.mean(axis=0, dtype=np.float64)
