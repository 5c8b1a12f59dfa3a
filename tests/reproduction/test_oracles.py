from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kinrank.errors import DataError
from reproduction.oracles import by_rank, rank_curve, rank_of, upper_bound

TABLES = hnp.arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 8)), elements=st.floats(0, 1))


@given(TABLES)
def test_upper_bound_is_no_lower_than_any_model(values: np.ndarray) -> None:
    bound = upper_bound(values)
    assert np.all(bound >= values)
    assert np.all((values == bound).any(axis=0))


@given(TABLES)
def test_ranks_are_permutations_and_the_curve_decreases(values: np.ndarray) -> None:
    ranked = by_rank(values)
    np.testing.assert_array_equal(np.sort(ranked, axis=0), np.sort(values, axis=0))
    curve = rank_curve(values)
    assert curve[0] == pytest.approx(upper_bound(values).mean())
    assert np.all(np.diff(curve) <= 1e-12)


@given(TABLES)
def test_order_of_models_does_not_matter(values: np.ndarray) -> None:
    np.testing.assert_array_equal(by_rank(values), by_rank(values[::-1]))


def test_one_model_is_its_own_bound() -> None:
    assert upper_bound([[0.3, 0.7]]).tolist() == [0.3, 0.7]
    assert rank_curve([[0.3, 0.7]]).tolist() == [0.5]


def test_excluded_queries_stay_excluded() -> None:
    values = [[0.2, np.nan], [0.6, np.nan]]
    assert np.isnan(upper_bound(values)[1])
    assert rank_curve(values).tolist() == [0.6, 0.2]


@pytest.mark.parametrize(("baseline", "expected"), [(0.8, 0), (0.75, 1), (0.3, 2), (0.0, 3)])
def test_rank_of_a_baseline(baseline: float, expected: int) -> None:
    assert rank_of(baseline, [0.75, 0.45, 0.15]) == expected


@pytest.mark.parametrize("values", [[0.1, 0.2], np.empty((0, 3))])
def test_other_shapes_raise(values: object) -> None:
    with pytest.raises(DataError, match="one row per model and one column per query"):
        upper_bound(values)


def test_models_measured_on_different_queries_raise() -> None:
    with pytest.raises(DataError, match="query 1 is NaN for some models"):
        by_rank([[0.1, np.nan], [0.2, 0.3]])
