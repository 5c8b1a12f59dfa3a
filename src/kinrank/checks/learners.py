"""Checks that every learner must pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kinrank.checks.samples import linear_queries, require
from kinrank.data.queryset import QuerySet
from kinrank.learn.base import Learner, LinearLearner
from kinrank.measure import NDCG

LearnerCheck = Callable[[Callable[[], Learner]], None]


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
