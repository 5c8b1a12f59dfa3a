from __future__ import annotations

import numpy as np
import pytest

from kinrank import KnnRanker, QuerySet
from kinrank.errors import DataError
from kinrank.measure import NDCG
from kinrank.study.fusion import RAW, GlobalWeights
from kinrank.study.hybrid import BEST, LEARNED, PER_QUERY, Hybrid, HybridPlan, hybrid
from kinrank.study.hybrid_plan import global_ranker
from tests.study.hybrid_searches import two_kinds

MEASURE = NDCG @ 10


def mean(found: Hybrid, name: str) -> float:
    return found.comparison[name].evaluation[found.measure]


@pytest.fixture(scope="module")
def found() -> Hybrid:
    return hybrid(two_kinds(), plan=HybridPlan(normalization="min_max"), folds=4)


def test_weights_from_the_text_reach_the_oracle_and_global_weights_do_not(found: Hybrid) -> None:
    assert mean(found, BEST) < 0.8
    assert mean(found, PER_QUERY["text"]) == pytest.approx(1.0)
    assert found.oracle.evaluation[MEASURE] == pytest.approx(1.0)
    assert found.claim("text").verdict == "gain"
    assert found.claim("text").p_holm < 1e-6
    assert found.claim("text").paired.losses == 0


def test_every_way_to_combine_scores_is_compared_with_the_best_global_weights(found: Hybrid) -> None:
    names = [entrant.name for entrant in found.comparison.entrants]
    assert names == [
        BEST,
        "bm25",
        "vector",
        "RRF",
        "weighted RRF",
        "global: none",
        "global: min_max",
        "global: l2",
        "global: z_score",
        "global: min_max, geometric",
        "global: min_max, harmonic",
        LEARNED,
        *PER_QUERY.values(),
    ]
    assert {each.against for each in found.comparison.differences} == {BEST}
    assert len(found.best) == len(found.leaks) == len(found.per_query["text"]) == 4


def test_control_learns_the_same_weights_for_all_queries_by_the_same_learner(found: Hybrid) -> None:
    train = two_kinds()
    control = HybridPlan(normalization="min_max").learned(train)
    assert np.ptp(control.weights(train), axis=0) == pytest.approx(0.0)
    assert np.all(control.weights(train) >= 0)
    assert control.scale == "min_max"
    # The queries need opposite weights, so the gain over the control is that of weights per query.
    assert mean(found, LEARNED) < 0.8
    gain = found.over_learned["text"]
    assert gain.mean_difference == pytest.approx(mean(found, PER_QUERY["text"]) - mean(found, LEARNED))
    assert gain.p < 1e-6
    assert not found.one_search_is_enough


def test_one_search_is_enough_if_the_others_are_noise() -> None:
    queries, rng = two_kinds(120), np.random.default_rng(3)
    grades = queries.grades
    scores = np.column_stack([grades + 0.4 * rng.standard_normal(len(grades)), rng.standard_normal(len(grades))])
    found = hybrid(queries.replace(X=scores.astype(np.float32)), plan=HybridPlan(normalization="z_score"), folds=3)
    assert found.one_search_is_enough
    assert found.best_alone.name == "bm25"
    assert found.best_alone.against == BEST


def test_tests_against_the_control_are_by_group() -> None:
    found = hybrid(two_kinds(60), plan=HybridPlan(normalization="min_max", group="topic"), folds=3)
    assert found.over_learned["candidates"].n_groups == 15


def test_nothing_is_chosen_on_test_queries() -> None:
    train, test = two_kinds(60), two_kinds(20, seed=1).replace(qid=np.arange(1000, 1020))
    upside_down = test.replace(y=1.0 - test.grades)
    one, other = (hybrid(train, each, leaks="warn") for each in (test, upside_down))
    for basis, learned in one.per_query.items():
        assert [each.choice for each in learned] == [each.choice for each in other.per_query[basis]]
    assert np.array_equal(one.best[0].weights, other.best[0].weights)
    for entrant in one.comparison.entrants:
        np.testing.assert_array_equal(entrant.scores, other.comparison[entrant.name].scores)


def test_queries_without_texts_have_weights_from_candidates_only() -> None:
    queries = two_kinds(40).replace(query_columns={})
    found = hybrid(queries, folds=2)
    assert list(found.per_query) == ["candidates"]
    with pytest.raises(DataError, match="two or more scores, got bm25"):
        hybrid(queries.replace(X=queries.X[:, :1], feature_names=("bm25",)))


@pytest.mark.parametrize("normalization", ["none", "min_max", "l2", "z_score"])
def test_ranker_gives_nonnegative_weights_for_normalized_scores(normalization: str) -> None:
    queries = two_kinds(40)
    plan = HybridPlan(normalization=normalization)
    best = plan.global_weights(queries)
    learned = plan.per_query(queries, "text")
    ranker, fusion = learned.ranker, learned.fusion
    assert fusion == plan.best_fusion(best)
    assert ranker.normalization == (None if normalization == "none" else normalization)
    weights = ranker.weights(queries)
    assert weights.min() >= 0
    by_hand = np.einsum("ij,ij->i", fusion.values(queries), weights[queries.query_of_row])
    assert_same_order(by_hand, ranker.predict(queries), queries)
    same = global_ranker(queries, best[fusion.name])
    np.testing.assert_allclose(same.weights(queries)[0], best[fusion.name].weights)
    assert_same_order(best[fusion.name].predict(queries), same.predict(queries), queries)


@pytest.mark.parametrize("nothing", [0.0, np.nan])
def test_a_search_that_returned_nothing_has_weight_0(nothing: float) -> None:
    queries = two_kinds(40, noise=True)
    empty = queries.replace(X=np.float32(queries.X * [1.0, nothing]))
    found = hybrid(empty, folds=2, plan=HybridPlan(normalization="none"))
    assert all(np.isfinite(entrant.scores).all() for entrant in found.comparison.entrants)
    weights = GlobalWeights(RAW, np.array([0.5, 0.5]), 0.0)
    same = global_ranker(empty, weights)
    np.testing.assert_array_equal(same.weights(empty)[0], [0.5, 0.0])
    assert_same_order(weights.predict(empty), same.predict(empty), empty)


def test_weights_are_predicted_before_any_search() -> None:
    queries = two_kinds(60)
    plan = HybridPlan(normalization="min_max")
    ranker = plan.per_query(queries, "text").ranker
    unknown = QuerySet.from_arrays(
        np.full((2, 2), np.nan),
        qid=["a", "b"],
        feature_names=["bm25", "vector"],
        query_columns={"text": ["part number 123", "how do I 456"]},
    )
    lexical, semantic = ranker.weights(unknown)
    assert lexical[0] > lexical[1]
    assert semantic[1] > semantic[0]


def test_encoder_is_that_of_the_given_ranker() -> None:
    plan = HybridPlan(normalization="min_max", ranker=KnnRanker(encoder=lambda texts: np.zeros((len(texts), 2))))
    found = hybrid(two_kinds(40), plan=plan, folds=2)
    assert mean(found, PER_QUERY["text"]) < 0.9  # all texts look alike


def assert_same_order(one: np.ndarray, other: np.ndarray, queries: QuerySet) -> None:
    for start, stop in zip(queries.offsets[:-1], queries.offsets[1:], strict=True):
        along = one[start:stop][np.argsort(-other[start:stop], kind="stable")]
        assert np.all(np.diff(along) <= 1e-5 * max(1.0, float(np.abs(along).max())))
