"""Whether rows come in the order of their grades, so that the first rows of a query give its grades away."""

from __future__ import annotations

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError

MIN_QUERIES = 20
"""Number of queries that must have rows beyond the depth, and different grades."""
MIN_SORTED = 0.9
"""Share of these queries that must be sorted."""


def check_row_order(queries: QuerySet, depth: int) -> None:
    """Raise `DataError` if the first rows of longer queries are their best ones by grade.

    Their summary would describe the relevant candidates, in training and in a study alike, but not in a search.

    Examples
    --------
    >>> X, y = np.zeros((100, 1)), np.tile([1, 1, 0, 0], 25)
    >>> check_row_order(QuerySet.from_arrays(X, y, group=[4] * 25), depth=4)
    >>> check_row_order(QuerySet.from_arrays(X, y, group=[4] * 25), depth=3)
    Traceback (most recent call last):
    kinrank.errors.DataError: rows are sorted by grade in 25 of the 25 queries with more than 3 candidates, ...
    """
    if queries.y is None:
        return
    starts = queries.offsets[:-1]
    grades = queries.grades
    rises = np.append(grades[1:] > grades[:-1], False)
    falls = np.append(grades[1:] < grades[:-1], False)
    last = queries.offsets[1:][queries.sizes > 0] - 1
    rises[last] = falls[last] = False  # between two queries
    n_rises = np.add.reduceat(rises, starts) if len(grades) else rises[:0]
    n_falls = np.add.reduceat(falls, starts) if len(grades) else falls[:0]
    longer = (queries.sizes > depth) & (n_rises + n_falls > 0)
    in_order = longer & (n_rises == 0)
    if longer.sum() >= MIN_QUERIES and in_order.sum() >= MIN_SORTED * longer.sum():
        raise DataError(
            f"rows are sorted by grade in {in_order.sum():,} of the {longer.sum():,} queries with more than {depth} "
            "candidates, and the first ones describe a query: give rows in the engine's order, or name a feature that "
            "marks the top documents, such as reference='bm25'"
        )
