"""Overlap of feature rows and relevant documents between two sets of queries."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kinrank.arrays import Float64, Int64
from kinrank.data.queryset import QuerySet

_COMMON = 20  # items of more queries than this, and of more than 1% of them, are too common to count


@dataclass(frozen=True, eq=False)
class Items:
    """Items of each query."""

    query: Int64
    """Position of the query of each item."""
    item: NDArray[Any]
    """The items; several queries may have the same item."""
    n_queries: int
    """Number of queries, with or without items."""


def rows_as_items(queries: QuerySet) -> Items:
    """Return the feature rows of each query as hashes.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[1.0, 2.0], [3.0, 0.0], [1.0, 2.0]], qid=["a", "a", "b"])
    >>> first, second, third = rows_as_items(queries).item.tolist()
    >>> first == third, first == second
    (True, False)
    """
    # A random odd factor per column, modulo 2^64: different rows collide about once in 2^64.
    factors = np.random.default_rng(0).integers(0, 2**63, queries.n_features, dtype=np.uint64) * np.uint64(2)
    hashed = np.zeros(queries.n_rows, dtype=np.uint64)
    for column, factor in enumerate(factors + np.uint64(1)):
        values = np.ascontiguousarray(queries.X[:, column]) + np.float32(0)  # turns -0 into 0
        hashed += values.view(np.uint32).astype(np.uint64) * factor
    return Items(queries.query_of_row, hashed, len(queries))


def relevant_as_items(queries: QuerySet) -> Items | None:
    """Return the documents of each query with a grade above 0; None if documents have no ids."""
    if queries.doc_id is None:
        return None
    relevant = queries.grades > 0
    return Items(queries.query_of_row[relevant], queries.doc_id[relevant].astype(np.str_), len(queries))


def most_similar(one: Items, other: Items) -> tuple[Int64, Float64, Int64]:
    """Return, for each query of one set, the most similar query of the other set.

    Items of many queries are not counted as shared.

    Returns
    -------
    position : int64 array
        Position of the most similar query in the other set.
    share : float64 array
        Jaccard similarity; 0 if nothing is shared.
    shared : int64 array
        Number of shared items.

    Examples
    --------
    >>> a = Items(np.array([0, 0, 1]), np.array([7, 8, 9]), 2)
    >>> b = Items(np.array([0, 1, 1]), np.array([5, 7, 8]), 2)
    >>> [values.tolist() for values in most_similar(a, b)]
    [[1, 0], [1.0, 0.0], [2, 0]]
    """
    items, codes = np.unique(np.concatenate([one.item, other.item]), return_inverse=True)
    a, b = (
        _incidence(side.query, code, side.n_queries, len(items))
        for side, code in ((one, codes[: len(one.item)]), (other, codes[len(one.item) :]))
    )
    sizes_a, sizes_b = (np.asarray(incidence.sum(axis=1)).ravel() for incidence in (a, b))
    common = np.asarray(b.sum(axis=0)).ravel() > max(_COMMON, other.n_queries / 100)
    shared = (a @ sparse.diags_array((~common).astype(np.float64)) @ b.T).tocsr()
    position = np.zeros(one.n_queries, dtype=np.int64)
    share = np.zeros(one.n_queries)
    count = np.zeros(one.n_queries, dtype=np.int64)
    rows = np.repeat(np.arange(one.n_queries), np.diff(shared.indptr))
    jaccard = shared.data / (sizes_a[rows] + sizes_b[shared.indices] - shared.data)
    ascending = np.argsort(jaccard, kind="stable")  # the last assignment wins: the largest
    share[rows[ascending]] = jaccard[ascending]
    position[rows[ascending]] = shared.indices[ascending]
    count[rows[ascending]] = shared.data[ascending]
    return position, share, count


def item_set_digests(items: Items, known: Items) -> list[str]:
    """Return a digest of the items of each query, which is equal for queries with the same items.

    It is empty if a query has fewer than two items, or only items that many known queries have.

    Examples
    --------
    >>> queries = Items(np.array([0, 0, 1, 1, 2]), np.array([7, 8, 8, 7, 7]), 3)
    >>> first, second, third = item_set_digests(queries, queries)
    >>> first == second, third
    (True, '')
    """
    values, counts = np.unique(_distinct(known)[1], return_counts=True)
    query, item = _distinct(items)
    rare = ~np.isin(item, values[counts > max(_COMMON, known.n_queries / 100)])
    has_rare = np.bincount(query, weights=rare, minlength=items.n_queries) > 0
    parts = np.split(item, np.searchsorted(query, np.arange(1, items.n_queries)))
    return [
        hashlib.blake2b(part.tobytes()).hexdigest() if telling and len(part) > 1 else ""
        for part, telling in zip(parts, has_rare, strict=True)
    ]


def _distinct(items: Items) -> tuple[Int64, NDArray[Any]]:
    """Return queries and their items, sorted and without repeated items."""
    order = np.lexsort((items.item, items.query))
    query, item = items.query[order], items.item[order]
    first = np.append(True, (query[1:] != query[:-1]) | (item[1:] != item[:-1]))[: len(query)]
    return query[first], item[first]


def _incidence(query: Int64, item: Int64, n_queries: int, n_items: int) -> Any:
    matrix = sparse.csr_array((np.ones(len(query)), (query, item)), shape=(n_queries, n_items))
    matrix.data[:] = 1.0  # count repeated items once
    return matrix
