"""Split queries at random, keeping groups of related queries together, or by time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError


def split_queries(
    queries: QuerySet,
    fractions: Sequence[float] = (0.7, 0.1, 0.2),
    *,
    group: str | ArrayLike | None = None,
    time: str | ArrayLike | None = None,
    seed: int = 0,
) -> list[QuerySet]:
    """Split into parts of about the given fractions of the queries, at random or by time.

    A random split depends on the ids (or groups) and the seed only, not on the order of the queries. Within each part,
    the order is kept.

    Parameters
    ----------
    queries
        The queries to split.
    fractions
        One per part, with sum 1; train, validation and test by default.
    group
        The group of each query: the name of a query column, or one value per query. Queries of a group go to the same
        part, so that related queries do not leak from train to test; part sizes then only approximate the fractions.
        A group that is larger than a part goes where most room is left, and the other parts share the rest.
    time
        The time of each query: the name of a query column (numbers, or text that sorts by time such as 2026-10-31), or
        one value per query. The earliest queries are the first part; queries of the same time stay together.
    seed
        Seed for the shuffle.

    Examples
    --------
    >>> queries = QuerySet.from_arrays(np.zeros((10, 1)), qid=np.arange(10))
    >>> [len(part) for part in split_queries(queries, (0.6, 0.2, 0.2))]
    [6, 2, 2]
    >>> [part.qid.tolist() for part in split_queries(queries, (0.8, 0.2), time=-queries.qid)]
    [[2, 3, 4, 5, 6, 7, 8, 9], [0, 1]]
    """
    if group is not None and time is not None:
        raise ParameterError("queries are split by group or by time, not by both: pass one of them")
    shares = np.asarray(fractions, dtype=np.float64)
    if shares.ndim != 1 or len(shares) < 2 or not np.all(shares > 0) or not np.isclose(shares.sum(), 1.0):
        raise ParameterError(f"fractions must be two or more positive numbers with sum 1, got {list(fractions)}")
    if time is not None:
        part = _part_of_query(queries, shares, groups_of(queries, time, "time"), None)
    else:
        part = _part_of_query(queries, shares, group, seed)
    return [queries[part == i] for i in range(len(shares))]


def fold_queries(
    queries: QuerySet, n_folds: int = 5, *, group: str | ArrayLike | None = None, seed: int = 0
) -> Iterator[tuple[QuerySet, QuerySet]]:
    """Yield the (train, test) pairs of a cross-validation; every query is in one test part.

    Parameters
    ----------
    queries, group, seed
        As in `split_queries`.
    n_folds
        The number of folds.

    Examples
    --------
    >>> queries = QuerySet.from_arrays(np.zeros((10, 1)), qid=np.arange(10))
    >>> [(len(train), len(test)) for train, test in fold_queries(queries, 5)]
    [(8, 2), (8, 2), (8, 2), (8, 2), (8, 2)]
    """
    fold = fold_of_query(queries, n_folds, group=group, seed=seed)
    return ((queries[fold != i], queries[fold == i]) for i in range(n_folds))


def fold_of_query(
    queries: QuerySet, n_folds: int = 5, *, group: str | ArrayLike | None = None, seed: int = 0
) -> NDArray[np.int64]:
    """Return the fold (0, 1, ...) of each query; parameters as in `fold_queries`.

    Examples
    --------
    >>> queries = QuerySet.from_arrays(np.zeros((6, 1)), qid=np.arange(6))
    >>> fold_of_query(queries, 3, group=["a", "a", "b", "b", "c", "c"]).tolist()
    [1, 1, 2, 2, 0, 0]
    """
    if n_folds < 2:
        raise ParameterError(f"n_folds must be at least 2, got {n_folds}")
    return _part_of_query(queries, np.full(n_folds, 1.0 / n_folds), group, seed)


def _part_of_query(
    queries: QuerySet, shares: Float64, group: str | ArrayLike | None, seed: int | None
) -> NDArray[np.int64]:
    """Line the groups up and divide the line by the shares; the middle of a group decides its part.

    The groups are shuffled, and those that are larger than a part are taken out of the line and placed first. Without a
    seed, all are in the order of their values.
    """
    if not len(queries):
        raise DataError("there are no queries to split: the table has no rows")
    groups, group_of_query, sizes = np.unique(groups_of(queries, group), return_inverse=True, return_counts=True)
    part_of_group, room = np.full(len(groups), -1), shares
    line = np.arange(len(groups))
    if seed is not None:
        line = np.random.default_rng(seed).permutation(len(groups))
        room = _place_large(line, sizes, shares, part_of_group)
        line = line[part_of_group[line] < 0]
    middles = np.cumsum(sizes[line]) - sizes[line] / 2
    part_of_group[line] = np.searchsorted(np.cumsum(room)[:-1] * len(queries), middles)
    missing = np.setdiff1d(np.arange(len(shares)), part_of_group)
    if len(missing):
        raise DataError(
            f"part {missing[0] + 1} of {len(shares)} would be empty: {len(queries)} queries in {len(groups)} groups "
            "are too few; use fewer or larger parts, or smaller groups"
        )
    parts: NDArray[np.int64] = part_of_group[group_of_query]
    return parts


def _place_large(line: NDArray[Any], sizes: NDArray[Any], shares: Float64, part_of_group: NDArray[Any]) -> Float64:
    """Place the groups that are not smaller than an empty part, the largest first, where most room is left.

    All others are smaller than each empty part, so that the line leaves none of them empty.

    Return the room that is left in each part for the other groups, as shares of all queries.
    """
    n, filled, room = sizes.sum(), np.zeros(len(shares)), shares
    by_size = line[np.argsort(-sizes[line], kind="stable")]
    for number, group in enumerate(by_size.tolist()):
        empty = filled == 0
        if not empty.any() or sizes[group] < n * room[empty].min() * (1 - 1e-9):
            break
        needed = len(by_size) - number <= np.count_nonzero(empty)
        part = int(np.argmax(np.where(empty, room, -1.0) if needed else room))
        part_of_group[group] = part
        filled[part] += sizes[group] / n
        # Parts are filled up to one level of their shares; those above it get nothing more.
        order = np.argsort(filled / shares, kind="stable")
        level = np.min((1 - filled.sum() + np.cumsum(filled[order])) / np.cumsum(shares[order]))
        room = np.maximum(level * shares - filled, 0.0)
    return room


def note_on_large_group(queries: QuerySet, group: str | ArrayLike | None, shares: Float64) -> str | None:
    """Return what to tell someone whose parts are uneven because no part can hold the largest group; else None.

    Examples
    --------
    >>> queries = QuerySet.from_arrays(np.zeros((4, 1)), qid=np.arange(4))
    >>> note_on_large_group(queries, ["a", "a", "a", "b"], np.array([0.5, 0.5]))
    'one group has 3 of 4 queries, more than a part of 2: the parts are as even as that allows'
    """
    sizes, part = np.unique(groups_of(queries, group), return_counts=True)[1], len(queries) * shares.max()
    largest = int(sizes.max(initial=0))
    if largest < 2 or largest <= np.ceil(part):
        return None
    return (
        f"one group has {largest:,} of {len(queries):,} queries, more than a part of {part:,.0f}: the parts are as "
        "even as that allows"
    )


def connected(*columns: ArrayLike) -> NDArray[np.int64]:
    """Return groups of queries that share a value of a column, directly or through other queries.

    Examples
    --------
    >>> connected(["alien", "alien", "heat", "jaws"], [1, 2, 2, 3]).tolist()
    [0, 0, 0, 1]
    """
    codes = [np.unique(np.asarray(column), return_inverse=True)[1] for column in columns]
    sizes = np.array([code.max(initial=-1) + 1 for code in codes])
    value = np.concatenate([code + first for code, first in zip(codes, np.cumsum(sizes) - sizes, strict=True)])
    return linked(np.tile(np.arange(len(codes[0])), len(codes)), value, len(codes[0]))


def linked(query: NDArray[Any], value: NDArray[Any], n_queries: int) -> NDArray[np.int64]:
    """Return groups of queries that share a value, directly or through others, given the queries and their values.

    Examples
    --------
    >>> linked(np.array([0, 1, 1, 3]), np.array([7, 7, 8, 9]), 4).tolist()
    [0, 0, 1, 2]
    """
    codes = np.unique(value, return_inverse=True)[1]
    size = n_queries + codes.max(initial=-1) + 1
    edges = sparse.coo_array((np.ones(len(codes)), (query, n_queries + codes)), shape=(size, size))
    component = sparse.csgraph.connected_components(edges, directed=False)[1][:n_queries]
    return component.astype(np.int64)


def groups_of(queries: QuerySet, group: str | ArrayLike | None, what: str = "group") -> NDArray[Any]:
    """Return the group of each query; by default, each query is a group of its own. Errors call it `what`."""
    if group is None:
        return queries.qid
    if isinstance(group, str):
        if group not in queries.query_columns:
            instead = f"choose one of {sorted(queries.query_columns)}, or pass one value per query"
            if what == "time":
                instead += (
                    "; kinrank clicks writes the day on which a query was first asked as 'date', if the log has times"
                )
            if group in queries.feature_names:
                instead = f"it is a feature: name it as --columns query={group}, or as one of query_columns in Python"
            raise ParameterError(f"{what} {group!r} is not a query column: {instead}")
        group = queries.query_columns[group]
    values = np.asarray(group)
    if values.shape != (len(queries),):
        raise DataError(f"{what} must have one value per query ({len(queries)}), got shape {values.shape}")
    if values.dtype == object and (missing := sum(value is None for value in values)):
        raise DataError(f"{what} has no value for {missing} of {len(queries)} queries: give each of them one")
    return values
