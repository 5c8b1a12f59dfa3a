from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import entropy

import kinrank
from kinrank import ClusterRanker, QuerySet, SingleRanker
from kinrank.checks import RankerCheck, linear_queries, ranker_checks
from kinrank.datasets import make_intents, make_two_camps
from kinrank.errors import DataError, ParameterError
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.ranksvm import RankSVM
from kinrank.measure import AP
from kinrank.papers.cluster import Mode, Select, divergences, normalized
from reproduction.oracles import upper_bound

MODES: list[Mode] = ["naive", "select", "transform"]
TIGHT = RankSVM(tol=1e-10)


def make(n_clusters: int = 4, **more: object) -> ClusterRanker:
    return ClusterRanker(n_clusters, **({"learner": "rankrls", "reference": 0} | more))


def unit(scores: np.ndarray) -> np.ndarray:
    width = np.ptp(scores)
    return (scores - scores.min()) / width if width else np.zeros(len(scores))


@pytest.mark.parametrize("check", ranker_checks(), ids=lambda check: check.__name__)
@pytest.mark.parametrize("mode", ["select", "transform"])
def test_contract_of_other_modes(mode: Mode, check: RankerCheck) -> None:
    check(partial(ClusterRanker, 3, mode=mode, reference=0))


@pytest.mark.parametrize("prior", ["none", "global"])
@pytest.mark.parametrize("learner", [RankRLS(), RankRLS(balance="queries"), TIGHT], ids=["rls", "rls queries", "svm"])
@pytest.mark.parametrize("mode", MODES)
def test_one_cluster_equals_single(mode: Mode, learner: RankRLS | RankSVM, prior: str) -> None:
    train, test = linear_queries(50), linear_queries(20, seed=1)
    single = SingleRanker(learner).fit(train)
    ranker = make(1, mode=mode, learner=learner, prior=prior).fit(train)
    np.testing.assert_allclose(ranker.predict(test), single.predict(test), atol=1e-6)
    np.testing.assert_allclose(ranker.weights(test), single.weights(test), atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_strong_prior_equals_single(mode: Mode) -> None:
    train, test = linear_queries(50), linear_queries(20, seed=1)
    ranker = make(5, mode=mode, prior="global", prior_strength=1e9).fit(train)
    np.testing.assert_allclose(ranker.predict(test), SingleRanker("rankrls").fit(train).predict(test), atol=1e-5)


@pytest.mark.parametrize("learner", ["rankrls", "ranksvm"])
def test_naive_ranks_two_camps_perfectly(learner: str) -> None:
    camps = make_two_camps(n_queries=60, seed=0)
    ranker = ClusterRanker(2, learner=learner).fit(camps[:40])
    assert ranker.score(camps[40:]) == pytest.approx(1.0)
    assert SingleRanker("rankrls").fit(camps[:40]).score(camps[40:]) < 0.9


@pytest.mark.parametrize("mode", MODES)
def test_score_is_the_weighted_sum_of_local_scores(mode: Mode) -> None:
    train, test = linear_queries(60), linear_queries(20, seed=1)
    ranker = make(mode=mode).fit(train)
    weights = ranker.cluster_weights(test)
    assert weights.shape == (20, len(ranker.coef_))
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    mixed = np.sum(weights[test.query_of_row].T * ranker.local_scores(test), axis=0)
    np.testing.assert_allclose(ranker.predict(test), mixed, atol=1e-9)


def test_naive_follows_algorithm_1() -> None:
    train, test = linear_queries(60), linear_queries(20, seed=1)
    ranker = make(scale="none", top=3).fit(train)
    centers = []
    for cluster in range(len(ranker.coef_)):
        members = [query for query, label in zip(train, ranker.labels_, strict=True) if label == cluster]
        relevant = [query.X[query.grades >= 1] for query in members]
        centers.append(np.concatenate(relevant).astype(float).mean(axis=0))
        own = RankRLS().fit(train[np.flatnonzero(ranker.labels_ == cluster)])
        np.testing.assert_allclose(ranker.coef_[cluster], own.coef_, atol=1e-6)
    for query, weights in zip(test, ranker.cluster_weights(test), strict=True):
        best = np.argsort(-(query.X @ ranker.global_coef_))[:3]
        distances = [np.linalg.norm(query.X[best].astype(float).mean(axis=0) - center) for center in centers]
        assert weights.tolist() == np.eye(len(centers))[np.argmin(distances)].tolist()


@pytest.mark.parametrize("n_neighbors", [1, 4, 1000])
def test_select_follows_algorithm_2(n_neighbors: int) -> None:
    train, test = linear_queries(60), linear_queries(20, seed=1)
    ranker = make(mode="select", scale="none", n_neighbors=n_neighbors).fit(train)

    def delta(query: QuerySet, cluster: int) -> float:
        p, base = (softmax(unit(s)) for s in (query.X @ ranker.coef_[cluster], query.X[:, 0]))
        return float(np.sum(p * np.log(p / base)))

    clusters = range(len(ranker.coef_))
    for query, weights in zip(test, ranker.cluster_weights(test), strict=True):
        near: list[list[tuple[float, float]]] = [[] for _ in clusters]
        for judged, label in zip(train, ranker.labels_, strict=True):
            if (judged.grades >= 1).any():
                precision = AP.mean(judged.X @ ranker.coef_[label], judged.grades, judged.offsets)
                near[label].append((abs(delta(query, label) - delta(judged, label)), precision))
        limit = np.median([distance for own in near for distance, _ in own])
        sums = [sum(ap for distance, ap in sorted(own)[:n_neighbors] if distance <= limit + 1e-9) for own in near]
        np.testing.assert_allclose(weights, np.array(sums) / sum(sums), atol=1e-6)


def test_transform_follows_algorithm_3() -> None:
    train, test = linear_queries(60), linear_queries(20, seed=1)
    ranker = make(mode="transform", scale="none", top=3).fit(train)

    def point(query: QuerySet) -> np.ndarray:
        best = np.argsort(-(query.X @ ranker.global_coef_))[:3]
        return np.array([unit(query.X[:, 0])[best].mean(), unit(query.X @ ranker.global_coef_)[best].mean()])

    points = np.array([point(query) for query in train])
    centers = np.array([points[ranker.labels_ == cluster].mean(axis=0) for cluster in range(len(ranker.coef_))])
    for query, weights in zip(test, ranker.cluster_weights(test), strict=True):
        expected = softmax(-np.linalg.norm(point(query) - centers, axis=1))
        np.testing.assert_allclose(weights, expected, atol=1e-5)


@given(st.integers(0, 10_000))
def test_divergence_equals_scipy_and_ignores_units(seed: int) -> None:
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 8, 5))])
    scores, reference = rng.standard_normal((offsets[-1], 3)), rng.standard_normal(offsets[-1])
    found = divergences(scores, reference, offsets)
    np.testing.assert_allclose(divergences(5 * scores + 2, 0.1 * reference - 7, offsets), found, atol=1e-9)
    for query, (start, stop) in enumerate(pairwise(offsets)):
        base = softmax(unit(reference[start:stop]))
        expected = [entropy(softmax(unit(column)), base) for column in scores[start:stop].T]
        np.testing.assert_allclose(found[query], expected, atol=1e-9)


def test_equal_scores_are_normalized_to_zero() -> None:
    assert normalized(np.array([[2.0], [2.0], [5.0]]), np.array([0, 2, 3])).tolist() == [[0.0], [0.0], [0.0]]


@pytest.mark.parametrize("mode", ["select", "transform"])
def test_units_of_the_reference_do_not_matter(mode: Mode) -> None:
    queries = linear_queries(60)
    units = np.array([1000.0, 1.0, 1.0, 1.0, 1.0], dtype=np.float32)
    expected = make(mode=mode).fit(queries).predict(queries)
    scaled = queries.replace(X=queries.X * units)
    np.testing.assert_allclose(make(mode=mode).fit(scaled).predict(scaled), expected, atol=1e-3)


@pytest.mark.parametrize("mode", MODES)
def test_same_seed_gives_same_model(mode: Mode) -> None:
    queries = linear_queries(60)
    first, second = (make(mode=mode, seed=3).fit(queries) for _ in range(2))
    np.testing.assert_array_equal(first.labels_, second.labels_)
    np.testing.assert_array_equal(first.predict(queries), second.predict(queries))


@pytest.mark.parametrize("mode", MODES)
def test_every_judged_query_has_a_cluster(mode: Mode) -> None:
    queries = linear_queries(60)
    y = np.where(queries.query_of_row % 3 == 0, queries.grades * 0.4, queries.grades)
    ranker = make(mode=mode, relevant_from=1).fit(queries.replace(y=y))
    assert sorted(set(ranker.labels_)) == list(range(len(ranker.coef_)))
    assert len(ranker.labels_) == 60
    assert np.isfinite(ranker.predict(queries)).all()


def test_judged_query_without_relevant_documents_joins_the_nearest_cluster() -> None:
    queries = linear_queries(60)
    y = np.where(queries.query_of_row == 7, 0.5 * (queries.grades > 0), queries.grades)
    ranker = make(top=3).fit(queries.replace(y=y))
    assert ranker.cluster_weights(queries[7:8])[0, ranker.labels_[7]] == 1.0


def test_select_ignores_queries_without_relevant_documents() -> None:
    queries = linear_queries(60)
    y = np.where(queries.query_of_row % 3 == 0, 0.0, queries.grades)
    ranker = make(mode="select").fit(queries.replace(y=y))
    assert isinstance(ranker.mode_, Select)
    assert len(ranker.mode_.precision) == np.count_nonzero(np.add.reduceat(y >= 1, queries.offsets[:-1]))
    assert (ranker.mode_.precision > 0).all()


def test_cluster_without_pairs_uses_the_global_model() -> None:
    # The far query has only relevant documents, so its cluster has no pairs.
    queries = linear_queries(30)
    far = QuerySet.from_arrays(np.full((4, 5), 50.0) + np.arange(4)[:, None], y=[1, 1, 1, 1], qid=["far"] * 4)
    ranker = make(2, scale="none").fit(QuerySet.concat([queries, far]))
    alone = ranker.labels_[-1]
    assert np.count_nonzero(ranker.labels_ == alone) == 1
    np.testing.assert_array_equal(ranker.coef_[alone], ranker.global_coef_)
    assert not np.allclose(ranker.coef_[1 - alone], 0.0)


@pytest.mark.parametrize("mode", MODES)
def test_more_clusters_than_distinct_points_are_dropped(mode: Mode) -> None:
    camps = make_two_camps(n_queries=4, n_docs=3)
    twins = QuerySet.concat([camps.replace(qid=np.arange(4) + shift) for shift in (0, 10, 20)])
    ranker = make(50, mode=mode).fit(twins)
    assert 1 <= len(ranker.coef_) <= 4
    assert np.isfinite(ranker.predict(twins)).all()


def test_no_relevant_document_raises() -> None:
    queries = linear_queries()
    low = queries.replace(y=queries.grades * 0.1)
    with pytest.raises(DataError, match=r"no candidate has a grade of 1 or more.*relevant_from="):
        make().fit(low)
    assert make(relevant_from=0.1).fit(low).score(queries) > 0.85


def test_loaded_model_has_same_cluster_weights(tmp_path: Path) -> None:
    queries = linear_queries()
    ranker = make(mode="select", reference=queries.feature_names[1]).fit(queries)
    ranker.save(tmp_path / "model")
    twin = kinrank.load(tmp_path / "model")
    assert isinstance(twin, ClusterRanker)
    np.testing.assert_array_equal(twin.cluster_weights(queries), ranker.cluster_weights(queries))
    np.testing.assert_array_equal(twin.labels_, ranker.labels_)


def test_local_scores_are_in_the_callers_row_order() -> None:
    queries = linear_queries()
    ranker = make().fit(queries)
    shuffled = np.random.default_rng(0).permutation(queries.n_rows)
    ids = queries.qid[queries.query_of_row]
    of_shuffled = ranker.local_scores(queries.X[shuffled], qid=ids[shuffled])
    np.testing.assert_allclose(of_shuffled, ranker.local_scores(queries)[:, shuffled], atol=1e-6)


def test_oracles_beat_naive_in_order() -> None:
    queries = make_intents(300, 100, n_docs=20, n_features=10, spread=1.0, revealed=0.3)
    test = queries[300:]
    ranker = ClusterRanker(6, learner="rankrls", relevant_from=2).fit(queries[:300])
    measure = AP(relevant_from=2)

    def quality(scores: np.ndarray) -> np.ndarray:
        return measure.per_query(scores, test.grades, test.offsets)

    naive, relevant_only = quality(ranker.predict(test)), quality(ranker.predict_relevant_only(test))
    bound = upper_bound([quality(scores) for scores in ranker.local_scores(test)])
    assert np.all(bound >= naive - 1e-12)
    assert np.all(bound >= relevant_only - 1e-12)
    assert naive.mean() < relevant_only.mean() < bound.mean()


def test_relevant_only_needs_judgments_and_mode_naive() -> None:
    queries = linear_queries()
    with pytest.raises(DataError, match="not judged"):
        make().fit(queries).predict_relevant_only(queries.replace(y=None))
    with pytest.raises(ParameterError, match="predict_relevant_only needs mode='naive', got mode='select'"):
        make(mode="select").fit(queries).predict_relevant_only(queries)


def test_relevant_only_without_relevant_documents_equals_naive() -> None:
    queries = linear_queries()
    ranker = make().fit(queries)
    nothing = queries.replace(y=np.zeros(queries.n_rows, dtype=np.float32))
    np.testing.assert_array_equal(ranker.predict_relevant_only(nothing), ranker.predict(queries))


@pytest.mark.parametrize("mode", MODES)
def test_missing_features_are_filled_as_declared(mode: Mode) -> None:
    queries = linear_queries()
    X = queries.X.copy()
    X[::7, 0] = np.nan
    with pytest.raises(DataError, match=r"is missing \(NaN\) in candidate 1 of query"):
        make(mode=mode, missing="error").fit(queries.replace(X=X))
    ranker = make(mode=mode).fit(queries.replace(X=X))
    assert np.isfinite(ranker.predict(queries.replace(X=X))).all()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"mode": "best"}, r"mode must be one of 'naive', 'select', 'transform', got 'best'"),
        ({"mode": "select", "reference": None}, "mode='select' needs reference=, the feature"),
        ({"mode": "transform", "reference": None}, "mode='transform' needs reference=, the feature"),
        ({"reference": "bm25"}, r"reference 'bm25' is not a feature: set reference= to"),
        ({"reference": 5}, r"reference must be a column from 0 to"),
        ({"n_clusters": 0}, "n_clusters must be at least 1, got 0"),
        ({"top": 0}, "top must be at least 1, got 0"),
        ({"n_neighbors": 0}, "n_neighbors must be at least 1, got 0"),
        ({"prior": "local"}, "prior must be 'none' or 'global', got 'local'"),
        ({"prior_strength": 0}, "prior_strength must be positive"),
        ({"learner": "lambdamart"}, r"learner must be linear, such as 'ranksvm' or 'rankrls', got LambdaMART\(\)"),
    ],
)
def test_invalid_settings_raise(params: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        ClusterRanker(**({"reference": 0} | params)).fit(linear_queries())
