from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, zscore

from kinrank.kin.blocks import relative_features, standardize

VALUES = st.lists(st.integers(-5, 5), min_size=1, max_size=12)


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_ranks_and_z_scores_match_scipy(queries):
    X = np.concatenate(queries).astype(np.float32)[:, None]
    offsets = np.append(0, np.cumsum([len(query) for query in queries]))
    found = relative_features(X, offsets)
    ranks = np.concatenate([rankdata(-np.array(query)) - 1 for query in queries])
    np.testing.assert_allclose(found[:, 1], ranks)
    for start, stop in itertools.pairwise(offsets):
        if X[start:stop].std() > 0:
            np.testing.assert_allclose(found[start:stop, 0], zscore(X[start:stop, 0].astype(float)), atol=1e-5)
        else:
            assert not found[start:stop, 0].any()


@pytest.mark.parametrize("n_candidates", [256, 257])
def test_ranks_of_many_candidates_match_scipy(n_candidates: int):
    X = np.random.default_rng(0).integers(0, 90, (n_candidates, 1)).astype(np.float32)
    found = relative_features(X, np.array([0, n_candidates]))
    np.testing.assert_array_equal(found[:, 1], rankdata(-X[:, 0]) - 1)


def test_row_order_does_not_matter():
    X = np.zeros((6, 2), dtype=np.float32)
    assert np.unique(relative_features(X, np.array([0, 6])), axis=0).shape == (1, 4)


def test_missing_values_get_nan():
    X = np.array([[1.0], [np.nan], [3.0], [np.inf]], dtype=np.float32)
    found = relative_features(X, np.array([0, 4]))
    assert np.isnan(found[[1, 3]]).all()
    np.testing.assert_allclose(found[[0, 2], 1], [1.0, 0.0])


@pytest.mark.parametrize("scores", [[2.0, 2.0, 2.0], [1e9, 1e9, 1e9]])
def test_equal_scores_stay_equal(scores):
    assert not standardize(np.array(scores)[:, None], np.array([0, 3])).any()


def test_standardized_scores_have_mean_0_and_deviation_1():
    scores = np.random.default_rng(0).normal(3, 7, 50)
    found = standardize(scores[:, None], np.array([0, 20, 50]))[:, 0]
    for part, given_ in ((found[:20], scores[:20]), (found[20:], scores[20:])):
        assert part.mean() == pytest.approx(0)
        assert part.std() == pytest.approx(1)
        assert (np.argsort(part) == np.argsort(given_)).all()
