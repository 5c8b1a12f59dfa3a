"""Linear weights that stand in for KinRanker."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from kinrank import KinRanker, QuerySet
from kinrank.datasets import make_intents
from kinrank.errors import ParameterError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.rankers.kin._stand_in import RIDGE, fit_stand_ins, kendall_tau

FEW = LambdaMART(n_trees=40, n_leaves=7, min_rows_in_leaf=5, n_threads=1)


@pytest.fixture(scope="module")
def intents() -> tuple[QuerySet, KinRanker]:
    queries = make_intents(120, 20, n_docs=20, n_features=6, spread=1.0, seed=0)
    return queries[120:], KinRanker(20, trees=FEW).fit(queries[:120])


def test_stand_in_minimizes_the_objective_over_all_pairs():
    random = np.random.default_rng(0)
    queries = QuerySet.from_arrays(random.normal(size=(9, 3)), group=[9])
    scores, prior = random.normal(size=9), random.normal(size=(1, 3))
    factor = np.array([0.5, 2.0, 1.0])
    weights, _ = fit_stand_ins(queries, scores, prior, factor, None)
    first, second = np.triu_indices(9, 1)
    Z = queries.X.astype(np.float64) * factor
    gaps, wanted = Z[first] - Z[second], scores[first] - scores[second]
    by_prior = gaps @ prior[0]
    stretch = max(by_prior @ wanted / (by_prior @ by_prior), 0.0)
    # The sum over all pairs is n times that over centered rows.
    system = gaps.T @ gaps / 81 + RIDGE * np.eye(3)
    expected = np.linalg.solve(system, gaps.T @ wanted / 81 + RIDGE * stretch * prior[0])
    np.testing.assert_allclose(weights[0] / factor, expected, rtol=1e-6)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=12))
def test_kendall_equals_scipy(pairs):
    first, second = np.array(pairs, dtype=np.float64).T
    if np.ptp(first) and np.ptp(second):
        assert kendall_tau(first, second) == pytest.approx(kendalltau(first, second).statistic)
    else:
        assert kendall_tau(first, second) == (0.0 if np.ptp(second) else 1.0)


def test_missing_values_count_as_zero_in_the_weighted_sum(intents):
    test, ranker = intents
    X = test.X.copy()
    X[::7, 2] = np.nan
    holes = test.replace(X=X)
    found = ranker.weights_with_fidelity(holes)
    sums = np.einsum("ij,ij->i", np.nan_to_num(X), found.weights[holes.query_of_row])
    scores = ranker.predict(holes)
    for query in range(len(holes)):
        rows = slice(holes.offsets[query], holes.offsets[query + 1])
        assert found.fidelity[query] == pytest.approx(kendalltau(sums[rows], scores[rows]).statistic, abs=0.02)


def test_weights_are_closer_to_the_scores_than_those_of_the_local_model(intents):
    test, ranker = intents
    scores, local, own = ranker.predict(test), ranker.local_.weights(test), ranker.weights(test)
    for query, (start, stop) in enumerate(zip(test.offsets[:-1], test.offsets[1:], strict=True)):
        X = test.X[start:stop] - test.X[start:stop].mean(axis=0)
        wanted = scores[start:stop] - scores[start:stop].mean()
        by_local = X @ local[query]
        nearest = by_local * (by_local @ wanted / (by_local @ by_local))
        assert np.linalg.norm(wanted - X @ own[query]) < np.linalg.norm(wanted - nearest)


def test_signs_restrict_the_weights_and_not_the_ranking(intents):
    test, ranker = intents
    signed = ranker.copy().set_params(settings={"nonnegative": True, "lower_is_better": ["f2"]})
    weights = signed.weights(test)
    assert (weights[:, [0, 2, 3, 4, 5]] >= 0).all()
    assert (weights[:, 1] <= 0).all()
    assert (ranker.weights(test) < 0).any()
    np.testing.assert_array_equal(signed.predict(test), ranker.predict(test))


def test_unknown_feature_in_lower_is_better_raises():
    with pytest.raises(ParameterError, match="lower_is_better names the unknown feature 'price'"):
        KinRanker(settings={"lower_is_better": ["price"]}).fit([[1.0], [2.0]], [0, 1], group=[2])


def test_weights_of_a_query_with_one_candidate(intents):
    test, ranker = intents
    one = QuerySet(test.X[:1], None, np.array([0, 1]), test.qid[:1], feature_names=test.feature_names)
    found = ranker.weights_with_fidelity(one)
    assert np.isfinite(found.weights).all()
    assert found.fidelity.tolist() == [1.0]
    np.testing.assert_allclose(found.weights[0], ranker.explain(one)[0].weights)
