"""Group rows by query id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.data.columns import as_ids
from kinrank.errors import DataError


@dataclass(frozen=True, eq=False)
class Groups:
    """Which rows belong to which query, once the rows are sorted."""

    qid: NDArray[Any]
    """The id of each query, in order of first appearance; shape (queries,)."""
    offsets: NDArray[np.int64]
    """Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``; shape (queries + 1,)."""
    row_order: NDArray[np.int64] | None = None
    """``rows[row_order]`` are the sorted rows; None if they were already grouped; shape (rows,)."""

    @property
    def query_of_row(self) -> NDArray[np.int64]:
        """The position of each row's query."""
        return np.repeat(np.arange(len(self.qid), dtype=np.int64), np.diff(self.offsets))


def group_by_qid(qid: ArrayLike) -> Groups:
    """Group rows by query id, keeping the order of rows within each query.

    Parameters
    ----------
    qid
        The query of each row, in any order.

    Examples
    --------
    >>> groups = group_by_qid(["b", "a", "b"])
    >>> groups.qid.tolist(), groups.offsets.tolist(), groups.row_order.tolist()
    (['b', 'a'], [0, 2, 3], [0, 2, 1])
    """
    ids = as_ids(qid, "qid")
    starts = _run_starts(ids)
    runs = ids[starts]
    unique, first, run_query = np.unique(runs, return_index=True, return_inverse=True)
    if len(unique) == len(runs):
        return Groups(runs, np.append(starts, len(ids)).astype(np.int64))
    # np.unique sorts by id; rank the queries by first appearance instead.
    by_appearance = np.argsort(first)
    rank = np.empty_like(by_appearance)
    rank[by_appearance] = np.arange(len(unique))
    lengths = np.diff(np.append(starts, len(ids)))
    query_of_row = np.repeat(rank[run_query], lengths)
    order = np.argsort(query_of_row, kind="stable").astype(np.int64)
    sizes = np.bincount(query_of_row)
    return Groups(unique[by_appearance], offsets_of(sizes), order)


def group_rows(n_rows: int, qid: ArrayLike | None, group: ArrayLike | None) -> Groups:
    """Group rows by one of two arguments: `qid`, the query of each row, or `group`, the number of rows per query."""
    if qid is not None and group is not None:
        raise DataError("got both qid and group: pass one of them")
    if qid is not None:
        ids = as_ids(qid, "qid")
        if len(ids) != n_rows:
            raise DataError(f"qid must have one id per row of X ({n_rows}), got {len(ids)}")
        return group_by_qid(ids)
    if group is not None:
        offsets = offsets_of(group, n_rows)
        return Groups(np.arange(len(offsets) - 1), offsets)
    raise DataError("qid is missing: pass qid= (the query of each row) or group= (rows per query)")


def offsets_of(sizes: ArrayLike, n_rows: int | None = None) -> NDArray[np.int64]:
    """Return the row offsets of queries with the given numbers of rows.

    Examples
    --------
    >>> offsets_of([2, 3]).tolist()
    [0, 2, 5]
    """
    counts = np.asarray(sizes)
    if counts.ndim != 1 or (counts.size and not np.issubdtype(counts.dtype, np.integer)):
        raise DataError(
            f"group must be a list of whole numbers, one per query, got {counts.dtype} of shape {counts.shape}"
        )
    if counts.size and counts.min() < 1:
        query = int(np.argmin(counts >= 1))
        raise DataError(f"group[{query}] is {counts[query]}, but a query needs at least one row: drop empty queries")
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    if n_rows is not None and offsets[-1] != n_rows:
        raise DataError(f"group sums to {offsets[-1]} rows, but X has {n_rows}: the counts must cover every row")
    return offsets


def check_offsets(offsets: NDArray[np.int64], n_queries: int, n_rows: int) -> None:
    """Raise DataError if offsets do not divide the rows into non-empty queries."""
    if len(offsets) != n_queries + 1 or offsets[0] != 0 or offsets[-1] != n_rows:
        raise DataError(
            f"offsets must run from 0 to the {n_rows} rows of X with one step per query, got {len(offsets)} offsets "
            f"from {offsets[0]} to {offsets[-1]} for {n_queries} queries"
        )
    if (offsets[1:] <= offsets[:-1]).any():
        query = int(np.argmax(offsets[1:] <= offsets[:-1]))
        raise DataError(f"offsets must ascend, but query {query} has no rows: drop empty queries")


def sizes_of(offsets: NDArray[np.int64], queries: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of rows of the given queries, without reading the offsets of any other."""
    sizes: NDArray[np.int64] = offsets[1:][queries] - offsets[:-1][queries]
    return sizes


def rows_of(offsets: NDArray[np.int64], queries: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of the given queries, query by query.

    Examples
    --------
    >>> rows_of(np.array([0, 2, 5]), np.array([1, 0])).tolist()
    [2, 3, 4, 0, 1]
    """
    sizes = sizes_of(offsets, queries)
    ends = np.cumsum(sizes)
    shift = np.repeat(offsets[:-1][queries] - (ends - sizes), sizes)
    rows: NDArray[np.int64] = np.arange(ends[-1] if len(ends) else 0, dtype=np.int64) + shift
    return rows


def shuffle_within_queries(offsets: NDArray[np.int64], seed: int = 0) -> NDArray[np.int64]:
    """Return a row order that shuffles the rows of each query.

    Use it for tools that break ties by input order: judgments often come sorted by grade, which would inflate their
    measures.

    Examples
    --------
    >>> order = shuffle_within_queries(np.array([0, 3, 5]))
    >>> sorted(order[:3].tolist()), sorted(order[3:].tolist())
    ([0, 1, 2], [3, 4])
    """
    sizes = np.diff(offsets)
    query = np.repeat(np.arange(len(sizes)), sizes)
    order: NDArray[np.int64] = np.lexsort((np.random.default_rng(seed).random(len(query)), query))
    return order


def _run_starts(ids: NDArray[Any]) -> NDArray[np.int64]:
    if not len(ids):
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))


def as_positions(selected: ArrayLike, count: int, one: str, many: str) -> NDArray[np.int64]:
    """Return the positions that a mask or an array of positions selects out of `count`.

    Examples
    --------
    >>> as_positions([True, False, True], 3, "row", "rows").tolist()
    [0, 2]
    """
    index = np.asarray(selected)
    if index.dtype == np.bool_:
        if index.shape != (count,):
            raise DataError(f"a mask must have one value per {one} ({count}), got shape {index.shape}")
        return np.flatnonzero(index)
    if index.size and not np.issubdtype(index.dtype, np.integer):
        raise DataError(f"select {many} by position, slice or mask, got {index.dtype}")
    out = (index < -count) | (index >= count)
    if out.any():
        raise IndexError(f"{one} {index[out].flat[0]} is out of range for {count} {many}")
    return index.astype(np.int64)
