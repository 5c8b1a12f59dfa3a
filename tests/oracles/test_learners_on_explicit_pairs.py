"""Learners against textbook solvers on explicit pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.svm import LinearSVC

from kinrank import QuerySet
from kinrank.learn.base import Balance
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.ranksvm import RankSVM
from kinrank.learn.statistics import PairStatistics


def explicit_pairs(queries: QuerySet) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the difference vectors of all pairs, and the query of each."""
    parts, owner = [], []
    for position, query in enumerate(queries):
        better, worse = np.nonzero(query.grades[:, None] > query.grades[None, :])
        parts.append(query.X[better].astype(np.float64) - query.X[worse])
        owner.append(np.full(len(better), position))
    return np.concatenate(parts), np.concatenate(owner)


@st.composite
def judged(draw: st.DrawFn) -> QuerySet:
    """Draw small judged queries with ties, single documents and queries without pairs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(1, 9), min_size=2, max_size=6))
    n_features = draw(st.integers(1, 6))
    n_grades = draw(st.integers(2, 5))
    y = rng.integers(0, n_grades, sum(sizes))
    y[: sizes[0]] = np.arange(sizes[0]) % 2  # at least one pair unless the first query has one document
    return QuerySet.from_arrays(rng.standard_normal((sum(sizes), n_features)), y, group=sizes)


@given(judged())
def test_statistics_match_explicit_pairs(queries: QuerySet) -> None:
    pairs, owner = explicit_pairs(queries)
    each = PairStatistics.from_queries(queries)
    for position in range(len(queries)):
        own = pairs[owner == position]
        np.testing.assert_allclose(each.matrix(position), own.T @ own, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(each.moment[position], own.sum(axis=0), rtol=1e-5, atol=1e-4)
        assert each.pairs[position] == len(own)


@pytest.mark.parametrize("balance", ["pairs", "queries"])
@given(queries=judged(), penalty=st.sampled_from([0.01, 0.1, 1.0]))
def test_rankrls_equals_least_squares_on_pairs(balance: Balance, queries: QuerySet, penalty: float) -> None:
    pairs, owner = explicit_pairs(queries)
    n_features = queries.n_features
    prior = np.linspace(-1.0, 1.0, n_features)
    weight = np.ones(len(pairs)) if balance == "pairs" else 1.0 / np.bincount(owner, minlength=len(queries))[owner]
    total = weight.sum() or 1.0
    system = (pairs * weight[:, None]).T @ pairs / total + penalty * np.eye(n_features)
    expected = np.linalg.solve(system, weight @ pairs / total + penalty * prior)
    fitted = RankRLS(penalty, balance=balance).fit(queries, prior=prior)
    # Statistics are float32; their rounding is amplified by at most the condition number of the system.
    bound = 4 * np.finfo(np.float32).eps * np.linalg.cond(system) * max(1.0, float(np.linalg.norm(expected)))
    assert np.linalg.norm(fitted.coef_ - expected) <= bound


@pytest.mark.parametrize("penalty", [0.001, 0.01, 1.0])
@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_ranksvm_reaches_the_minimum_of_linear_svc(loss: str, penalty: float) -> None:
    rng = np.random.default_rng(7)
    X = rng.standard_normal((300, 8))
    y = np.digitize(X @ rng.standard_normal(8) + rng.standard_normal(300), [0.0, 2.0])
    queries = QuerySet.from_arrays(X, y, group=[20] * 15)
    pairs, _ = explicit_pairs(queries)
    signs = np.where(np.arange(len(pairs)) % 2, 1, -1)
    svc = LinearSVC(
        C=1 / (penalty * len(pairs)), loss=loss, fit_intercept=False, dual=True, tol=1e-8, max_iter=200_000
    ).fit(pairs * signs[:, None], signs)

    def objective(w: NDArray[np.float64]) -> float:
        violation = np.maximum(0.0, 1.0 - pairs @ w)
        return float(penalty / 2 * w @ w + np.mean(violation**2 if loss == "squared_hinge" else violation))

    ours = RankSVM(penalty, loss=loss).fit(queries)
    best = objective(svc.coef_[0])
    assert objective(ours.coef_) <= best + (1e-8 if loss == "squared_hinge" else 5e-4)
    if loss == "squared_hinge":
        np.testing.assert_allclose(ours.coef_, svc.coef_[0], atol=1e-4)
        assert ours.objective_ == pytest.approx(objective(ours.coef_), rel=1e-6)


def test_ranksvm_with_prior_matches_a_general_optimizer() -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 4))
    queries = QuerySet.from_arrays(X, rng.integers(0, 3, 60), group=[10] * 6)
    pairs, _ = explicit_pairs(queries)
    prior = np.array([1.0, -1.0, 0.5, 0.0])

    def value_and_gradient(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        violation = np.maximum(0.0, 1.0 - pairs @ w)
        value = 0.05 * (w - prior) @ (w - prior) + np.mean(violation**2)
        return float(value), 0.1 * (w - prior) - 2 * (violation @ pairs) / len(pairs)

    expected = minimize(value_and_gradient, np.zeros(4), jac=True, method="L-BFGS-B", options={"gtol": 1e-10}).x
    for start in (None, np.full(4, 3.0)):
        fitted = RankSVM(0.1).fit(queries, prior=prior, start=start)
        np.testing.assert_allclose(fitted.coef_, expected, atol=1e-5)
