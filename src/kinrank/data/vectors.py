"""Query vectors given by the caller: by query id, or in order of first appearance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kinrank.data.queryset import Float32, QuerySet
from kinrank.errors import DataError

VECTORS = "vector"
"""The query column that holds them."""


def align_vectors(queries: QuerySet, vectors: Mapping[Any, ArrayLike] | ArrayLike) -> Float32:
    """One row per query, in the order of `queries`.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[1.0], [2.0]], qid=["b", "a"])
    >>> align_vectors(queries, {"a": [0.0, 1.0], "b": [1.0, 0.0]}).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if isinstance(vectors, Mapping):
        found = []
        for query in queries.qid.tolist():
            if query not in vectors:
                raise DataError(f"query {query!r} has no vector: query_vectors must hold one for every query")
            found.append(np.asarray(vectors[query], dtype=np.float32))
        lengths = {vector.shape for vector in found}
        if len(lengths) > 1:
            raise DataError(f"query vectors must all have one length, got shapes {sorted(lengths)}")
        rows = np.array(found, dtype=np.float32)
    else:
        rows = np.asarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or len(rows) != len(queries):
        raise DataError(f"query_vectors must have one row per query ({len(queries)}), got shape {rows.shape}")
    if not np.all(np.isfinite(rows)):
        query = int(np.argmin(np.isfinite(rows).all(axis=1)))
        raise DataError(f"the vector of query {queries.qid[query].item()!r} is not finite: fill or drop it")
    return rows
