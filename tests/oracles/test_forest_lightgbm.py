"""The flat forest predicts what LightGBM predicts, in every bit."""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
import pytest
from numpy.typing import NDArray

from kinrank.errors import DataError, ParameterError
from kinrank.learn._forest import Forest

FEATURES = 8
MISSING = {"none": {"use_missing": False}, "zero": {"zero_as_missing": True}, "nan": {}}


def awkward_rows(n: int, thresholds: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Return random rows with missing, infinite, tiny and zero values, and with values equal to thresholds."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, FEATURES))
    X[:, 0] = np.round(X[:, 0])  # a discrete feature
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-36, -1e-36, 1e-35, 1e-34, 1e38, -1e38])
    drawn = random.random(X.shape)
    X = np.where(drawn < 0.1, random.choice(special, X.shape), X)
    return np.where(drawn > 0.8, random.choice(thresholds, X.shape), X)


def train(n_trees: int, seed: int = 0, **params: Any) -> Any:
    random = np.random.default_rng(seed)
    X = awkward_rows(4000, np.array([0.5]), seed)
    X[~np.isfinite(X) & ~np.isnan(X)] = 3.0
    X[:, 1] = random.normal(size=len(X))  # no missing value in training
    wanted = np.nan_to_num(X[:, 0] + X[:, 1] * (X[:, 2] > 0)) + np.isnan(X[:, 3])
    settings = {"objective": "regression", "num_threads": 1, "verbosity": -1, "min_data_in_leaf": 5, **params}
    return lightgbm.train(settings, lightgbm.Dataset(X, wanted), n_trees)


def thresholds_of(booster: Any) -> NDArray[np.float64]:
    limits = booster.trees_to_dataframe()["threshold"].dropna().unique().astype(np.float64)
    limits = np.minimum(limits, 3e38)  # a split of all numbers from NaN has 1e300, beyond float32
    return np.concatenate([limits, limits.astype(np.float32), np.nextafter(limits, np.inf)])


@pytest.mark.parametrize("leaves", [2, 15, 32, 33, 80])
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_forest_equals_lightgbm(missing, leaves, dtype):
    booster = train(25, num_leaves=leaves, **MISSING[missing])
    X = awkward_rows(2_001, thresholds_of(booster), seed=1).astype(dtype)
    np.testing.assert_array_equal(Forest.from_text(booster.model_to_string()).predict(X), booster.predict(X))


def test_forest_equals_lightgbm_on_a_million_rows():
    booster = train(20, num_leaves=15)
    X = awkward_rows(1_000_000, thresholds_of(booster), seed=2).astype(np.float32)
    np.testing.assert_array_equal(Forest.from_text(booster.model_to_string()).predict(X), booster.predict(X))


def test_forest_of_several_models_predicts_their_sum():
    boosters = [train(10, seed=seed) for seed in range(3)]
    X = awkward_rows(300, np.array([0.0]), seed=3)
    each = [booster.predict(X) for booster in boosters]
    forest = Forest.from_text(*(booster.model_to_string() for booster in boosters))
    np.testing.assert_allclose(forest.predict(X), np.sum(each, axis=0), rtol=1e-12)


def test_trees_without_splits():
    booster = lightgbm.train({"verbosity": -1}, lightgbm.Dataset(np.zeros((50, FEATURES)), np.ones(50)), 3)
    X = np.zeros((5, FEATURES))
    np.testing.assert_array_equal(Forest.from_text(booster.model_to_string()).predict(X), booster.predict(X))


def test_no_rows():
    assert Forest.from_text(train(2).model_to_string()).predict(np.empty((0, FEATURES))).shape == (0,)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "categorical splits"),
        ({"linear_tree": True}, "constant leaves"),
        ({"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, "constant leaves"),
    ],
)
def test_other_models_are_refused(params, message):
    random = np.random.default_rng(0)
    X = np.column_stack([random.integers(0, 9, 2000), random.normal(size=(2000, FEATURES - 1))])
    rows = lightgbm.Dataset(X, (X[:, 0] % 2) + X[:, 1], categorical_feature="auto" if params else [0])
    text = lightgbm.train({"verbosity": -1, **params}, rows, 3).model_to_string()
    with pytest.raises(ParameterError, match=message):
        Forest.from_text(text)


def test_wrong_number_of_features():
    with pytest.raises(DataError, match=r"read 8 features, got an array of shape \(2, 3\)"):
        Forest.from_text(train(2).model_to_string()).predict(np.zeros((2, 3)))
