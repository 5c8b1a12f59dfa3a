"""SER and the RankSVM it is compared with, a second time: explicit pairs, matrices and solvers of other libraries."""

from __future__ import annotations

from pathlib import Path

import clarabel
import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import LinearSVC

from kinrank import EnsembleRanker, QuerySet
from kinrank.arrays import Float64
from kinrank.learn.ranksvm import RankSVM
from kinrank.measure import LETOR_MAP
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import DataFolder
from reproduction.experiments.ensemble import COLLECTION, normalized

TRAINED, TESTED = 12, 10


def scaled(X: Float64) -> Float64:
    """Scale each column of a query to 0..1."""
    low, high = X.min(axis=0), X.max(axis=0)
    return np.where(high > low, (X - low) / np.where(high > low, high - low, 1.0), 0.0)


def rank_svm(train: list[tuple[Float64, Float64]], penalty: float) -> Float64:
    """Minimize λ/2 |w|² + (1/P) Σ (squared hinge) over explicit pairs, by liblinear."""
    pairs = np.vstack([(X[:, None] - X[None, :])[y[:, None] > y[None, :]] for X, y in train])
    sign = np.where(np.arange(len(pairs)) % 2 == 0, 1.0, -1.0)
    # liblinear's objective is ½|w|² + C Σ (squared hinge).
    svm = LinearSVC(C=1.0 / (penalty * len(pairs)), fit_intercept=False, dual=False, tol=1e-8, max_iter=10_000)
    return np.asarray(svm.fit(pairs * sign[:, None], sign).coef_[0])


def ser(train: list[tuple[Float64, Float64]], theta: float = 0.5, delta: float = 1.0, C: float = 1.0) -> Float64:
    """Solve Eq. 6 with the matrices A and R of every query and ranker, by Clarabel."""
    rows = []
    for X, y in train:
        if y.max() < 2 or y.min() == 2:
            continue
        label = y - 1  # OHSUMED's 2, 1, 0 become +1, 0, -1
        A = np.zeros((len(y), len(y)))
        for k, l in np.ndindex(A.shape):  # noqa: E741 - the paper's index
            A[k, l] = {(1, -1): 1, (-1, 1): -1, (1, 0): theta, (0, 1): -theta}.get((label[k], label[l]), 0)
        row = []
        for scores in X.T:
            R = (scores[:, None] > scores[None, :]) + delta * np.eye(len(y))
            row.append(np.trace(A.T @ (R / R.sum(axis=0))))
        rows.append(row)
    B = np.array(rows)
    n, m = B.shape
    P = sparse.csc_matrix(np.diag([1.0] * m + [0.0] * n))
    q = np.concatenate([np.zeros(m), np.full(n, C)])
    G = np.vstack([np.hstack([-B, -np.eye(n)]), -np.eye(m + n)])
    h = np.concatenate([-np.ones(n), np.zeros(m + n)])
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.tol_gap_abs = options.tol_gap_rel = options.tol_feas = 1e-11
    solved = clarabel.DefaultSolver(P, q, sparse.csc_matrix(G), h, [clarabel.NonnegativeConeT(len(h))], options).solve()
    return np.array(solved.x)[:m]


def mean_average_precision(queries: list[tuple[Float64, Float64]], w: Float64) -> float:
    total = []
    for X, y in queries:
        relevant = (y > 0)[np.argsort(-(X @ w).round(6), kind="stable")]
        found = np.cumsum(relevant) / np.arange(1, len(y) + 1)
        total.append(found[relevant].mean() if relevant.any() else 0.0)
    return float(np.mean(total))


def lists(queries: QuerySet) -> list[tuple[Float64, Float64]]:
    return [(scaled(query.X.astype(np.float64)), query.grades.astype(np.float64)) for query in queries]


@pytest.mark.data("letor/OHSUMED-25")
@pytest.mark.slow
def test_ensemble_and_its_baseline_on_ohsumed(data_dir: Path) -> None:
    train, _, test = DataFolder(data_dir).letor_fold(COLLECTION, 1)
    # Small queries, so that the explicit pairs and matrices stay small.
    small = np.argsort(np.diff(train.offsets), kind="stable")[:TRAINED]
    train, test = train[np.sort(small)], test[:TESTED]

    ours = SingleRanker(RankSVM(0.01), scale="none").fit(normalized("minmax", train))
    w = rank_svm(lists(train), 0.01)
    np.testing.assert_allclose(ours.weights(normalized("minmax", test))[0], w, atol=2e-3 * np.abs(w).max())
    scores = ours.predict(normalized("minmax", test))
    assert LETOR_MAP.mean(scores, test.grades, test.offsets) == pytest.approx(
        mean_average_precision(lists(test), w), abs=0.002
    )

    ensemble = EnsembleRanker(normalize="minmax", orient=False).fit(train)
    w = ser(lists(train))
    w[w < 1e-6] = 0.0  # an interior point solver stops just inside the bound, which would break ties
    np.testing.assert_allclose(ensemble.coef_, w, atol=1e-5)
    assert LETOR_MAP.mean(ensemble.predict(test), test.grades, test.offsets) == pytest.approx(
        mean_average_precision(lists(test), w), abs=0.002
    )
