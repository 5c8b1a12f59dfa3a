"""Sign constraints on weights, in every ranker that uses RankRLS."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from kinrank import ClusterRanker, KnnRanker, QueryClassRanker, QuerySet, SingleRanker, choose_neighbors, load
from kinrank.checks import LearnerCheck, check_prior_is_the_limit_of_penalty, learner_checks, linear_queries
from kinrank.datasets import make_intents
from kinrank.errors import DataError, ParameterError
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.statistics import PairStatistics
from reproduction.knn import uniform_knn

NONNEGATIVE = RankRLS(nonnegative=True)


@pytest.fixture(scope="module")
def intents() -> QuerySet:
    """Return queries of three intents that need different signs of the same features."""
    return make_intents(n_train=200, n_test=20, n_docs=10, n_features=6, seed=0)


@pytest.mark.parametrize(
    # The prior of that check is positive, which these signs do not allow.
    "check",
    [check for check in learner_checks() if check is not check_prior_is_the_limit_of_penalty],
    ids=lambda check: check.__name__,
)
def test_signed_learner_passes_check(check: LearnerCheck) -> None:
    check(partial(RankRLS, nonnegative=True, lower_is_better=["f4", "f5"]))


@pytest.mark.parametrize(
    "ranker",
    [
        SingleRanker(NONNEGATIVE),
        KnnRanker(20, learner=NONNEGATIVE),
        KnnRanker(20, learner=NONNEGATIVE, prior="global", prior_strength=0.1),
        KnnRanker(20, learner=NONNEGATIVE, mode="offline-2"),
        QueryClassRanker(n_types=3, learner=NONNEGATIVE),
        ClusterRanker(learner=NONNEGATIVE, n_clusters=3),
    ],
    ids=repr,
)
def test_every_linear_ranker_respects_signs(ranker, intents: QuerySet) -> None:
    free = type(ranker)(**(ranker.get_params(deep=False) | {"learner": "rankrls"})).fit(intents)
    weights = ranker.fit(intents).weights(intents)
    assert free.weights(intents).min() < 0, "the data need no sign constraint"
    assert weights.min() == 0.0
    assert weights.max() > 0.0
    scores = np.concatenate([query.X @ w for query, w in zip(intents, weights, strict=True)])
    ours = ranker.predict(intents)
    for start, stop in zip(intents.offsets[:-1], intents.offsets[1:], strict=True):
        np.testing.assert_allclose(
            ours[start:stop] - ours[start], scores[start:stop] - scores[start], atol=1e-4 * np.abs(scores).max()
        )


def test_lower_is_better_is_like_negating_the_feature(intents: QuerySet) -> None:
    name = intents.feature_names[2]
    signed = RankRLS(nonnegative=True, lower_is_better=[name]).fit(intents).coef_
    flip = np.where(np.arange(6) == 2, -1.0, 1.0)
    flipped = RankRLS(nonnegative=True).fit(intents.replace(X=(intents.X * flip).astype(np.float32))).coef_
    np.testing.assert_allclose(signed, flipped * flip, atol=1e-12)
    alone = RankRLS(lower_is_better=[name])
    assert alone.signs(intents.feature_names).tolist() == [0, 0, -1, 0, 0, 0]
    assert RankRLS().signs(intents.feature_names) is None


def test_unknown_features_and_bad_signs_raise() -> None:
    with pytest.raises(ParameterError, match="lower_is_better names the unknown feature 'price': choose from f1, f2"):
        SingleRanker(RankRLS(lower_is_better=["price"])).fit([[0.0, 1.0], [1.0, 0.0]], [0, 1], group=[2])
    with pytest.raises(ParameterError, match=r"a list of feature names, got 'price': write \['price'\]"):
        RankRLS(lower_is_better="price").fit(linear_queries())
    with pytest.raises(DataError, match=r"signs must be one number per feature \(5\), got shape \(2,\)"):
        PairStatistics.from_queries(linear_queries()).solve(0.1, None, np.zeros(2, dtype=np.int8))


def test_all_neighbors_give_the_global_weights_for_any_prior_strength(intents: QuerySet) -> None:
    single = SingleRanker(NONNEGATIVE).fit(intents).weights(intents)
    everyone = uniform_knn(len(intents), learner=NONNEGATIVE, prior="global", prior_strength=3.0).fit(intents)
    np.testing.assert_allclose(everyone.weights(intents), single, atol=1e-9)


def test_choosing_k_respects_signs(intents: QuerySet) -> None:
    learner = RankRLS(nonnegative=True)
    ranker = KnnRanker(40, learner=learner, prior="none").fit(intents[:200])
    choice = choose_neighbors(ranker, intents[200:], [40], prior_strengths=[None, 0.1])
    assert choice.quality[40, None] == pytest.approx(ranker.score(intents[200:]), abs=1e-12)


def test_signs_are_saved(intents: QuerySet, tmp_path: Path) -> None:
    learner = RankRLS(nonnegative=True, lower_is_better=[intents.feature_names[0]])
    ranker = KnnRanker(20, learner=learner).fit(intents)
    ranker.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").weights(intents), ranker.weights(intents))


def test_without_pairs_weights_are_the_prior_clipped_to_the_signs() -> None:
    queries = QuerySet.from_arrays([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]], y=[1, 1], group=[2])
    signs = np.array([1, -1, 0], dtype=np.int8)
    assert PairStatistics.from_queries(queries).solve(0.1, [-0.7, -0.7, -0.7], signs).tolist() == [[0.0, -0.7, -0.7]]


def test_inactive_constraints_change_nothing() -> None:
    world = linear_queries()
    free = RankRLS().fit(world).coef_
    signs = np.sign(free).astype(np.int8)
    np.testing.assert_allclose(PairStatistics.from_queries(world).sum().solve(0.01, None, signs)[0], free, atol=1e-9)
