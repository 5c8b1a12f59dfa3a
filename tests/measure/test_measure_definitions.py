"""Every measure with every convention equals its definition in `slow_measures`."""

from __future__ import annotations

from typing import get_args

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kinrank.measure import AP, DCG, ERR, MEAN_NDCG_GENG, MEAN_NDCG_LETOR, NDCG, RR, MeanNDCG, Measure, P
from kinrank.measure.base import Ties
from tests.measure.lists_strategy import Lists, judged_lists
from tests.measure.slow_measures import slow_value

CUTOFFS = st.one_of(st.none(), st.integers(1, 8))
EVERYWHERE = {"k": CUTOFFS, "no_relevant": st.sampled_from([0, 1, "skip"])}
TIES = {"ties": st.sampled_from(get_args(Ties))}
DISCOUNTED = {
    "gain": st.sampled_from(["exp2", "linear"]),
    "discount": st.sampled_from(["standard", "letor", "geng"]),
    "short_lists": st.sampled_from(["as_is", "zero"]),
}

discounted_measures = st.builds(
    lambda base, conventions: base(**conventions),
    st.sampled_from([DCG, NDCG, MeanNDCG]),
    st.fixed_dictionaries(EVERYWHERE | TIES | DISCOUNTED),
)
binary_measures = st.builds(
    lambda base, conventions: base(**conventions),
    st.sampled_from([P, AP, RR]),
    st.fixed_dictionaries(EVERYWHERE | TIES | {"relevant_from": st.sampled_from([1, 2, 3.5])}),
)
cascade_measures = st.builds(
    lambda conventions: ERR(**conventions),
    st.fixed_dictionaries(
        EVERYWHERE
        | {"max_grade": st.integers(4, 6), "ties": st.sampled_from([t for t in get_args(Ties) if t != "average"])}
    ),
)


def check(measure: Measure, lists: Lists) -> None:
    expected = [slow_value(measure, *lists.one(query)) for query in range(len(lists))]
    np.testing.assert_allclose(measure.per_query(*lists.arguments()), expected, rtol=0, atol=1e-12)


@given(discounted_measures, judged_lists(max_size=5))
def test_discounted_gain_equals_its_definition(measure: Measure, lists: Lists) -> None:
    check(measure, lists)


@given(binary_measures, judged_lists(max_size=5))
def test_binary_measures_equal_their_definition(measure: Measure, lists: Lists) -> None:
    check(measure, lists)


@given(cascade_measures, judged_lists(max_size=8))
def test_expected_reciprocal_rank_equals_its_definition(measure: Measure, lists: Lists) -> None:
    check(measure, lists)


@settings(deadline=None)
@given(judged_lists(max_size=14), st.sampled_from([MEAN_NDCG_LETOR, MEAN_NDCG_GENG]))
def test_mean_ndcg_of_letor_and_of_geng(lists: Lists, measure: Measure) -> None:
    check(measure, lists)


def test_letor_discount_by_hand() -> None:
    # grades 0, 1, 2, 0 in ranked order: DCG = 0 + 1 + 3/log2(3); the best order is 2, 1: 3 + 1
    value = (NDCG(discount="letor") @ 3).per_query([4.0, 3.0, 2.0, 1.0], [0, 1, 2, 0], [0, 4])
    np.testing.assert_allclose(value, [(1 + 3 / np.log2(3)) / 4], rtol=1e-15)


def test_letor_ndcg_of_short_lists_is_0_but_their_mean_ndcg_is_not() -> None:
    from kinrank.measure import LETOR_NDCG

    perfect = ([2.0, 1.0], [1, 0], [0, 2])
    assert (LETOR_NDCG @ 2).mean(*perfect) == 1
    assert (LETOR_NDCG @ 3).mean(*perfect) == 0
    assert MEAN_NDCG_LETOR.mean(*perfect) == 1
    assert (NDCG @ 3).mean(*perfect) == 1
