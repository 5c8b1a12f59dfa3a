from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank.errors import ParameterError
from kinrank.kin.indexes import neighbor_weights
from kinrank.kin.indexes.base import KERNELS

distances = st.lists(st.floats(0, 1e6), min_size=1, max_size=20).map(sorted)


@pytest.mark.parametrize("kind", KERNELS)
@given(far=distances)
def test_weights_never_increase_with_distance(kind: str, far: list[float]) -> None:
    weights = neighbor_weights(far, kind)
    assert ((weights >= 0) & (weights <= 1)).all()
    assert (np.diff(weights) <= 0).all()
    assert weights.sum() > 0


@pytest.mark.parametrize("kind", KERNELS)
def test_rows_are_independent(kind: str) -> None:
    far = np.array([[0.0, 1.0, 4.0], [2.0, 2.0, 2.0], [0.0, 0.0, 0.0]])
    together = neighbor_weights(far, kind)
    for row in range(3):
        np.testing.assert_array_equal(together[row], neighbor_weights(far[row], kind))


def test_values_of_a_small_example() -> None:
    far = [0.0, 1.0, 2.0]
    np.testing.assert_allclose(neighbor_weights(far, "tricube"), [1, 0.875**3, 0])
    np.testing.assert_allclose(neighbor_weights(far, "gaussian"), [1, np.exp(-0.5), np.exp(-2)])
    np.testing.assert_allclose(neighbor_weights(far, "inverse"), [1, 0.02, 0.01])
    np.testing.assert_allclose(neighbor_weights(far, "epanechnikov", bandwidth=4.0), [1, 15 / 16, 3 / 4])
    assert neighbor_weights(far).tolist() == [1, 1, 1]


def test_neighbors_all_at_the_bandwidth_get_weight_1() -> None:
    assert neighbor_weights([3.0, 3.0], "tricube").tolist() == [1, 1]
    assert neighbor_weights([], "tricube").tolist() == []


def test_unknown_kind_raises() -> None:
    with pytest.raises(ParameterError, match="unknown weights 'cubic': choose from 'uniform'"):
        neighbor_weights([1.0], "cubic")
