from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank.data.normalization import FLOOR, NORMALIZATIONS, Normalization, normalize
from kinrank.errors import ParameterError


def reference(scores: np.ndarray, technique: str) -> np.ndarray:
    """Normalize the scores of one search, one by one, as OpenSearch's code does."""
    found = scores[~np.isnan(scores)]
    result = np.zeros(len(scores))
    for i, score in enumerate(scores):
        if np.isnan(score):
            continue
        if technique == "l2":
            norm = np.sqrt(sum(each * each for each in found))
            result[i] = score / norm if norm > 0 else 0.0
        elif technique == "min_max":
            low, high = min(found), max(found)
            result[i] = 1.0 if low == high else max((score - low) / (high - low), 0.001)
        else:
            deviation = np.std(found, ddof=1) if len(found) > 1 else 0.0
            result[i] = 1.0 if deviation == 0 else max((score - np.mean(found)) / deviation, 0.001)
    return result


@pytest.mark.parametrize("technique", NORMALIZATIONS)
@given(seed=st.integers(0, 2**32 - 1))
def test_each_query_and_search_is_normalized_alone(technique: Normalization, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 8, 5)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.integers(0, 5, (offsets[-1], 3)) * 2.5
    X[rng.random(X.shape) < 0.2] = np.nan
    normalized = normalize(X, offsets, technique)
    assert normalized.dtype == np.float32
    for start, stop in pairwise(offsets):
        expected = np.stack([reference(X[start:stop, column], technique) for column in range(3)], axis=1)
        np.testing.assert_allclose(normalized[start:stop], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("technique", ["min_max", "z_score"])
@given(scale=st.floats(1e-3, 1e3), shift=st.floats(-50.0, 50.0))
def test_units_do_not_matter(technique: Normalization, scale: float, shift: float) -> None:
    X = np.array([[3.0], [1.0], [7.0], [np.nan]])
    one, other = (normalize(each, np.array([0, 4]), technique) for each in (X, scale * X + shift))
    np.testing.assert_allclose(one, other, atol=1e-3)


def test_missing_is_0_and_the_lowest_score_is_above_it() -> None:
    X = np.array([[np.nan], [2.0], [4.0]])
    assert normalize(X, np.array([0, 3]), "min_max").ravel().tolist() == pytest.approx([0.0, FLOOR, 1.0])
    assert not normalize(np.full((2, 1), np.nan), np.array([0, 2]), "z_score").any()


def test_unknown_technique_raises() -> None:
    with pytest.raises(ParameterError, match="normalization must be one of 'min_max', 'l2', 'z_score', got 'rank'"):
        normalize(np.ones((1, 1)), np.array([0, 1]), "rank")  # type: ignore[arg-type]
