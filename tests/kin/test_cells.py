"""CellTree: a reproducible partition of points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank.errors import DataError, ParameterError
from kinrank.kin.indexes._cells import CellTree, _shares


def cloud(n: int, dim: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


@given(st.integers(0, 2**32 - 1), st.integers(1, 150), st.integers(1, 130))
def test_points_are_assigned_to_the_nearest_cell_of_the_nearest_group(seed: int, n_points: int, n_cells: int) -> None:
    points = cloud(n_points, seed=seed)
    tree = CellTree(n_cells).fit(points)
    assert 1 <= len(tree) <= min(n_cells, n_points)
    cells, distances = tree.assign(points)
    for point, cell, distance in zip(points.astype(np.float64), cells, distances, strict=True):
        group = np.argmin(((tree.groups_ - point) ** 2).sum(axis=1))
        own = np.arange(tree.starts_[group], tree.starts_[group + 1])
        gaps = np.linalg.norm(tree.centers_[own] - point, axis=1)
        assert cell in own
        assert distance == pytest.approx(gaps.min(), abs=1e-6)


def test_one_cell_per_point_has_the_points_as_centers() -> None:
    points = cloud(300)
    tree = CellTree(300).fit(points)
    assert len(tree) == 300
    cells, distances = tree.assign(points)
    assert len(np.unique(cells)) == 300
    np.testing.assert_allclose(distances, 0.0, atol=1e-6)


def test_equal_points_share_a_cell() -> None:
    points = np.repeat(cloud(7), 20, axis=0)
    assert len(CellTree(50).fit(points)) == 7


def test_two_levels_are_nearly_as_good_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    points = cloud(4000, dim=5)
    two = CellTree(200).fit(points).assign(points)[1]
    monkeypatch.setattr("kinrank.kin.indexes._cells._FLAT", 200)
    flat = CellTree(200).fit(points)
    assert len(flat.groups_) == 1
    assert np.mean(two**2) < 1.15 * np.mean(flat.assign(points)[1] ** 2)


def test_fit_is_deterministic_and_state_restores_it() -> None:
    points = cloud(1000)
    tree, second = CellTree(100).fit(points), CellTree(100).fit(points)
    np.testing.assert_array_equal(tree.centers_, second.centers_)
    restored = CellTree.from_state(tree.get_state())
    for mine, theirs in zip(tree.assign(points), restored.assign(points), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    one_by_one = np.concatenate([tree.assign(point[None])[0] for point in points])
    np.testing.assert_array_equal(one_by_one, tree.assign(points)[0])


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.integers(20, 300))
def test_cells_are_distributed_by_group_size(sizes: list[int], total: int) -> None:
    shares = _shares(np.array(sizes), total)
    assert shares.min() >= 1
    assert abs(shares.sum() - total) <= len(sizes)
    exact = np.array(sizes) * total / sum(sizes)
    assert np.all(np.abs(shares - np.maximum(exact, 1)) <= 1)


def test_bad_arguments_raise() -> None:
    with pytest.raises(ParameterError, match="n_cells must be at least 1, got 0"):
        CellTree(0).fit(cloud(3))
    with pytest.raises(DataError, match="the cells have 3 dimensions, got points of 2"):
        CellTree(2).fit(cloud(5)).assign(cloud(5, dim=2))
