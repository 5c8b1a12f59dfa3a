"""The contract of a ranker as checks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from kinrank.checks.samples import linear_queries, require
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.rankers import Ranker, load
from kinrank.rankers.capabilities import can_adapt, can_explain, has_weights

RankerCheck = Callable[[Callable[[], Ranker]], None]


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
        check_explanations,
        check_novelty,
        check_added_queries_are_learned,
        check_save_and_load,
        check_settings_survive_fit,
        check_wrong_features_are_refused,
        check_unjudged_queries_are_refused,
    ]


def check_learns_an_order(make: Callable[[], Ranker]) -> None:
    """A ranker ranks well on a world that a linear model explains."""
    quality = make().fit(linear_queries(80)).score(linear_queries(30, seed=1))
    require(quality > 0.85, f"NDCG@10 is {quality:.3f} on a world that a linear model explains")


def check_arrays_equal_query_set(make: Callable[[], Ranker]) -> None:
    """Arrays and a QuerySet give the same scores."""
    world = linear_queries()
    by_set = make().fit(world).predict(world)
    by_arrays = make().fit(world.X, world.y, qid=_row_ids(world)).predict(world.X, qid=_row_ids(world))
    require(bool(np.allclose(by_set, by_arrays, atol=1e-9)), "arrays and QuerySet must give the same scores")


def check_row_order_does_not_matter(make: Callable[[], Ranker]) -> None:
    """Rows of a query need not be adjacent, and scores come back in the caller's row order."""
    world = linear_queries()
    ids = _row_ids(world)
    ranker = make().fit(world)
    shuffled = np.random.default_rng(0).permutation(world.n_rows)
    there = ranker.predict(world.X, qid=ids)
    back = ranker.predict(world.X[shuffled], qid=ids[shuffled])
    require(bool(np.allclose(there[shuffled], back, atol=1e-5)), "scores must follow their rows")


def check_query_set_keeps_its_row_order(make: Callable[[], Ranker]) -> None:
    """Scores of a QuerySet are in its own row order, even if it was built from shuffled rows or has vectors."""
    world = linear_queries()
    shuffled = np.random.default_rng(0).permutation(world.n_rows)
    sorted_again = QuerySet.from_arrays(world.X[shuffled], world.grades[shuffled], qid=_row_ids(world)[shuffled])
    ranker = make().fit(world)
    plain = ranker.predict(sorted_again)
    with_vectors = ranker.predict(sorted_again, query_vectors=np.zeros((len(world), 2)))
    require(np.array_equal(plain, with_vectors), "vectors that are not used must not change the scores or their order")
    one_by_one = np.concatenate([ranker.predict(query) for query in sorted_again])
    require(bool(np.allclose(plain, one_by_one, atol=1e-5)), "scores must be in the row order of the QuerySet")


def check_query_order_and_names_do_not_matter(make: Callable[[], Ranker]) -> None:
    """A query's scores depend neither on the other queries of the call nor on its id."""
    world = linear_queries()
    ranker = make().fit(world)
    renamed = world.replace(qid=np.array([f"other {i}" for i in range(len(world))]))
    require(bool(np.allclose(ranker.predict(world), ranker.predict(renamed), atol=1e-6)), "names must not matter")
    backwards = ranker.predict(world[::-1])
    expected = ranker.predict(world)[world.rows_of(np.arange(len(world))[::-1])]
    require(bool(np.allclose(expected, backwards, atol=1e-5)), "the order of queries must not matter")


def check_group_equals_qid(make: Callable[[], Ranker]) -> None:
    """group= and qid= are equivalent."""
    world = linear_queries()
    by_group = make().fit(world.X, world.y, group=world.sizes).predict(world.X, group=world.sizes)
    require(bool(np.allclose(make().fit(world).predict(world), by_group, atol=1e-9)), "group= must equal qid=")


def check_one_by_one_equals_batch(make: Callable[[], Ranker]) -> None:
    """Ranking queries one by one, as a service does, equals ranking them in a batch."""
    world = linear_queries()
    ranker = make().fit(world)
    one_by_one = np.concatenate([ranker.predict(query) for query in world])
    require(bool(np.allclose(ranker.predict(world), one_by_one, atol=1e-5)), "one query at a time must equal a batch")


def check_weights_rank_as_predict(make: Callable[[], Ranker]) -> None:
    """Weights, if the ranker has them, rank raw features as predict does."""
    world = linear_queries()
    ranker = make().fit(world)
    scores = ranker.predict(world)
    if not has_weights(ranker):
        return
    weights = ranker.weights(world)
    require(weights.shape == (len(world), world.n_features), "one weight vector per query")
    by_weights = np.einsum("ij,ij->i", world.X, weights[world.query_of_row])
    for query in range(len(world)):
        rows = slice(world.offsets[query], world.offsets[query + 1])
        gap = (by_weights[rows] - by_weights[rows].mean()) - (scores[rows] - scores[rows].mean())
        require(bool(np.abs(gap).max() < 1e-4), "X @ weights must equal the scores up to a constant per query")


def check_explanations(make: Callable[[], Ranker]) -> None:
    """A ranker that explains has one explanation per query, which can be printed."""
    world = linear_queries()
    ranker = make().fit(world)
    if not can_explain(ranker):
        return
    explained = ranker.explain(world[:3])
    require([each.qid for each in explained] == world.qid[:3].tolist(), "one explanation per query, in order")
    require(all(str(each) for each in explained), "an explanation can be printed")


def check_novelty(make: Callable[[], Ranker]) -> None:
    """Novelty is there exactly if declared, one number per query."""
    world = linear_queries()
    ranker = make().fit(world)
    novelty = ranker.predict_with_novelty(world).novelty
    require((novelty is not None) == ranker.capabilities.novelty, "novelty must be declared if it is there")
    require(novelty is None or novelty.shape == (len(world),), "one novelty per query")


def check_added_queries_are_learned(make: Callable[[], Ranker]) -> None:
    """A ranker that takes new judgments knows them afterwards, and removing them restores its scores."""
    world, more = linear_queries(), linear_queries(4, seed=1)
    more = more.replace(qid=np.array([f"new {i}" for i in range(len(more))]))
    ranker = make().fit(world.replace(qid=world.qid.astype(np.str_)))
    before = ranker.predict(world)
    if can_adapt(ranker):
        ranker.add(more)
        require(bool(np.isin(more.qid, ranker.qid_).all()), "added queries must be among the judged ones")
        ranker.remove(more.qid)
    require(bool(np.allclose(before, ranker.predict(world), atol=1e-6)), "removing what was added restores the scores")


def check_save_and_load(make: Callable[[], Ranker]) -> None:
    """A loaded ranker has the settings and scores of the saved one."""
    world = linear_queries()
    ranker = make().fit(world)
    with tempfile.TemporaryDirectory() as parent:
        ranker.save(Path(parent) / "model")
        twin = load(Path(parent) / "model")
        require(type(twin) is type(ranker), "a loaded ranker is of the same class")
        require(repr(twin) == repr(ranker), "a loaded ranker has the same settings")
        require(np.array_equal(twin.predict(world), ranker.predict(world)), "a loaded ranker gives the same scores")


def check_settings_survive_fit(make: Callable[[], Ranker]) -> None:
    """Fitting returns self and leaves the settings alone, as in scikit-learn."""
    ranker = make()
    before = repr(ranker.get_params())
    require(ranker.fit(linear_queries()) is ranker, "fit must return self")
    require(repr(ranker.get_params()) == before, "fit must not change settings")


def check_wrong_features_are_refused(make: Callable[[], Ranker]) -> None:
    """Fewer or other features raise an error."""
    ranker = make().fit(linear_queries(n_features=5))
    try:
        ranker.predict(linear_queries(n_features=4))
    except DataError:
        return
    raise AssertionError("a ranker fitted on 5 features must refuse 4")


def check_unjudged_queries_are_refused(make: Callable[[], Ranker]) -> None:
    """Queries without grades raise an error."""
    try:
        make().fit(linear_queries().replace(y=None))
    except DataError:
        return
    raise AssertionError("fit must refuse queries without grades")


def _row_ids(queries: QuerySet) -> np.ndarray:
    return queries.qid[queries.query_of_row]
