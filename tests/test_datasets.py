from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank import QuerySet
from kinrank.datasets import make_intents, make_two_camps
from kinrank.errors import ParameterError


def described(queries: QuerySet, top: int = 50) -> np.ndarray:
    """Return the mean features of the top documents of each query by the reference feature, as in Geng et al."""
    return np.array([query.X[np.argsort(-query.X[:, 0])[:top]].mean(axis=0) for query in queries])


def centered(queries: QuerySet, values: np.ndarray) -> np.ndarray:
    means = np.add.reduceat(values.astype(float), queries.offsets[:-1]) / queries.sizes[:, None]
    return values - np.repeat(means, queries.sizes, axis=0)


def fitted_weights(queries: QuerySet) -> np.ndarray:
    """Return the least-squares weights from features to grades, both centered by query."""
    X, y = centered(queries, queries.X), centered(queries, queries.grades[:, None])[:, 0]
    return np.linalg.solve(X.T @ X + len(X) * 0.01 * np.eye(X.shape[1]), X.T @ y)


def agreement(queries: QuerySet, weights: np.ndarray) -> float:
    """Return the mean correlation within queries between grades and scores."""
    return float(np.mean([np.corrcoef(q.X @ weights, q.grades)[0, 1] for q in queries if np.ptp(q.grades)]))


def gain_of_neighbors(queries: QuerySet, k: int) -> float:
    """Return how much better weights of the k nearest training queries rank the test queries than those of all."""
    split = queries.query_columns["split"]
    train, test = queries[split == "train"], queries[split == "test"]
    points = described(train)
    single = fitted_weights(train)
    gains = []
    for query, point in zip(test, described(test), strict=True):
        near = np.argsort(((points - point) ** 2).sum(axis=1))[:k]
        gains.append(agreement(query, fitted_weights(train[near])) - agreement(query, single))
    return float(np.nanmean(gains))


def small_intents(**changes: object) -> QuerySet:
    return make_intents(**{"n_train": 400, "n_test": 40, "n_features": 12, "noise": 0.3, **changes})


def test_default_sizes_are_those_of_the_paper():
    queries = make_intents()
    assert (len(queries), queries.n_features) == (1_900, 200)
    assert queries.X.dtype == queries.grades.dtype == np.float32
    assert (queries.sizes.min(), queries.sizes.max()) == (40, 60)
    assert queries.query_columns["split"].tolist() == ["train"] * 1_500 + ["test"] * 400
    assert set(queries.query_columns["intent"]) == {0, 1, 2}
    assert queries.feature_names[:2] == ("reference", "f2")


def test_higher_grades_are_rarer():
    shares = np.bincount(make_intents(300, 0, n_features=10).grades.astype(int)) / 15_000
    assert len(shares) == 5
    assert shares[0] > 0.5
    assert np.all(np.diff(shares) < 0)
    assert shares[4] > 0.01


def test_seed_determines_the_data():
    first, again, other = small_intents(seed=3), small_intents(seed=3), small_intents(seed=4)
    np.testing.assert_array_equal(first.X, again.X)
    np.testing.assert_array_equal(first.grades, again.grades)
    assert not np.array_equal(first.sizes, other.sizes)


@given(
    n_docs=st.one_of(st.integers(1, 9), st.tuples(st.integers(1, 5), st.integers(5, 9))),
    n_intents=st.integers(1, 6),
    n_grades=st.integers(2, 7),
    spread=st.floats(0, 1),
    revealed=st.floats(0, 1),
    noise=st.floats(0, 5),
)
def test_data_is_finite_and_has_the_requested_shape(n_docs, n_grades, n_intents, spread, revealed, noise):
    queries = make_intents(
        7, 2, n_docs=n_docs, n_features=n_intents + 2, n_intents=n_intents, n_grades=n_grades, spread=spread,
        revealed=revealed, noise=noise,
    )  # fmt: skip
    low, high = (n_docs, n_docs) if isinstance(n_docs, int) else n_docs
    assert len(queries) == 9
    assert low <= queries.sizes.min() <= queries.sizes.max() <= high
    assert np.isfinite(queries.X).all()
    assert set(queries.grades) <= set(range(n_grades))


def test_reference_feature_helps_for_every_intent():
    queries = small_intents(spread=1.0)
    for intent in range(3):
        own = queries[queries.query_columns["intent"] == intent]
        assert agreement(own, np.eye(12)[0]) > 0.15


def test_neighbors_rank_better_than_all_queries():
    assert gain_of_neighbors(small_intents(), k=100) > 0.05


def test_all_queries_as_neighbors_equal_the_single_model():
    assert gain_of_neighbors(small_intents(), k=400) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("one_intent", [{"spread": 0.0}, {"n_intents": 1}])
def test_with_one_intent_neighbors_gain_nothing(one_intent):
    assert gain_of_neighbors(small_intents(**one_intent), k=100) < 0.01


def test_neighbors_gain_nothing_if_nothing_is_revealed():
    assert gain_of_neighbors(small_intents(revealed=0.0), k=100) < 0.01


def test_gain_grows_with_spread_and_revealed():
    gains = [gain_of_neighbors(small_intents(spread=spread), k=100) for spread in (0.0, 0.3, 0.9)]
    assert gains == sorted(gains)
    gains = [gain_of_neighbors(small_intents(revealed=revealed), k=100) for revealed in (0.0, 0.6, 1.0)]
    assert gains == sorted(gains)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_train": 0}, "n_train must be at least 1, got 0"),
        ({"n_docs": 0}, "n_docs must be at least 1, got 0"),
        ({"n_docs": (5, 4)}, "the larger n_docs must be at least 5, got 4"),
        ({"n_features": 4}, "n_features must be at least 5, got 4"),
        ({"n_grades": 1}, "n_grades must be at least 2, got 1"),
        ({"n_intents": 0}, "n_intents must be at least 1, got 0"),
        ({"spread": 1.1}, "spread must be between 0 and 1, got 1.1"),
        ({"revealed": float("nan")}, "revealed must be between 0 and 1, got nan"),
        ({"noise": -1.0}, "noise must be at least 0, got -1.0"),
    ],
)
def test_invalid_setting_raises(parameters, message):
    with pytest.raises(ParameterError, match=message):
        make_intents(**parameters)


def test_two_camps_want_opposite_orders():
    queries = make_two_camps(n_queries=10, n_docs=25, seed=1)
    assert queries.query_columns["camp"].tolist() == [1, -1] * 5
    for query, camp in zip(queries, queries.query_columns["camp"], strict=True):
        assert set(query.X[:, 1]) == {camp}
        assert np.bincount(query.grades.astype(int)).tolist() == [5] * 5
        assert np.all(np.diff(query.grades[np.argsort(camp * query.X[:, 0])]) >= 0)


def test_one_linear_model_ranks_one_camp_backwards():
    queries = make_two_camps()
    agree = [agreement(query, np.array([1.0, 0.0])) for query in queries]
    assert np.sign(agree).tolist() == queries.query_columns["camp"].tolist()


@pytest.mark.parametrize("parameters", [{"n_queries": 1}, {"n_docs": 1}])
def test_two_camps_with_fewer_than_two_queries_or_documents_raises(parameters):
    with pytest.raises(ParameterError, match="at least 2"):
        make_two_camps(**parameters)
