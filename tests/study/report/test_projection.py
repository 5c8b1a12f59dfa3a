from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank.data.queryset import QuerySet
from kinrank.study.report.projection import deciding_shares, kinds_of, map_of


def two_clouds(n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(0, 1, (n, 6)), rng.normal(9, 1, (n, 6))]).astype(np.float32)


@pytest.mark.parametrize("n", [20, 80], ids=["few, by components", "many, by t-SNE"])
def test_the_nearest_on_the_map_is_of_the_same_cloud(n: int):
    places = map_of(two_clouds(n))
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert np.all((distances.argmin(axis=1) < n) == (np.arange(2 * n) < n))
    assert places.min() >= 0
    assert places.max() <= 1


def test_the_map_is_the_same_every_time():
    points = two_clouds(60)
    np.testing.assert_array_equal(map_of(points), map_of(points))


@pytest.mark.parametrize("points", [np.zeros((5, 3)), np.arange(4.0)[:, None], np.zeros((1, 2))])
def test_points_that_hardly_differ_have_a_map_too(points: np.ndarray):
    places = map_of(points.astype(np.float32))
    assert places.shape == (len(points), 2)
    assert np.all(np.isfinite(places))


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_shares_do_not_depend_on_units_or_on_the_length_of_weights(unit: float, length: float):
    X = np.array([[0.0, 1.0], [4.0, 3.0], [1.0, 1.0], [2.0, 8.0]])
    queries = QuerySet.from_arrays(X, qid=[1, 1, 2, 2])
    scaled = QuerySet.from_arrays(X * [unit, 1], qid=[1, 1, 2, 2])
    weights = np.array([[2.0, -1.0], [0.5, 0.5]])
    expected = deciding_shares(weights, queries)
    np.testing.assert_allclose(deciding_shares(weights * length / [unit, 1], scaled), expected, rtol=1e-5)
    np.testing.assert_allclose(np.abs(expected).sum(axis=1), 1)


def test_only_differences_within_a_query_decide():
    X = np.array([[1.0, 0.0], [1.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
    shares = deciding_shares(np.array([5.0, 1.0]), QuerySet.from_arrays(X, qid=[1, 1, 2, 2]))
    assert shares.tolist() == [0, 1]


def test_missing_values_are_left_out_and_no_weights_are_no_shares():
    queries = QuerySet.from_arrays([[np.nan, 0.0], [1.0, 2.0], [3.0, 4.0]], qid=[1, 1, 1])
    assert deciding_shares(np.array([1.0, 0.0]), queries).tolist() == [1, 0]
    assert deciding_shares(np.zeros(2), queries).tolist() == [0, 0]


def test_kinds_are_every_query_once_and_the_largest_comes_first():
    shares = np.repeat([[1.0, 0.0], [0.0, 1.0], [0.5, -0.5]], [90, 200, 60], axis=0)
    kinds = kinds_of(shares)
    assert [kind.letter for kind in kinds] == ["A", "B", "C"]
    assert [len(kind.members) for kind in kinds] == [200, 90, 60]
    assert sorted(np.concatenate([kind.members for kind in kinds]).tolist()) == list(range(350))
    np.testing.assert_allclose(kinds[2].shares, [0.5, -0.5])
