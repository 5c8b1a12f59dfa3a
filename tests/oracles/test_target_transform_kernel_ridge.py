"""Step (a) of aTVT against scikit-learn: exact kernel ridge, and ridge on Nyström features."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import kernel_ridge
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel

from kinrank.papers import atvt
from kinrank.papers.atvt import KernelRidge


def generated(n_rows: int) -> tuple[NDArray, NDArray, NDArray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n_rows), rng.uniform(0.01, 4.0, n_rows)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(("penalty", "gamma"), [(1.0, None), (0.1, 0.5), (10.0, 2.0)])
def test_every_row_a_landmark_equals_kernel_ridge(weighted: bool, penalty: float, gamma: float | None) -> None:
    X, target, weight = generated(150)
    given = weight if weighted else None
    theirs = kernel_ridge.KernelRidge(alpha=penalty, kernel="rbf", gamma=gamma).fit(X, target, sample_weight=given)
    ours = KernelRidge(penalty, gamma).fit(X, target, given)
    new = generated(40)[0] + 0.1
    np.testing.assert_allclose(ours.predict(new), theirs.predict(new), atol=1e-6)
    norm = theirs.dual_coef_ @ rbf_kernel(X, gamma=gamma) @ theirs.dual_coef_
    assert ours.complexity == pytest.approx(penalty * norm, rel=1e-6)


def test_fewer_landmarks_equal_ridge_on_nystroem_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atvt, "_ROWS_AT_ONCE", 64)
    X, target, weight = generated(300)
    ours = KernelRidge(0.5, 0.5, n_landmarks=40).fit(X, target, weight)
    assert ours.landmarks_.shape == (40, 3)
    size, vectors = np.linalg.eigh(rbf_kernel(ours.landmarks_, gamma=0.5))
    features = rbf_kernel(X, ours.landmarks_, gamma=0.5) @ (vectors / np.sqrt(size))
    theirs = Ridge(alpha=0.5, fit_intercept=False).fit(features, target, sample_weight=weight)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(features), atol=1e-6)
    assert ours.complexity == pytest.approx(0.5 * theirs.coef_ @ theirs.coef_, rel=1e-6)


def test_repeated_rows_equal_row_weights() -> None:
    X, target, _ = generated(60)
    theirs = kernel_ridge.KernelRidge(alpha=1.0, kernel="rbf", gamma=0.5)
    theirs.fit(X, target, sample_weight=np.full(60, 3.0))
    ours = KernelRidge(1.0, 0.5).fit(np.tile(X, (3, 1)), np.tile(target, 3))
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-6)


def test_landmarks_do_not_depend_on_targets() -> None:
    X, target, weight = generated(200)
    one, other = KernelRidge(n_landmarks=20).fit(X, target), KernelRidge(n_landmarks=20).fit(X, -target, weight)
    np.testing.assert_array_equal(one.landmarks_, other.landmarks_)
