"""Learned metrics: a linear map of descriptions, after which near queries want like models.

A metric has ``fit(points, targets)``, which sets ``map_``, and ``transform(points)``. The targets say what each
training query wants from a model: its pairwise moment b_q / p (METHODS: RankRLS) or its own local weights. Both
metrics return as many dimensions as there are targets, so search in a description of hundreds of numbers costs
no more than in one of dozens.
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
    """Distance between the targets that a ridge regression foresees.

    Parameters
    ----------
    strength
        Ridge, in units of the mean variance of a dimension of the points.

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
        """Solve (P'P + strength v n I) map = P' targets, v the mean variance."""
        if not self.strength > 0:
            raise ParameterError(f"strength must be above 0, got {self.strength}")
        centered, wanted = _centred(points, targets)
        gram = centered.T @ centered
        ridge = self.strength * max(np.trace(gram) / len(gram), np.finfo(np.float64).tiny)
        self.map_: Float64 = np.linalg.solve(gram + ridge * np.eye(len(gram)), centered.T @ wanted)
        return self

    def transform(self, points: Float64) -> Float64:
        """The points in the learned space."""
        return points @ self.map_


class NCAMetric(BaseEstimator):
    """Neighborhood components for targets that are vectors: a query's target is foreseen by its neighbors'.

    Minimizes Σ_i |t_i - Σ_j p_ij t_j|², p_ij ∝ exp(-|L x_i - L x_j|²) over j ≠ i (Weinberger and Tesauro, 2007;
    NCA's softmax with regression in place of classes), from the ridge map on, by Adam over batches.

    Parameters
    ----------
    steps
        Gradient steps.
    batch
        Queries in each; a step costs batch² times the dimensions.
    rate
        Length of a step against the size of the map's entries.
    n_effective
        Effective number of neighbors in a batch, (Σ p)² / Σ p², at the start: it sets the scale of the map.
    random_state
        Seed of the batches.
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
        """Descend from the ridge map."""
        x, t = _centred(points, targets)
        t = t / max(np.sqrt((t * t).sum(axis=1).mean()), np.finfo(np.float64).tiny)
        rng = np.random.default_rng(self.random_state)
        size = min(self.batch, len(x))
        linear = RidgeMetric(strength=1.0).fit(x, t).map_
        linear = linear * self._scale(x[rng.choice(len(x), size, replace=False)] @ linear)
        unit = self.rate * np.abs(linear).mean()
        momentum, variance = np.zeros_like(linear), np.zeros_like(linear)
        for step in range(1, self.steps + 1):
            chosen = rng.choice(len(x), size, replace=False)
            slope = x[chosen].T @ _slope(x[chosen] @ linear, t[chosen])
            momentum = 0.9 * momentum + 0.1 * slope
            variance = 0.99 * variance + 0.01 * slope**2
            ahead = momentum / (1 - 0.9**step)
            linear = linear - unit * ahead / (np.sqrt(variance / (1 - 0.99**step)) + 1e-12)
        self.map_: Float64 = linear
        return self

    def transform(self, points: Float64) -> Float64:
        """The points in the learned space."""
        return points @ self.map_

    def _scale(self, z: Float64) -> float:
        """The factor of `z` that gives the median query `n_effective` neighbors, by bisection of its logarithm."""
        low, high = -12.0, 12.0
        for _ in range(24):
            middle = (low + high) / 2
            effective = np.median(1 / (_neighbors(z * np.exp(middle)) ** 2).sum(axis=1))
            low, high = (middle, high) if effective > self.n_effective else (low, middle)
        return float(np.exp(low))


def _neighbors(z: Float64) -> Float64:
    """p_ij: the softmax of minus the squared distance over the other points."""
    norms = (z * z).sum(axis=1)
    far = norms[:, None] + norms - 2 * z @ z.T
    np.fill_diagonal(far, np.inf)
    p: Float64 = np.exp(far.min(axis=1, keepdims=True) - far)
    p /= p.sum(axis=1, keepdims=True)
    return p


def _slope(z: Float64, t: Float64) -> Float64:
    """Gradient of the mean of |t_i - Σ_j p_ij t_j|² in z."""
    p = _neighbors(z)
    by_p = 2 * (p @ t - t) @ t.T / len(t)
    by_distance = p * ((p * by_p).sum(axis=1, keepdims=True) - by_p)
    both = by_distance + by_distance.T
    slope: Float64 = 2 * (both.sum(axis=1)[:, None] * z - both @ z)
    return slope


def _centred(points: Float64, targets: Float64) -> tuple[Float64, Float64]:
    if targets.ndim != 2 or len(targets) != len(points):
        raise DataError(f"a metric needs one target vector per query ({len(points)}), got shape {targets.shape}")
    if not np.isfinite(targets).all():
        raise DataError("targets hold missing values: give each training query a finite vector")
    points = points.astype(np.float64)
    return points - points.mean(axis=0), targets - targets.mean(axis=0, dtype=np.float64)
