"""Checks that every registered index must pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone

from kinrank.errors import DataError, ParameterError
from kinrank.kin.indexes import NeighborIndex
from kinrank.kin.indexes.base import GrowingIndex


def brute_force(points: NDArray[np.float32], query: NDArray[np.float32]) -> tuple[NDArray, NDArray]:
    """Return all distances in float64 and their order, ties by position."""
    gaps = points.astype(np.float64) - query.astype(np.float64)
    distances = np.sqrt((gaps**2).sum(axis=1))
    return distances, np.lexsort((np.arange(len(points)), distances))


def cloud(n: int, dim: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def check_finds_the_nearest(index: NeighborIndex) -> None:
    points, queries = cloud(6000, 8), cloud(20, 8, seed=1)
    distances, indices = index.fit(points).query(queries, 10)
    assert distances.shape == indices.shape == (20, 10)
    shares = []
    for row, query in enumerate(queries):
        truth, order = brute_force(points, query)
        np.testing.assert_allclose(distances[row], truth[indices[row]], rtol=1e-12)
        if index.recall == 1.0:
            np.testing.assert_array_equal(indices[row], order[:10])
        shares.append(np.isin(order[:10], indices[row]).mean())
    assert np.mean(shares) >= index.recall


def check_sorted_with_ties_by_position(index: NeighborIndex) -> None:
    points = np.repeat(cloud(30, 4), 5, axis=0)  # every point five times
    queries = cloud(6, 4, seed=1)
    distances, indices = index.fit(points).query(queries, 12)
    assert (np.diff(distances, axis=1) >= 0).all()
    tied = np.diff(distances, axis=1) == 0
    assert tied.any()
    assert (np.diff(indices, axis=1)[tied] > 0).all()
    if index.recall == 1.0:
        for row, query in enumerate(queries):
            np.testing.assert_array_equal(indices[row], brute_force(points, query)[1][:12])


def check_batch_equals_one_by_one(index: NeighborIndex) -> None:
    points, queries = cloud(800, 9), cloud(30, 9, seed=1)
    index.fit(points)
    distances, indices = index.query(queries, 25)
    for row in range(len(queries)):
        one, which = index.query(queries[row : row + 1], 25)
        np.testing.assert_array_equal(which[0], indices[row])
        np.testing.assert_array_equal(one[0], distances[row])


def check_k_can_be_all_points(index: NeighborIndex) -> None:
    points = cloud(200, 5)
    _, indices = index.fit(points).query(points[:3], 200)
    for row in range(3):
        np.testing.assert_array_equal(indices[row], brute_force(points, points[row])[1])


def check_single_point_index(index: NeighborIndex) -> None:
    distances, indices = index.fit([[1.0, 2.0]]).query([[1.0, 0.0]], 1)
    assert (distances.tolist(), indices.tolist()) == ([[2.0]], [[0]])


def check_radius_matches_brute_force(index: NeighborIndex) -> None:
    points, queries = cloud(500, 6), cloud(10, 6, seed=1)
    distances, indices, offsets = index.fit(points).query_radius(queries, 2.5)
    for row, query in enumerate(queries):
        truth, order = brute_force(points, query)
        mine = slice(offsets[row], offsets[row + 1])
        np.testing.assert_array_equal(indices[mine], order[: np.count_nonzero(truth <= 2.5)])
        np.testing.assert_allclose(distances[mine], truth[indices[mine]], rtol=1e-12)
    assert index.query_radius(points[:2], 0.0)[1].tolist() == [0, 1]


def check_added_points_are_found(index: NeighborIndex) -> None:
    points, new = cloud(600, 8), cloud(50, 8, seed=1)
    distances, indices = GrowingIndex(index.fit(points)).add(new).query(new, 1)
    assert (distances == 0).all()
    np.testing.assert_array_equal(indices[:, 0], np.arange(600, 650))


def check_removing_equals_never_added(index: NeighborIndex) -> None:
    points, queries = cloud(300, 8), cloud(5, 8, seed=1)
    never = clone(index).fit(points[50:]).query(queries, 20)
    grown = GrowingIndex(index.fit(points))
    grown.exclude(np.arange(50))
    removed = grown.query(queries, 20)
    assert (removed[1] >= 50).all()
    if index.recall == 1.0:
        np.testing.assert_array_equal(removed[1] - 50, never[1])
        np.testing.assert_array_equal(removed[0], never[0])


def check_state_round_trip(index: NeighborIndex) -> None:
    points, queries = cloud(900, 8), cloud(5, 8, seed=1)
    before = index.fit(points).query(queries, 20)
    state = index.get_state()
    for array in state.values():
        assert array.dtype != object
        array.flags.writeable = False  # as when memory-mapped
    after = clone(index).set_state(state).query(queries, 20)
    np.testing.assert_array_equal(after[1], before[1])
    np.testing.assert_array_equal(after[0], before[0])


def check_bad_arguments_raise(index: NeighborIndex) -> None:
    with pytest.raises(ParameterError, match="call fit first"):
        clone(index).query([[1.0]], 1)
    with pytest.raises(DataError, match="point 1 has a coordinate that is missing"):
        index.fit([[1.0], [np.nan]])
    with pytest.raises(DataError, match="two dimensions"):
        index.fit([1.0, 2.0])
    index.fit(cloud(60, 3))
    with pytest.raises(ParameterError, match="between 1 and the 60 points"):
        index.query(cloud(1, 3), 61)
    with pytest.raises(DataError, match="3 dimensions, got points of 2"):
        index.query(cloud(1, 2), 1)
    with pytest.raises(ParameterError, match="radius must not be negative"):
        index.query_radius(cloud(1, 3), -1.0)


CHECKS: list[Callable[[NeighborIndex], None]] = [
    value for name, value in list(globals().items()) if name.startswith("check_")
]
