from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank import QuerySet
from kinrank.data.split import connected, fold_of_query, fold_queries, note_on_large_group, split_queries
from kinrank.errors import DataError, ParameterError


def numbered(n_queries: int) -> QuerySet:
    return QuerySet.from_arrays(np.zeros((n_queries, 1)), qid=np.arange(n_queries))


@given(st.integers(30, 300), st.integers(0, 5))
def test_every_query_is_in_one_part_in_its_order(n_queries: int, seed: int) -> None:
    parts = split_queries(numbered(n_queries), seed=seed)
    for part, share in zip(parts, (0.7, 0.1, 0.2), strict=True):
        assert abs(len(part) - share * n_queries) <= 1
        assert np.all(np.diff(part.qid) > 0)
    assert sorted(np.concatenate([part.qid for part in parts])) == list(range(n_queries))


@given(st.lists(st.integers(0, 30), min_size=100, max_size=150).filter(lambda g: len(set(g)) > 25))
def test_groups_are_not_split(groups: list[int]) -> None:
    queries = numbered(len(groups)).replace(query_columns={"movie": np.array(groups)})
    by_name = split_queries(queries, (0.5, 0.5), group="movie")
    by_array = split_queries(queries, (0.5, 0.5), group=groups)
    train, test = (set(part.query_columns["movie"].tolist()) for part in by_name)
    assert not train & test
    assert train | test == set(groups)
    assert [part.qid.tolist() for part in by_name] == [part.qid.tolist() for part in by_array]
    for rest, fold in fold_queries(queries, 3, group="movie"):
        assert not set(rest.query_columns["movie"].tolist()) & set(fold.query_columns["movie"].tolist())


def test_split_does_not_depend_on_the_order_of_queries() -> None:
    queries = numbered(50)
    shuffled = queries[np.random.default_rng(1).permutation(50)]
    for a, b in zip(split_queries(queries, seed=3), split_queries(shuffled, seed=3), strict=True):
        assert set(a.qid) == set(b.qid)


def test_split_depends_on_the_seed() -> None:
    first, again, other = (split_queries(numbered(50), seed=seed)[0].qid.tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other


@given(st.integers(2, 10), st.integers(10, 60))
def test_folds_test_every_query_once(n_folds: int, n_queries: int) -> None:
    tested = []
    for train, test in fold_queries(numbered(n_queries), n_folds):
        assert len(train) + len(test) == n_queries
        assert not set(train.qid) & set(test.qid)
        tested.extend(test.qid.tolist())
    assert sorted(tested) == list(range(n_queries))


def test_a_group_with_most_queries_leaves_the_others_evenly_to_the_other_parts() -> None:
    groups = np.where(np.arange(100) < 70, 0, np.arange(100))
    for seed in range(20):
        folds = [test for _, test in fold_queries(numbered(100), 4, group=groups, seed=seed)]
        assert sorted(len(fold) for fold in folds) == [10, 10, 10, 70]
        parts = split_queries(numbered(100), (0.25, 0.25, 0.25, 0.25), group=groups, seed=seed)
        assert sorted(len(part) for part in parts) == [10, 10, 10, 70]
        train, validation, test = split_queries(numbered(100), group=groups, seed=seed)
        assert [len(train), len(validation), len(test)] == [70, 10, 20]


def test_large_groups_go_where_most_room_is_left() -> None:
    groups = np.repeat([0, 1, 2, 3], [40, 35, 15, 10])
    assert np.bincount(fold_of_query(numbered(100), 3, group=groups)).tolist() == [40, 35, 25]
    pairs = np.where(np.arange(100) < 70, 0, np.arange(100) // 2)
    assert np.bincount(fold_of_query(numbered(100), 4, group=pairs)).tolist() == [70, 10, 10, 10]


@given(
    st.lists(st.integers(1, 60), min_size=2, max_size=12),
    st.lists(st.integers(1, 20), min_size=2, max_size=5),
    st.integers(0, 5),
)
def test_no_part_is_empty_if_there_are_as_many_groups(sizes: list[int], weights: list[int], seed: int) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    weights = weights[: len(sizes)]
    parts = split_queries(numbered(len(groups)), np.array(weights) / sum(weights), group=groups, seed=seed)
    assert all(len(part) for part in parts)
    assert sum(len(set(groups[part.qid])) for part in parts) == len(sizes)


def test_a_note_names_the_size_of_a_group_that_fits_no_part() -> None:
    queries, groups = numbered(100), np.where(np.arange(100) < 70, 0, np.arange(100))
    note = note_on_large_group(queries, groups, np.full(4, 0.25))
    assert note == "one group has 70 of 100 queries, more than a part of 25: the parts are as even as that allows"
    assert note_on_large_group(queries, groups, np.array([0.7, 0.1, 0.2])) is None
    assert note_on_large_group(queries, None, np.full(4, 0.25)) is None


def test_queries_that_share_a_value_of_any_column_are_connected() -> None:
    movie, family = np.array(["a", "a", "b", "c", "d"]), np.array([0, 1, 1, 2, 3])
    together = connected(movie, family)
    assert len(set(together[:3])) == 1
    assert len(set(together)) == 3
    np.testing.assert_array_equal(connected(movie), np.unique(movie, return_inverse=True)[1])


@pytest.mark.parametrize(
    ("split", "error", "match"),
    [
        (lambda q: split_queries(q, (0.5, 0.6)), ParameterError, "positive numbers with sum 1, got"),
        (lambda q: split_queries(q, (1.0,)), ParameterError, "two or more"),
        (lambda q: split_queries(q, (1.5, -0.5)), ParameterError, "positive"),
        (
            lambda q: split_queries(q, group="movie"),
            ParameterError,
            r"'movie' is not a query column: choose one of \[\]",
        ),
        (
            lambda q: split_queries(q, group=q.feature_names[0]),
            ParameterError,
            "it is a feature: name it as --columns query=",
        ),
        (lambda q: split_queries(q, group=[1, 2]), DataError, r"one value per query \(4\), got shape \(2,\)"),
        (lambda q: split_queries(q, group=["a", None, "b", None]), DataError, "no value for 2 of 4 queries"),
        (lambda q: split_queries(q, group=[1, 1, 1, 1]), DataError, "would be empty: 4 queries in 1 groups"),
        (lambda q: fold_queries(q[:0], 5), DataError, "the table has no rows"),
        (lambda q: fold_queries(q, 1), ParameterError, "n_folds must be at least 2, got 1"),
        (lambda q: fold_queries(q, 5), DataError, "part . of 5 would be empty"),
    ],
)
def test_invalid_split_raises(split, error: type[Exception], match: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=match):
        split(numbered(4))


def test_split_by_time_keeps_the_latest_queries_for_the_last_part() -> None:
    days = np.array(["2026-01-03", "2026-01-01", "2026-01-02", "2026-01-03", "2026-01-01"])
    queries = numbered(5).replace(query_columns={"day": days})
    early, late = split_queries(queries, (0.6, 0.4), time="day")
    assert early.qid.tolist() == [1, 2, 4]
    assert late.qid.tolist() == [0, 3]
    with pytest.raises(ParameterError, match="not by both"):
        split_queries(queries, time="day", group="day")
