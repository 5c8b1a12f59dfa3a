from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import kneighbors_graph

import kinrank
from kinrank import QuerySet, SingleRanker
from kinrank.checks import RankerCheck, linear_queries, ranker_checks
from kinrank.data.letor import read_letor
from kinrank.errors import DataError, ParameterError
from kinrank.papers.ensemble import (
    EnsembleRanker,
    agreement,
    matrix_distances,
    normalize,
    query_weights,
    relevance_matrix,
    smoothness,
    solve_hinge_qp,
    transition_matrix,
)


def of_rankers(second: str = "ranksvm") -> EnsembleRanker:
    """Return an ensemble of a column and two fitted rankers."""
    other = linear_queries(30, seed=7)
    rankers = [SingleRanker("rankrls").fit(other), SingleRanker(second).fit(other)]
    return EnsembleRanker(0.5, columns=["f1"], rankers=rankers)


MAKERS = {
    "semi-supervised": partial(EnsembleRanker, 0.5),
    "standard scores": partial(EnsembleRanker, 0.5, normalize="standard"),
    "raw scores": partial(EnsembleRanker, 0.5, normalize="none", missing="zero"),
    "some columns": partial(EnsembleRanker, 0.5, columns=[0, "f2", 4]),
    "other labels": partial(EnsembleRanker, 0.5, relevant_from=1, possible_from=1),
    "rankers": of_rankers,
}


@pytest.mark.parametrize("check", ranker_checks(), ids=lambda check: check.__name__)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_contract(make: partial[EnsembleRanker], check: RankerCheck) -> None:
    check(make)


def test_agreement_equals_the_trace_in_the_paper() -> None:
    # Eqs. 5 and 6 written out, with ties.
    rng = np.random.default_rng(0)
    theta, delta = 0.3, 0.7
    for _ in range(20):
        n = int(rng.integers(1, 12))
        scores, labels = rng.integers(0, 4, (n, 3)).astype(float), rng.integers(-1, 2, n).astype(np.int8)
        A = np.zeros((n, n))
        for k in range(n):
            for l in range(n):  # noqa: E741 - the paper's index
                A[k, l] = {(1, -1): 1, (-1, 1): -1, (1, 0): theta, (0, 1): -theta}.get((labels[k], labels[l]), 0)
        expected = []
        for ranker in range(3):
            R = (scores[:, None, ranker] > scores[None, :, ranker]) + delta * np.eye(n)
            expected.append(np.trace(A.T @ (R / R.sum(axis=0))))
        got = agreement(scores, labels, np.array([0, n]), theta=theta, delta=delta)
        np.testing.assert_allclose(got[0], expected, atol=1e-12)


def test_bregman_distance_follows_from_the_trace() -> None:
    # ½|A - R|² = ½|A|² + ½|R|² - tr(A'R): the same ranker order as Eq. 6 only where all |R| are equal.
    rng = np.random.default_rng(1)
    for _ in range(20):
        n = int(rng.integers(1, 12))
        scores, labels = rng.integers(0, 4, (n, 3)).astype(float), rng.integers(-1, 2, n).astype(np.int8)
        offsets = np.array([0, n])
        norms = [np.sum(transition_matrix(scores[:, j], 0.7) ** 2) for j in range(3)]
        expected = 0.5 * np.sum(relevance_matrix(labels, 0.3) ** 2) + 0.5 * np.array(norms)
        expected -= agreement(scores, labels, offsets, theta=0.3, delta=0.7)[0]
        found = matrix_distances(scores, labels, offsets, "bregman", theta=0.3, delta=0.7)
        np.testing.assert_allclose(found[0], expected, atol=1e-12)


@pytest.mark.parametrize("similarity", ["spectral", "bregman"])
def test_matrix_similarity_prefers_the_better_base_ranker(similarity) -> None:
    queries = linear_queries(20)
    scores = np.column_stack([queries.grades, -queries.grades]) + np.zeros(2)
    both = queries.replace(X=scores.astype(np.float32), feature_names=("right", "wrong"))
    ranker = EnsembleRanker(similarity=similarity, orient=False).fit(both)
    assert ranker.coef_[0] > ranker.coef_[1] >= 0.0
    with pytest.raises(ParameterError, match="does not support row weights"):
        EnsembleRanker(similarity=similarity).fit(both.replace(sample_weight=np.ones(both.n_rows, np.float32)))


def test_smoothness_uses_the_normalized_laplacian() -> None:
    G = np.random.default_rng(0).standard_normal((40, 6))
    S = kneighbors_graph(G, 5).toarray()
    S = np.maximum(S, S.T)
    root = np.diag(1 / np.sqrt(S.sum(axis=1)))
    expected = G.T @ (np.eye(40) - root @ S @ root) @ G
    np.testing.assert_allclose(smoothness(G, 5), expected, atol=1e-10)


@pytest.mark.parametrize("rows", [1, 2, 4, 30])
def test_smoothness_is_nonnegative_and_ignores_row_order(rows: int) -> None:
    rng = np.random.default_rng(rows)
    G = rng.integers(0, 3, (rows, 4)).astype(float)  # many documents have equal distances
    matrix = smoothness(G, 5)
    assert np.linalg.eigvalsh(matrix).min() >= -1e-10
    np.testing.assert_allclose(smoothness(G[rng.permutation(rows)], 5), matrix, atol=1e-10)


@pytest.mark.parametrize(
    ("how", "expected"), [("minmax", [0, 0.25, 1]), ("standard", [-0.980581, -0.392232, 1.372813]), ("none", [1, 2, 5])]
)
def test_scores_are_normalized_within_each_query(how, expected) -> None:
    scores = np.array([[1.0, 7.0], [2.0, 7.0], [5.0, 7.0], [3.0, 1.0]])
    got, factor = normalize(scores, np.array([0, 3, 4]), how)
    np.testing.assert_allclose(got[:3, 0], expected, atol=1e-6)
    if how != "none":
        assert np.all(got[:, 1] == 0)
        assert factor[0, 1] == factor[1, 0] == 0


@pytest.mark.parametrize("n_queries", [5, 63, 500])
def test_without_gamma_all_queries_share_the_weights(n_queries: int) -> None:
    queries, new = linear_queries(n_queries), linear_queries(20, seed=1)
    ranker = EnsembleRanker().fit(queries)
    scores, _ = normalize(new.X.astype(float), new.offsets, "minmax")
    cold = np.zeros(5), np.zeros(len(ranker.agreement_)), np.zeros(5)
    for start in (cold, ranker.solution_[:3]):
        weights, _ = query_weights(scores, new.offsets, 0.0, 5, ranker.agreement_, 1.0, *start)
        np.testing.assert_allclose(weights, np.tile(ranker.coef_, (20, 1)), atol=1e-8)


def test_small_gamma_changes_little() -> None:
    queries = linear_queries()
    np.testing.assert_allclose(
        EnsembleRanker(1e-9).fit(queries).predict(queries), EnsembleRanker().fit(queries).predict(queries), atol=1e-6
    )


def test_gamma_makes_weights_differ_between_queries() -> None:
    queries = linear_queries()
    weights = EnsembleRanker(5.0, normalize="none").fit(queries).weights(queries)
    assert np.ptp(weights, axis=0).max() > 1e-3
    assert np.ptp(EnsembleRanker(0.0, normalize="none").fit(queries).weights(queries), axis=0).max() == 0


def test_query_weights_minimize_the_objective_in_the_paper() -> None:
    queries = linear_queries()
    ranker = EnsembleRanker(2.0, normalize="none", orient=False).fit(queries)
    for query in queries[:5]:
        Q = np.eye(5) + 2.0 * smoothness(query.X.astype(float), 5)
        np.testing.assert_allclose(ranker.weights(query)[0], solve_hinge_qp(Q, ranker.agreement_).w, atol=1e-8)


def test_units_of_a_base_ranker_do_not_matter() -> None:
    queries = linear_queries()
    units = np.array([1.0, 1e4, 1e-3, 10.0, 1.0], dtype=np.float32)
    expected = EnsembleRanker(0.5).fit(queries).predict(queries)
    scaled = queries.replace(X=queries.X * units + 3.0 * units)
    np.testing.assert_allclose(EnsembleRanker(0.5).fit(scaled).predict(scaled), expected, atol=1e-3)


def test_wrong_base_ranker_is_reversed_or_gets_no_weight() -> None:
    queries = linear_queries()  # its last two features are better when lower
    oriented = EnsembleRanker().fit(queries)
    assert oriented.sign_.tolist() == [1, 1, oriented.sign_[2], -1, -1]
    assert np.all(oriented.weights(queries)[:, 4] <= 0)
    as_given = EnsembleRanker(orient=False).fit(queries)
    assert np.all(as_given.coef_[3:] == 0)
    assert oriented.score(queries) > as_given.score(queries)


def test_grades_become_labels() -> None:
    queries = QuerySet.from_arrays(np.zeros((4, 1)), y=[0, 1, 2, 3], group=[4])
    assert EnsembleRanker()._labels(queries).tolist() == [-1, 0, 0, 1]
    assert EnsembleRanker(relevant_from=2)._labels(queries).tolist() == [-1, 0, 1, 1]
    assert EnsembleRanker(relevant_from=2, possible_from=2)._labels(queries).tolist() == [-1, -1, 1, 1]


def test_queries_without_agreement_are_left_out() -> None:
    X = np.array([[1.0], [2.0], [1.0], [2.0], [3.0], [3.0]])
    queries = QuerySet.from_arrays(X, y=[1, 2, 0, 1, 2, 0], group=[2, 2, 2])
    ranker = EnsembleRanker().fit(queries)  # query 2 has no relevant document, query 3 equal scores
    assert ranker.agreement_.tolist() == [[0.25]]


def test_base_rankers_are_saved_with_the_ensemble(tmp_path: Path) -> None:
    queries = linear_queries()
    ranker = of_rankers("lambdamart").fit(queries)
    ranker.save(tmp_path / "model")
    loaded = kinrank.load(tmp_path / "model")
    assert isinstance(loaded, EnsembleRanker)
    np.testing.assert_array_equal(loaded.predict(queries), ranker.predict(queries))
    np.testing.assert_array_equal(loaded.fit(queries).predict(queries), ranker.predict(queries))


def test_weights_of_an_ensemble_of_rankers_raise() -> None:
    with pytest.raises(ParameterError, match="no weights for features because rankers= are combined"):
        of_rankers().fit(linear_queries()).weights(linear_queries())


def test_clone_keeps_base_rankers_fitted() -> None:
    queries = linear_queries()
    twin = clone(of_rankers())
    assert twin.fit(queries).score(queries) > 0.9
    with pytest.raises(NotFittedError, match="not fitted yet"):
        clone(EnsembleRanker().fit(queries)).predict(queries)


def test_base_rankers_that_do_not_fit_raise() -> None:
    with pytest.raises(NotFittedError, match=r"rankers\[0\] is not fitted: fit it first"):
        EnsembleRanker(rankers=[SingleRanker()]).fit(linear_queries())
    other = SingleRanker("rankrls").fit(linear_queries(n_features=4))
    with pytest.raises(DataError, match=r"rankers\[0\] was fitted on features .*: fit both on the same features"):
        EnsembleRanker(rankers=[other]).fit(linear_queries())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": -1.0}, "gamma must be a number from 0, got -1"),
        ({"theta": np.nan}, "theta must be a number from 0, got nan"),
        ({"C": 0.0}, "C must be a positive number, got 0"),
        ({"delta": np.inf}, "delta must be a positive number, got inf"),
        ({"n_neighbors": 0}, "n_neighbors must be at least 1, got 0"),
        ({"normalize": "rank"}, "normalize must be 'minmax', 'standard' or 'none', got 'rank'"),
        ({"similarity": "cosine"}, "similarity must be 'trace', 'spectral' or 'bregman', got 'cosine'"),
        ({"similarity_scale": 0.0}, "similarity_scale must be a positive number or None, got 0"),
        ({"columns": ["bm25"]}, "columns contains 'bm25', which is not one of the 5 features: f1, f2"),
        ({"columns": [5]}, "columns contains 5, which is not one of"),
        ({"columns": []}, "there is no base ranker"),
    ],
)
def test_invalid_settings_raise(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        EnsembleRanker(**settings).fit(linear_queries())


def test_missing_score_raises() -> None:
    with pytest.raises(DataError, match=r"'f1' is missing \(NaN\) in candidate 1"):
        EnsembleRanker(missing="error").fit([[np.nan, 1.0], [1.0, 0.0]], [0, 1], group=[2])


def test_no_agreeing_base_ranker_warns() -> None:
    with pytest.warns(UserWarning, match="no base ranker agrees with the grades"):
        EnsembleRanker(orient=False).fit([[1.0], [0.0]], [0, 1], group=[2])


@pytest.mark.data("letor/OHSUMED-25")
def test_ohsumed_base_rankers(data_dir: Path) -> None:
    # The data of the paper has constant columns, equal columns, ties and raw scores.
    parts = [read_letor(data_dir / "letor" / "OHSUMED-25" / f"S{part}.txt.xz") for part in (1, 2, 3, 5)]
    ranker = EnsembleRanker(0.5).fit(QuerySet.concat(parts[:3]))
    assert ranker.agreement_.shape == (60, 25)  # three of 63 queries have no document of grade 2
    assert np.all(ranker.sign_ == 1)
    assert np.all(ranker.coef_[[4, 5, 6, 14, 15, 16]] == 0)  # inverse document frequencies: one value in each query
    weights = ranker.weights(parts[3])
    assert np.all(weights >= 0)
    by_weights = np.einsum("ij,ij->i", parts[3].X, weights[parts[3].query_of_row])
    for rows in map(slice, parts[3].offsets[:-1], parts[3].offsets[1:]):
        gap = by_weights[rows] - ranker.predict(parts[3])[rows]
        np.testing.assert_allclose(gap, gap.mean(), atol=1e-5)
