"""Learned metrics on data where only two of twelve dimensions matter."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from kinrank.describe import METRICS
from kinrank.describe.describer import NCAMetric, RidgeMetric, _gradient, _neighbors
from kinrank.errors import DataError, ParameterError


@pytest.fixture
def world() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((600, 12))
    targets = np.column_stack([points[:, 0], points[:, 1], points[:, 0] - points[:, 1]])
    return points, targets + 0.1 * rng.standard_normal(targets.shape)


def gap_to_neighbors(points: np.ndarray, targets: np.ndarray) -> float:
    far = ((points[:, None] - points) ** 2).sum(axis=2)
    np.fill_diagonal(far, np.inf)
    nearest = np.argsort(far, axis=1)[:, :10]
    return float(((targets - targets[nearest].mean(axis=1)) ** 2).sum(axis=1).mean())


@pytest.mark.parametrize("name", list(METRICS))
def test_map_brings_similar_targets_together(name: str, world: tuple[np.ndarray, np.ndarray]) -> None:
    points, targets = world
    metric = METRICS[name]().fit(points[:400], targets[:400])
    mapped = metric.transform(points[400:])
    assert mapped.shape == (200, 3)
    assert gap_to_neighbors(mapped, targets[400:]) < 0.3 * gap_to_neighbors(points[400:], targets[400:])


@pytest.mark.parametrize("name", list(METRICS))
def test_fit_is_deterministic(name: str, world: tuple[np.ndarray, np.ndarray]) -> None:
    points, targets = world[0][:100], world[1][:100]
    first, second = METRICS[name]().fit(points, targets).map_, METRICS[name]().fit(points, targets).map_
    np.testing.assert_array_equal(first, second)


def test_gradient_matches_finite_differences() -> None:
    rng = np.random.default_rng(0)
    z, t = rng.standard_normal((8, 2)), rng.standard_normal((8, 3))

    def loss(flat: np.ndarray) -> float:
        return float(((t - _neighbors(flat.reshape(8, 2)) @ t) ** 2).sum(axis=1).mean())

    np.testing.assert_allclose(_gradient(z, t).ravel(), approx_fprime(z.ravel(), loss, 1e-7), atol=1e-5)


def test_nca_learns_a_nonlinear_target() -> None:
    # The target depends on |x0|, which ridge regression cannot fit.
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (400, 6))
    targets = np.abs(points[:, :1])
    linear = RidgeMetric(strength=1.0).fit(points, targets).transform(points)
    learned = NCAMetric(steps=200, rate=0.05).fit(points, targets).transform(points)
    assert gap_to_neighbors(learned, targets) < 0.5 * gap_to_neighbors(linear, targets)


def test_bad_targets_raise(world: tuple[np.ndarray, np.ndarray]) -> None:
    points, targets = world
    with pytest.raises(DataError, match=r"one target vector per query \(600\), got shape \(599, 3\)"):
        RidgeMetric().fit(points, targets[1:])
    targets[0, 0] = np.nan
    with pytest.raises(DataError, match="targets contain missing or infinite values"):
        NCAMetric().fit(points, targets)
    with pytest.raises(ParameterError, match="strength must be above 0"):
        RidgeMetric(strength=0).fit(points, targets)
