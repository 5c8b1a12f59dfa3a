"""Invariants of every registered measure."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinrank.errors import ParameterError
from kinrank.measure import AP, MEAN_NDCG_GENG, MEAN_NDCG_LETOR, MEASURES, NDCG, RR, MeanNDCG, Measure
from tests.measure.lists_strategy import Lists, judged_lists

REGISTERED: list[Measure] = [MEASURES[name] for name in MEASURES]
ALL = list(dict.fromkeys([*REGISTERED, *(measure @ 3 for measure in REGISTERED)]))
every_measure = st.sampled_from(ALL)
every_rule = st.sampled_from(["order", "pessimistic", "optimistic", "average", "doc_id"])


def with_ties(measure: Measure, ties: str) -> Measure:
    try:
        return measure(ties=ties)
    except ParameterError:
        assert ties == "average", "only the expectation over ties may be unsupported"
        return measure


@settings(deadline=None)
@given(judged_lists(), every_measure, every_rule, st.randoms(use_true_random=False))
def test_order_of_queries_does_not_matter(lists: Lists, measure: Measure, ties: str, random) -> None:
    measure = with_ties(measure, ties)
    queries = list(range(len(lists)))
    random.shuffle(queries)
    rows = np.concatenate([np.arange(lists.offsets[q], lists.offsets[q + 1]) for q in queries])
    offsets = np.cumsum([0, *np.diff(lists.offsets)[queries]])
    moved = measure.per_query(lists.scores[rows], lists.y[rows], offsets, lists.doc_id[rows])
    np.testing.assert_allclose(moved, measure.per_query(*lists.arguments())[queries], rtol=1e-14)


@settings(deadline=None)
@given(judged_lists(), every_measure, every_rule, st.data())
def test_rows_of_weight_0_are_as_if_they_were_not_there(lists: Lists, measure: Measure, ties: str, data) -> None:
    measure = with_ties(measure, ties)
    n = len(lists.y)
    known = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    query = np.repeat(np.arange(len(lists)), np.diff(lists.offsets))
    offsets = np.cumsum([0, *np.bincount(query[known], minlength=len(lists))])
    expected = measure.per_query(lists.scores[known], lists.y[known], offsets, lists.doc_id[known])
    weight = np.where(known, data.draw(st.floats(0.1, 9)), 0)
    np.testing.assert_array_equal(measure.per_query(*lists.arguments(), weight), expected)


@settings(deadline=None)
@given(judged_lists(), every_measure, st.data())
def test_a_query_of_weight_n_counts_like_n_queries(lists: Lists, measure: Measure, data) -> None:
    times = np.array(data.draw(st.lists(st.integers(1, 3), min_size=len(lists), max_size=len(lists))))
    queries = np.repeat(np.arange(len(lists)), times)
    rows = np.concatenate([np.arange(lists.offsets[q], lists.offsets[q + 1]) for q in queries])
    sizes = np.diff(lists.offsets)
    repeated = measure.mean(lists.scores[rows], lists.y[rows], np.cumsum([0, *sizes[queries]]), lists.doc_id[rows])
    weighted = measure.mean(*lists.arguments(), sample_weight=np.repeat(times, sizes))
    assert weighted == pytest.approx(repeated, rel=1e-12)


@settings(deadline=None)
@given(judged_lists(), every_measure, every_rule)
def test_only_the_order_of_scores_matters(lists: Lists, measure: Measure, ties: str) -> None:
    measure = with_ties(measure, ties)
    expected = measure.per_query(*lists.arguments())
    moved = measure.per_query(np.exp(3 * lists.scores) - 7, lists.y, lists.offsets, lists.doc_id)
    np.testing.assert_array_equal(moved, expected)


@settings(deadline=None)
@given(judged_lists(), every_measure, st.sampled_from(["pessimistic", "optimistic", "average", "doc_id"]), st.data())
def test_order_of_rows_does_not_matter_if_ties_have_a_rule(lists: Lists, measure: Measure, ties: str, data) -> None:
    measure = with_ties(measure, ties)
    if measure.ties == "order":
        measure = measure(ties="pessimistic")
    rows = np.concatenate([data.draw(st.permutations(range(a, b))) for a, b in zip(*_bounds(lists), strict=True)])
    moved = measure.per_query(lists.scores[rows], lists.y[rows], lists.offsets, lists.doc_id[rows])
    np.testing.assert_allclose(moved, measure.per_query(*lists.arguments()), rtol=1e-12)


@settings(deadline=None)
@given(judged_lists())
def test_perfect_ranking_scores_1(lists: Lists) -> None:
    for measure in (NDCG, NDCG @ 3, MeanNDCG, MEAN_NDCG_LETOR, MEAN_NDCG_GENG, AP, RR):
        perfect = measure(no_relevant=1).per_query(lists.y, lists.y, lists.offsets)
        np.testing.assert_allclose(perfect, 1, rtol=1e-14)


@settings(deadline=None)
@given(judged_lists(), st.sampled_from([m for m in ALL if m.name != "DCG"]))
def test_values_are_from_0_to_1_and_between_the_bounds_for_ties(lists: Lists, measure: Measure) -> None:
    low, high = (measure(ties=t).per_query(*lists.arguments()) for t in ("pessimistic", "optimistic"))
    assert np.all(low >= 0)
    assert np.all(high <= 1 + 1e-12)
    for ties in ("order", "doc_id", "average"):
        value = with_ties(measure, ties).per_query(*lists.arguments())
        assert np.all((low <= value + 1e-12) & (value <= high + 1e-12))


@settings(deadline=None)
@given(judged_lists(tied=False), every_measure, every_rule)
def test_rule_for_ties_does_not_matter_without_ties(lists: Lists, measure: Measure, ties: str) -> None:
    expected = measure.per_query(*lists.arguments())
    np.testing.assert_allclose(with_ties(measure, ties).per_query(*lists.arguments()), expected, rtol=1e-12)


@settings(deadline=None)
@given(judged_lists(), every_measure)
def test_skipped_queries_are_excluded_from_the_mean(lists: Lists, measure: Measure) -> None:
    skipping = measure(no_relevant="skip").per_query(*lists.arguments())
    without_relevant = np.array([not any(lists.one(q)[1]) for q in range(len(lists))])
    np.testing.assert_array_equal(np.isnan(skipping), without_relevant)
    np.testing.assert_array_equal(skipping[~without_relevant], measure.per_query(*lists.arguments())[~without_relevant])
    mean = measure(no_relevant="skip").mean(*lists.arguments())
    if without_relevant.all():
        assert np.isnan(mean)
    else:
        assert mean == pytest.approx(skipping[~without_relevant].mean(), rel=1e-12)


def test_query_without_documents_has_no_relevant_document() -> None:
    for measure in ALL:
        assert measure(no_relevant="skip").per_query([1.0], [1], [0, 0, 1, 1]).tolist()[::2] == pytest.approx(
            [np.nan, np.nan], nan_ok=True
        )


def test_long_tied_lists_are_exact() -> None:
    # 3,000 documents, all tied, one relevant: expected reciprocal rank is the harmonic mean of the ranks, H_n / n.
    y = np.zeros(3000)
    y[77] = 1
    harmonic = np.sum(1 / np.arange(1, 3001)) / 3000
    for measure in (RR, AP):
        value = measure(ties="average").mean(np.zeros(3000), y, [0, 3000])
        assert value == pytest.approx(harmonic, rel=1e-10)


def _bounds(lists: Lists) -> tuple[list[int], list[int]]:
    return lists.offsets[:-1].tolist(), lists.offsets[1:].tolist()
