"""Cross-fitting: score judged queries with models that have seen neither them nor their group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64, Int64
from kinrank.data.queryset import QuerySet


def out_of_fold(
    queries: QuerySet, fold: Int64, score: Callable[[QuerySet, QuerySet, int], Float64], width: int
) -> Float64:
    """Return the scores of all rows, those of each fold from ``score(seen, held_out, fold)``.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[1.0], [2.0], [3.0]], [1, 2, 4], qid=["a", "b", "c"])
    >>> out_of_fold(queries, np.array([0, 1, 0]), lambda seen, out, _: np.full((out.n_rows, 1), seen.grades.mean()), 1)
    array([[2. ],
           [2.5],
           [2. ]])
    """
    scores = np.empty((queries.n_rows, width))
    for held_out in range(int(fold.max()) + 1):
        out = fold == held_out
        scores[rows_of(queries, out)] = score(queries[~out], queries[out], held_out)
    return scores


def rows_of(queries: QuerySet, chosen: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows belong to the chosen queries."""
    rows: NDArray[np.bool_] = np.repeat(chosen, queries.sizes)
    return rows
