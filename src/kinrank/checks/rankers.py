"""What every ranker promises."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from kinrank.checks.worlds import plain_world, promise
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError
from kinrank.rankers import Ranker, load

RankerCheck = Callable[[Callable[[], Ranker]], None]


def ranker_checks() -> list[RankerCheck]:
    """All checks; each takes a function that makes an unfitted ranker."""
    return [
        check_learns_an_order,
        check_arrays_equal_query_set,
        check_row_order_does_not_matter,
        check_query_set_keeps_its_row_order,
        check_query_order_and_names_do_not_matter,
        check_group_equals_qid,
        check_one_by_one_equals_batch,
        check_weights_rank_as_predict,
        check_save_and_load,
        check_settings_survive_fit,
        check_wrong_features_are_refused,
        check_unjudged_queries_are_refused,
    ]


def check_learns_an_order(make: Callable[[], Ranker]) -> None:
    """It is no fool: on a world that one line explains, it ranks well."""
    quality = make().fit(plain_world(80)).score(plain_world(30, seed=1))
    promise(quality > 0.85, f"NDCG@10 is {quality:.3f} on a world that a line explains")


def check_arrays_equal_query_set(make: Callable[[], Ranker]) -> None:
    """Arrays and a QuerySet are two ways to say the same."""
    world = plain_world()
    by_set = make().fit(world).predict(world)
    by_arrays = make().fit(world.X, world.y, qid=_row_ids(world)).predict(world.X, qid=_row_ids(world))
    promise(bool(np.allclose(by_set, by_arrays, atol=1e-9)), "arrays and QuerySet must give the same scores")


def check_row_order_does_not_matter(make: Callable[[], Ranker]) -> None:
    """Rows of a query need not lie together, and scores come back in the caller's row order."""
    world = plain_world()
    ids = _row_ids(world)
    ranker = make().fit(world)
    shuffled = np.random.default_rng(0).permutation(world.n_rows)
    there = ranker.predict(world.X, qid=ids)
    back = ranker.predict(world.X[shuffled], qid=ids[shuffled])
    promise(bool(np.allclose(there[shuffled], back, atol=1e-5)), "scores must follow their rows")


def check_query_set_keeps_its_row_order(make: Callable[[], Ranker]) -> None:
    """Scores of a QuerySet come in its own row order, also where it was built from shuffled rows or given vectors."""
    world = plain_world()
    shuffled = np.random.default_rng(0).permutation(world.n_rows)
    sorted_again = QuerySet.from_arrays(world.X[shuffled], world.grades[shuffled], qid=_row_ids(world)[shuffled])
    ranker = make().fit(world)
    plain = ranker.predict(sorted_again)
    with_vectors = ranker.predict(sorted_again, query_vectors=np.zeros((len(world), 2)))
    promise(np.array_equal(plain, with_vectors), "vectors that are not used must not change the scores or their order")
    one_by_one = np.concatenate([ranker.predict(query) for query in sorted_again])
    promise(bool(np.allclose(plain, one_by_one, atol=1e-5)), "scores must be in the row order of the QuerySet")


def check_query_order_and_names_do_not_matter(make: Callable[[], Ranker]) -> None:
    """A query's scores depend neither on its neighbors in the call nor on its name."""
    world = plain_world()
    ranker = make().fit(world)
    renamed = world.replace(qid=np.array([f"other {i}" for i in range(len(world))]))
    promise(bool(np.allclose(ranker.predict(world), ranker.predict(renamed), atol=1e-6)), "names must not matter")
    backwards = ranker.predict(world[::-1])
    expected = ranker.predict(world)[world.rows_of(np.arange(len(world))[::-1])]
    promise(bool(np.allclose(expected, backwards, atol=1e-5)), "the order of queries must not matter")


def check_group_equals_qid(make: Callable[[], Ranker]) -> None:
    """Counts of rows are another way to say which rows belong together."""
    world = plain_world()
    by_group = make().fit(world.X, world.y, group=world.sizes).predict(world.X, group=world.sizes)
    promise(bool(np.allclose(make().fit(world).predict(world), by_group, atol=1e-9)), "group= must equal qid=")


def check_one_by_one_equals_batch(make: Callable[[], Ranker]) -> None:
    """What the service does equals what the study measured."""
    world = plain_world()
    ranker = make().fit(world)
    one_by_one = np.concatenate([ranker.predict(query) for query in world])
    promise(bool(np.allclose(ranker.predict(world), one_by_one, atol=1e-5)), "one query at a time must equal a batch")


def check_weights_rank_as_predict(make: Callable[[], Ranker]) -> None:
    """Where there are weights, they rank raw features as predict does."""
    world = plain_world()
    ranker = make().fit(world)
    try:
        weights = ranker.weights(world)
    except ParameterError:
        return
    promise(weights.shape == (len(world), world.n_features), "one weight vector per query")
    by_weights = np.einsum("ij,ij->i", world.X, weights[world.query_of_row])
    scores = ranker.predict(world)
    for query in range(len(world)):
        rows = slice(world.offsets[query], world.offsets[query + 1])
        gap = (by_weights[rows] - by_weights[rows].mean()) - (scores[rows] - scores[rows].mean())
        promise(bool(np.abs(gap).max() < 1e-4), "X @ weights must equal the scores up to a constant per query")


def check_save_and_load(make: Callable[[], Ranker]) -> None:
    """A saved ranker comes back with its settings and scores."""
    world = plain_world()
    ranker = make().fit(world)
    with tempfile.TemporaryDirectory() as parent:
        ranker.save(Path(parent) / "model")
        twin = load(Path(parent) / "model")
        promise(type(twin) is type(ranker), "a loaded ranker is of the same class")
        promise(repr(twin) == repr(ranker), "a loaded ranker has the same settings")
        promise(np.array_equal(twin.predict(world), ranker.predict(world)), "a loaded ranker gives the same scores")


def check_settings_survive_fit(make: Callable[[], Ranker]) -> None:
    """As scikit-learn's conventions have it."""
    ranker = make()
    before = repr(ranker.get_params())
    promise(ranker.fit(plain_world()) is ranker, "fit must return self")
    promise(repr(ranker.get_params()) == before, "fit must not change settings")


def check_wrong_features_are_refused(make: Callable[[], Ranker]) -> None:
    """Fewer features, or other ones, are an error and not a guess."""
    ranker = make().fit(plain_world(n_features=5))
    try:
        ranker.predict(plain_world(n_features=4))
    except DataError:
        return
    raise AssertionError("a ranker fitted on 5 features must refuse 4")


def check_unjudged_queries_are_refused(make: Callable[[], Ranker]) -> None:
    """There is nothing to learn from queries without grades."""
    try:
        make().fit(plain_world().replace(y=None))
    except DataError:
        return
    raise AssertionError("fit must refuse queries without grades")


def _row_ids(queries: QuerySet) -> np.ndarray:
    return queries.qid[queries.query_of_row]
