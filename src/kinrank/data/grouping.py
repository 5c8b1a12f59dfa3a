"""From a query id per row to rows that lie together: sorted once, never assumed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.errors import DataError


def group_by_qid(qid: ArrayLike) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64] | None]:
    """Bring the rows of each query together, queries in order of first appearance, rows in the given order.

    Parameters
    ----------
    qid
        The query of each row, in any order.

    Returns
    -------
    ids
        One id per query.
    offsets
        Query ``i`` owns rows ``offsets[i]:offsets[i + 1]`` after sorting.
    order
        ``rows[order]`` are the sorted rows; None where they already lie together.

    Examples
    --------
    >>> ids, offsets, order = group_by_qid(["b", "a", "b"])
    >>> ids.tolist(), offsets.tolist(), order.tolist()
    (['b', 'a'], [0, 2, 3], [0, 2, 1])
    """
    ids = as_ids(qid, "qid")
    starts = _run_starts(ids)
    runs = ids[starts]
    unique, first, run_query = np.unique(runs, return_index=True, return_inverse=True)
    if len(unique) == len(runs):
        return runs, np.append(starts, len(ids)).astype(np.int64), None
    # np.unique sorts by id; rank the queries by where they first appear instead.
    by_appearance = np.argsort(first)
    rank = np.empty_like(by_appearance)
    rank[by_appearance] = np.arange(len(unique))
    lengths = np.diff(np.append(starts, len(ids)))
    query_of_row = np.repeat(rank[run_query], lengths)
    order = np.argsort(query_of_row, kind="stable").astype(np.int64)
    sizes = np.bincount(query_of_row)
    return unique[by_appearance], offsets_of(sizes), order


def offsets_of(sizes: ArrayLike, n_rows: int | None = None) -> NDArray[np.int64]:
    """Row offsets of queries with the given numbers of rows.

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
        raise DataError(
            f"group[{query}] is {counts[query]}: every query needs at least one row; leave empty queries out"
        )
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    if n_rows is not None and offsets[-1] != n_rows:
        raise DataError(f"group sums to {offsets[-1]} rows, but X has {n_rows}: the counts must cover every row")
    return offsets


def shuffled_within(offsets: NDArray[np.int64], seed: int = 0) -> NDArray[np.int64]:
    """An order of rows that shuffles each query's own, for tools that break ties by the order they are given.

    Judgments often come sorted by grade, and a measure that leaves ties as they lie is then flattered by them.

    Examples
    --------
    >>> order = shuffled_within(np.array([0, 3, 5]))
    >>> sorted(order[:3].tolist()), sorted(order[3:].tolist())
    ([0, 1, 2], [3, 4])
    """
    sizes = np.diff(offsets)
    query = np.repeat(np.arange(len(sizes)), sizes)
    order: NDArray[np.int64] = np.lexsort((np.random.default_rng(seed).random(len(query)), query))
    return order


def as_ids(values: ArrayLike, name: str) -> NDArray[Any]:
    """Ids as an integer or text array, never objects, so that they can be sorted, stored and memory-mapped."""
    ids = np.asarray(values)
    if ids.ndim != 1:
        raise DataError(f"{name} must have one dimension, got shape {ids.shape}")
    if ids.dtype.kind == "U" and isinstance(values, list | tuple) and values:
        return _ids_from_objects(list(values), name)  # NumPy would make text of a number among them
    if ids.dtype.kind in "iuU":
        return ids
    if ids.dtype.kind == "S":
        return np.char.decode(ids, "utf-8")
    if ids.dtype.kind == "f":
        whole = np.isfinite(ids) & (ids == np.floor(ids))
        if not whole.all():
            row = int(np.argmin(whole))
            raise DataError(f"{name}[{row}] is {ids[row]}: ids are whole numbers or text; fill or drop that row")
        return ids.astype(np.int64)
    if not ids.size:
        return ids.astype(np.str_)
    return _ids_from_objects(ids.tolist(), name)


def _ids_from_objects(values: list[Any], name: str) -> NDArray[Any]:
    kind = str if isinstance(values[0], str) else int
    for row, value in enumerate(values):
        if not isinstance(value, kind) or isinstance(value, bool):
            raise DataError(
                f"{name}[{row}] is {value!r} ({type(value).__name__}): ids are whole numbers or text, all of one "
                "kind; fill or drop that row"
            )
    return np.array(values, dtype=np.str_ if kind is str else np.int64)


def _run_starts(ids: NDArray[Any]) -> NDArray[np.int64]:
    if not len(ids):
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
