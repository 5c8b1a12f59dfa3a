"""Check suites for learners and rankers. The tests run them on all that are registered.

``for check in ranker_checks(): check(MyRanker)`` runs the suite on your own ranker. A failed check raises
AssertionError with the rule that was broken.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.learn.base import Learner, LinearLearner
from kinrank.measure import NDCG
from kinrank.rankers import Ranker, load
from kinrank.rankers.capabilities import can_adapt, can_explain, has_weights

__all__ = ["learner_checks", "ranker_checks"]

LearnerCheck = Callable[[Callable[[], Learner]], None]
RankerCheck = Callable[[Callable[[], Ranker]], None]


def linear_queries(n_queries: int = 40, n_features: int = 5, seed: int = 0) -> QuerySet:
    """Return queries that one linear model can rank: grades 0 to 2 from one weight vector and a little noise."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(8, 15, n_queries)
    X = rng.standard_normal((sizes.sum(), n_features))
    signal = X @ np.linspace(1.0, -1.0, n_features) + 0.3 * rng.standard_normal(len(X))
    y = np.digitize(signal, [0.5, 1.5])
    qid = np.repeat([f"q{i}" for i in range(n_queries)], sizes)
    return QuerySet.from_arrays(X, y, qid=qid)


def require(condition: bool, message: str) -> None:
    """Raise AssertionError if a condition does not hold."""
    if not condition:
        raise AssertionError(message)


# --- learners ---------------------------------------------------------------------------------------------------------


def learner_checks() -> list[LearnerCheck]:
    """Return all checks; each takes a function that creates an unfitted learner."""
    return [
        check_learns_the_order,
        check_fit_returns_self_and_keeps_settings,
        check_state_round_trip,
        check_fit_is_deterministic,
        check_equal_query_weights_change_nothing,
        check_zero_weight_ignores_a_query,
        check_row_weights_equal_repeated_rows,
        check_query_order_does_not_matter,
        check_prior_is_the_limit_of_penalty,
    ]


def check_learns_the_order(make: Callable[[], Learner]) -> None:
    """Fit data with one linear order and rank new queries by it."""
    train, test = linear_queries(60), linear_queries(30, seed=1)
    learner = make().fit(train)
    quality = (NDCG @ 10).mean(learner.predict(test.X), test.grades, test.offsets)
    require(quality > 0.9, f"NDCG@10 is {quality:.3f} on data with a linear order")


def check_fit_returns_self_and_keeps_settings(make: Callable[[], Learner]) -> None:
    """Follow scikit-learn's conventions for `fit`."""
    learner = make()
    before = learner.get_params()
    require(learner.fit(linear_queries()) is learner, "fit must return self")
    require(learner.get_params() == before, "fit must not change settings")


def check_state_round_trip(make: Callable[[], Learner]) -> None:
    """The state is plain arrays and restores the same predictions."""
    world = linear_queries()
    learner = make().fit(world)
    state = learner.get_state()
    require(all(array.dtype != object for array in state.values()), "the state must not contain object arrays")
    restored = make().set_state(state)
    require(
        np.array_equal(restored.predict(world.X), learner.predict(world.X)), "predictions must survive a round trip"
    )


def check_fit_is_deterministic(make: Callable[[], Learner]) -> None:
    """Two fits on the same data are identical."""
    world = linear_queries()
    first, second = make().fit(world).predict(world.X), make().fit(world).predict(world.X)
    require(np.array_equal(first, second), "fitting twice on the same data must give the same model")


def check_equal_query_weights_change_nothing(make: Callable[[], Learner]) -> None:
    """Equal query weights do not change a linear model."""
    world = linear_queries()
    plain, weighted = make().fit(world), make().fit(world, query_weight=np.full(len(world), 3.0))
    if isinstance(plain, LinearLearner) and isinstance(weighted, LinearLearner):
        require(bool(np.allclose(plain.coef_, weighted.coef_, atol=1e-5)), "equal weights must not change the model")


def check_zero_weight_ignores_a_query(make: Callable[[], Learner]) -> None:
    """Queries of weight 0, which have the opposite order here, are ignored."""
    world, test = linear_queries(60), linear_queries(30, seed=1)
    opposite = world.replace(y=2.0 - world.grades, qid=np.array([f"not {qid}" for qid in world.qid]))
    both = QuerySet.concat([world, opposite])
    learner = make().fit(both, query_weight=np.repeat([1.0, 0.0], len(world)))
    quality = (NDCG @ 10).mean(learner.predict(test.X), test.grades, test.offsets)
    require(quality > 0.9, f"NDCG@10 is {quality:.3f}: queries of weight 0 must be ignored")
    world = linear_queries()
    weight = np.ones(len(world))
    weight[::2] = 0.0
    some, rest = make().fit(world, query_weight=weight), make().fit(world[1::2])
    if isinstance(some, LinearLearner) and isinstance(rest, LinearLearner):
        require(bool(np.allclose(some.coef_, rest.coef_, atol=1e-5)), "a query of weight 0 must be ignored")


def check_row_weights_equal_repeated_rows(make: Callable[[], Learner]) -> None:
    """A linear learner counts a row of weight n like n copies of it, and a row of weight 0 not at all."""
    world = linear_queries()
    times = np.random.default_rng(0).integers(0, 4, world.n_rows)
    weighted = make().fit(world.replace(sample_weight=times.astype(np.float32)))
    copied = make().fit(world.take_rows(np.repeat(np.arange(world.n_rows), times)))
    if isinstance(weighted, LinearLearner) and isinstance(copied, LinearLearner):
        require(bool(np.allclose(weighted.coef_, copied.coef_, atol=1e-4)), "row weights must count like repeated rows")


def check_query_order_does_not_matter(make: Callable[[], Learner]) -> None:
    """The order of queries does not matter to a linear learner."""
    world = linear_queries()
    forward, backward = make().fit(world), make().fit(world[::-1])
    if isinstance(forward, LinearLearner) and isinstance(backward, LinearLearner):
        require(bool(np.allclose(forward.coef_, backward.coef_, atol=1e-5)), "the order of queries must not matter")


def check_prior_is_the_limit_of_penalty(make: Callable[[], Learner]) -> None:
    """With a huge penalty, a linear learner returns its prior."""
    learner = make()
    if isinstance(learner, LinearLearner):
        prior = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
        learner.set_params(penalty=1e9).fit(linear_queries(), prior=prior)
        require(bool(np.allclose(learner.coef_, prior, atol=1e-5)), "a huge penalty must pull the weights to the prior")


# --- rankers ----------------------------------------------------------------------------------------------------------


def ranker_checks() -> list[RankerCheck]:
    """Return all checks. Each takes a function that makes an unfitted ranker."""
    return [
        check_learns_an_order,
        check_arrays_equal_query_set,
        check_row_order_does_not_matter,
        check_query_set_keeps_its_row_order,
        check_query_order_and_names_do_not_matter,
        check_group_equals_qid,
        check_one_by_one_equals_batch,
        check_weights_rank_as_predict,
        check_explain,
        check_novelty,
        check_add_and_remove,
        check_replacing_a_query_restores_the_scores,
        check_added_queries_raise_no_novelty,
        check_save_and_load,
        check_settings_survive_fit,
        check_wrong_features_raise,
        check_unjudged_queries_raise,
        check_unjudged_rows_count_as_grade_0,
    ]


def check_learns_an_order(make: Callable[[], Ranker]) -> None:
    """A ranker ranks well queries that one linear model can rank."""
    quality = make().fit(linear_queries(80)).score(linear_queries(30, seed=1))
    require(
        quality > 0.85, f"NDCG@10 is {quality:.3f} on queries that one linear model can rank; it must be above 0.85"
    )


def check_arrays_equal_query_set(make: Callable[[], Ranker]) -> None:
    """Arrays and a QuerySet give the same scores."""
    queries = linear_queries()
    by_set = make().fit(queries).predict(queries)
    by_arrays = make().fit(queries.X, queries.y, qid=_row_ids(queries)).predict(queries.X, qid=_row_ids(queries))
    require(bool(np.allclose(by_set, by_arrays, atol=1e-9)), "arrays and QuerySet must give the same scores")


def check_row_order_does_not_matter(make: Callable[[], Ranker]) -> None:
    """Rows of a query need not be adjacent, and scores come back in the caller's row order."""
    queries = linear_queries()
    ids = _row_ids(queries)
    ranker = make().fit(queries)
    shuffled = np.random.default_rng(0).permutation(queries.n_rows)
    scores = ranker.predict(queries.X, qid=ids)
    of_shuffled = ranker.predict(queries.X[shuffled], qid=ids[shuffled])
    require(bool(np.allclose(scores[shuffled], of_shuffled, atol=1e-5)), "scores must be in the caller's row order")


def check_query_set_keeps_its_row_order(make: Callable[[], Ranker]) -> None:
    """Scores of a QuerySet are in its own row order, even if it was built from shuffled rows or has vectors."""
    queries = linear_queries()
    shuffled = np.random.default_rng(0).permutation(queries.n_rows)
    sorted_again = QuerySet.from_arrays(queries.X[shuffled], queries.grades[shuffled], qid=_row_ids(queries)[shuffled])
    ranker = make().fit(queries)
    plain = ranker.predict(sorted_again)
    with_vectors = ranker.predict(sorted_again, query_vectors=np.zeros((len(queries), 2)))
    require(np.array_equal(plain, with_vectors), "unused vectors must not change the scores or their order")
    one_by_one = np.concatenate([ranker.predict(query) for query in sorted_again])
    require(bool(np.allclose(plain, one_by_one, atol=1e-5)), "scores must be in the row order of the QuerySet")


def check_query_order_and_names_do_not_matter(make: Callable[[], Ranker]) -> None:
    """A query's scores depend neither on the other queries of the call nor on its id."""
    queries = linear_queries()
    ranker = make().fit(queries)
    renamed = queries.replace(qid=np.array([f"other {i}" for i in range(len(queries))]))
    require(bool(np.allclose(ranker.predict(queries), ranker.predict(renamed), atol=1e-6)), "query ids must not matter")
    backwards = ranker.predict(queries[::-1])
    expected = ranker.predict(queries)[queries.rows_of(np.arange(len(queries))[::-1])]
    require(bool(np.allclose(expected, backwards, atol=1e-5)), "the order of queries must not matter")


def check_group_equals_qid(make: Callable[[], Ranker]) -> None:
    """group= and qid= are equivalent."""
    queries = linear_queries()
    by_group = make().fit(queries.X, queries.y, group=queries.sizes).predict(queries.X, group=queries.sizes)
    require(bool(np.allclose(make().fit(queries).predict(queries), by_group, atol=1e-9)), "group= must equal qid=")


def check_one_by_one_equals_batch(make: Callable[[], Ranker]) -> None:
    """Ranking queries one by one, as a service does, equals ranking them in a batch."""
    queries = linear_queries()
    ranker = make().fit(queries)
    one_by_one = np.concatenate([ranker.predict(query) for query in queries])
    require(bool(np.allclose(ranker.predict(queries), one_by_one, atol=1e-5)), "one query at a time must equal a batch")


def check_weights_rank_as_predict(make: Callable[[], Ranker]) -> None:
    """Weights, if the ranker has them, rank raw features as predict does, or report how close they come."""
    queries = linear_queries()
    ranker = make().fit(queries)
    scores = ranker.predict(queries)
    if not has_weights(ranker):
        return
    weights = ranker.weights(queries)
    require(weights.shape == (len(queries), queries.n_features), "there must be one weight vector per query")
    by_weights = np.einsum("ij,ij->i", queries.X, weights[queries.query_of_row])
    found = ranker.weights_with_fidelity(queries)
    require(np.array_equal(found.weights, weights), "weights_with_fidelity must return the same weights")
    require(
        found.fidelity is None or bool(found.fidelity.mean() > 0.8),
        "the mean fidelity must be above 0.8 on queries that one linear model can rank",
    )
    for query in range(len(queries)):
        rows = slice(queries.offsets[query], queries.offsets[query + 1])
        if found.fidelity is None:
            gap = (by_weights[rows] - by_weights[rows].mean()) - (scores[rows] - scores[rows].mean())
            require(bool(np.abs(gap).max() < 1e-4), "X @ weights must equal the scores up to a constant per query")
        else:
            tau = kendalltau(by_weights[rows], scores[rows]).statistic
            require(abs(tau - found.fidelity[query]) < 0.01, "fidelity must be Kendall's tau between both rankings")


def check_explain(make: Callable[[], Ranker]) -> None:
    """A ranker that explains returns one printable explanation per query."""
    queries = linear_queries()
    ranker = make().fit(queries)
    if not can_explain(ranker):
        return
    explained = ranker.explain(queries[:3])
    require(
        [each.qid for each in explained] == queries.qid[:3].tolist(),
        "there must be one explanation per query, in order",
    )
    require(all(str(each) for each in explained), "explanations must be printable")


def check_novelty(make: Callable[[], Ranker]) -> None:
    """A ranker returns novelty if and only if it declares it: one number per query."""
    queries = linear_queries()
    ranker = make().fit(queries)
    novelty = ranker.predict_with_novelty(queries).novelty
    require(
        (novelty is not None) == ranker.capabilities.novelty, "novelty must be returned if and only if it is declared"
    )
    require(novelty is None or novelty.shape == (len(queries),), "there must be one novelty per query")


def check_add_and_remove(make: Callable[[], Ranker]) -> None:
    """A ranker that takes new judgments lists them in `qid_`, and removing them restores its scores."""
    queries, more = linear_queries(), linear_queries(4, seed=1)
    more = more.replace(qid=np.array([f"new {i}" for i in range(len(more))]))
    ranker = make().fit(queries.replace(qid=queries.qid.astype(np.str_)))
    before = ranker.predict(queries)
    if can_adapt(ranker):
        ranker.add(more)
        require(bool(np.isin(more.qid, ranker.qid_).all()), "added queries must be in qid_")
        ranker.remove(more.qid)
    require(
        bool(np.allclose(before, ranker.predict(queries), atol=1e-6)), "removing added queries must restore the scores"
    )


def check_replacing_a_query_restores_the_scores(make: Callable[[], Ranker]) -> None:
    """A ranker that replaces judgments forgets a training query and learns it again, as a service does."""
    queries = linear_queries()
    ranker = make().fit(queries)
    before = ranker.predict(queries)
    if can_adapt(ranker):
        ranker.remove(queries.qid[:2]).add(queries[:2])
        require(ranker.n_judged_ == len(queries), "a query that is replaced must count once")
    require(
        bool(np.allclose(before, ranker.predict(queries), atol=1e-6)),
        "replacing a query by itself must restore the scores",
    )


def check_added_queries_raise_no_novelty(make: Callable[[], Ranker]) -> None:
    """New judgments, even copies of known queries, never make another query more novel."""
    queries, other = linear_queries(), linear_queries(20, seed=2)
    copies = queries.replace(qid=np.array([f"copy {i}" for i in range(len(queries))]))
    ranker = make().fit(queries.replace(qid=queries.qid.astype(np.str_)))
    before = ranker.predict_with_novelty(other).novelty
    adapted = ranker
    if can_adapt(ranker):
        ranker.add(copies)
    after = adapted.predict_with_novelty(other).novelty
    if before is not None and after is not None:
        require(bool((after <= before).all()), "added judgments must not raise the novelty of other queries")


def check_save_and_load(make: Callable[[], Ranker]) -> None:
    """A loaded ranker has the settings and scores of the saved one."""
    queries = linear_queries()
    ranker = make().fit(queries)
    with tempfile.TemporaryDirectory() as parent:
        ranker.save(Path(parent) / "model")
        twin = load(Path(parent) / "model")
        require(type(twin) is type(ranker), "a loaded ranker must have the same class")
        require(repr(twin) == repr(ranker), "a loaded ranker must have the same settings")
        require(
            np.array_equal(twin.predict(queries), ranker.predict(queries)), "a loaded ranker must give the same scores"
        )


def check_settings_survive_fit(make: Callable[[], Ranker]) -> None:
    """Fitting returns self and does not change the settings, as in scikit-learn."""
    ranker = make()
    before = repr(ranker.get_params())
    require(ranker.fit(linear_queries()) is ranker, "fit must return self")
    require(repr(ranker.get_params()) == before, "fit must not change settings")


def check_wrong_features_raise(make: Callable[[], Ranker]) -> None:
    """Fewer or other features raise an error."""
    ranker = make().fit(linear_queries(n_features=5))
    try:
        ranker.predict(linear_queries(n_features=4))
    except DataError:
        return
    raise AssertionError("a ranker fitted on 5 features must raise DataError for 4")


def check_unjudged_rows_count_as_grade_0(make: Callable[[], Ranker]) -> None:
    """Candidates without a grade are learned from as candidates of grade 0."""
    queries = linear_queries()
    unjudged = queries.replace(y=np.where(queries.grades == 0, np.nan, queries.grades))
    same = np.array_equal(make().fit(queries).predict(queries), make().fit(unjudged).predict(unjudged))
    require(same, "candidates without a grade must count as candidates of grade 0")


def check_unjudged_queries_raise(make: Callable[[], Ranker]) -> None:
    """Queries without grades raise an error."""
    try:
        make().fit(linear_queries().replace(y=None))
    except DataError:
        return
    raise AssertionError("fit must raise DataError for queries without grades")


def _row_ids(queries: QuerySet) -> np.ndarray:
    return queries.qid[queries.query_of_row]
