from __future__ import annotations

import numpy as np
import pytest

from kinrank import QuerySet
from kinrank.learn.ranksvm import RankSVM
from reproduction.experiments.atvt_tables import trained_lines
from reproduction.experiments.bound import PENALTY, explicit_svm, hinge, pair_differences
from reproduction.experiments.ensemble import normalized
from reproduction.experiments.map_local import cosine, gradients


def queries(n: int = 4, n_docs: int = 6) -> QuerySet:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n * n_docs, 3)), rng.integers(0, 3, n * n_docs)
    return QuerySet.from_arrays(X, y, group=np.full(n, n_docs))


def test_gradient_is_that_of_the_pairwise_loss():
    some, w = queries(), np.array([0.3, -0.2, 0.5])

    def loss(weights, query):
        pairs = pair_differences(query.X, query.grades)
        return 0.5 * np.mean((1.0 - pairs @ weights) ** 2)

    for query, found in zip(some, gradients(some, w), strict=True):
        steps = 1e-5 * np.eye(3)
        expected = [-(loss(w + step, query) - loss(w - step, query)) / 2e-5 for step in steps]
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_cosine_of_equal_and_of_opposite_rows():
    rows, metric = np.random.default_rng(1).standard_normal((5, 3)), np.diag([1.0, 2.0, 3.0])
    assert cosine(rows, rows, metric) == pytest.approx(1.0)
    assert cosine(rows, -2.0 * rows, metric) == pytest.approx(-1.0)
    assert cosine(rows, np.zeros_like(rows), metric) == 0.0


def test_line_of_a_test_query_is_the_mean_of_its_training_folds():
    values = {
        "qid": np.array(["a", "b"]),
        "train qid": np.array(["b", "a", "a"]),
        "train alpha": np.array([3.0, 1.0, 4.0]),
        "train beta": np.array([0.5, 1.0, 2.0]),
    }
    alpha, beta = trained_lines(values)
    np.testing.assert_allclose(alpha, [2.0, 3.0])
    np.testing.assert_allclose(beta, [1.5, 0.5])


def test_explicit_pairs_give_the_ranksvm_without_pairs():
    some = queries(8, 10)
    pairs = np.concatenate([pair_differences(query.X, query.grades) for query in some])
    ours, theirs = RankSVM(PENALTY, loss="hinge").fit(some).coef_, explicit_svm(pairs)

    def objective(w):
        return 0.5 * PENALTY * w @ w + hinge(pairs, w).mean()

    assert objective(ours) == pytest.approx(objective(theirs), abs=1e-3)


def test_normalization_is_within_each_query():
    scaled = normalized("minmax", queries())
    for query in scaled:
        np.testing.assert_allclose([query.X.min(axis=0), query.X.max(axis=0)], [np.zeros(3), np.ones(3)], atol=1e-6)
