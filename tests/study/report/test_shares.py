from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kinrank.data.queryset import QuerySet
from kinrank.study.report._collect import feature_shares


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_shares_are_invariant_to_units_and_to_the_scale_of_weights(unit: float, length: float):
    X = np.array([[0.0, 1.0], [4.0, 3.0], [1.0, 1.0], [2.0, 8.0]])
    queries = QuerySet.from_arrays(X, qid=[1, 1, 2, 2])
    scaled = QuerySet.from_arrays(X * [unit, 1], qid=[1, 1, 2, 2])
    weights = np.array([[2.0, -1.0], [0.5, 0.5]])
    expected = feature_shares(weights, queries)
    np.testing.assert_allclose(feature_shares(weights * length / [unit, 1], scaled), expected, rtol=1e-5)
    np.testing.assert_allclose(np.abs(expected).sum(axis=1), 1)


def test_only_spread_within_queries_counts():
    X = np.array([[1.0, 0.0], [1.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
    shares = feature_shares(np.array([5.0, 1.0]), QuerySet.from_arrays(X, qid=[1, 1, 2, 2]))
    assert shares.tolist() == [0, 1]


def test_missing_values_are_ignored_and_zero_weights_give_zero_shares():
    queries = QuerySet.from_arrays([[np.nan, 0.0], [1.0, 2.0], [3.0, 4.0]], qid=[1, 1, 1])
    assert feature_shares(np.array([1.0, 0.0]), queries).tolist() == [1, 0]
    assert feature_shares(np.zeros(2), queries).tolist() == [0, 0]
