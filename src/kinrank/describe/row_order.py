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
    query, step = queries.query_of_row, np.diff(queries.grades)
    step[query[1:] != query[:-1]] = 0  # between two queries
    rises, falls = (np.bincount(query[1:][each], minlength=len(queries)) for each in (step > 0, step < 0))
    longer = (queries.sizes > depth) & (rises + falls > 0)
    in_order = longer & (rises == 0)
    if longer.sum() >= MIN_QUERIES and in_order.sum() >= MIN_SORTED * longer.sum():
        raise DataError(
            f"rows are sorted by grade in {in_order.sum():,} of the {longer.sum():,} queries with more than {depth} "
            "candidates, and the first ones describe a query: give rows in the engine's order, or name a feature that "
            "marks the top documents, such as reference='bm25'"
        )
