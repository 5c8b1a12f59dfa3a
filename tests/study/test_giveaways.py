"""Features that hold the grade."""

from __future__ import annotations

import numpy as np
import pytest

from kinrank import QuerySet
from kinrank.datasets import make_intents
from kinrank.study._leaks import find_giveaway


@pytest.fixture(scope="module")
def world() -> QuerySet:
    return make_intents(40, 0, n_docs=10, n_features=6)


def with_feature(queries: QuerySet, values: np.ndarray) -> QuerySet:
    return queries.replace(
        X=np.column_stack([queries.X, values]).astype(np.float32), feature_names=(*queries.feature_names, "extra")
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_a_copy_of_the_grade_is_found_in_either_direction(world: QuerySet, sign: int) -> None:
    found = find_giveaway(with_feature(world, sign * 3.0 * world.grades + 1.0))
    assert found is not None
    assert found.feature == "extra"
    assert found.quality > 0.99 > found.by_chance


def test_honest_features_are_not_suspected(world: QuerySet) -> None:
    assert find_giveaway(world) is None
    noisy = world.grades + np.random.default_rng(0).normal(size=world.n_rows)
    assert find_giveaway(with_feature(world, noisy)) is None


def test_too_few_telling_queries_give_no_verdict(world: QuerySet) -> None:
    assert find_giveaway(with_feature(world, world.grades)[:5]) is None
    one_grade = world.replace(y=np.ones(world.n_rows, np.float32))
    assert find_giveaway(one_grade) is None
