from __future__ import annotations

import numpy as np
import pytest

from kinrank.study.report.neighbor_analysis import project


def two_clouds(n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(0, 1, (n, 6)), rng.normal(9, 1, (n, 6))]).astype(np.float32)


@pytest.mark.parametrize("n", [20, 80], ids=["few, by components", "many, by t-SNE"])
def test_nearest_point_on_the_map_is_of_the_same_cloud(n: int):
    places = project(two_clouds(n))
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert np.all((distances.argmin(axis=1) < n) == (np.arange(2 * n) < n))
    assert places.min() >= 0
    assert places.max() <= 1


def test_projection_is_deterministic():
    points = two_clouds(60)
    np.testing.assert_array_equal(project(points), project(points))


@pytest.mark.parametrize("points", [np.zeros((5, 3)), np.arange(4.0)[:, None], np.zeros((1, 2))])
def test_degenerate_points_can_be_projected(points: np.ndarray):
    places = project(points.astype(np.float32))
    assert places.shape == (len(points), 2)
    assert np.all(np.isfinite(places))
