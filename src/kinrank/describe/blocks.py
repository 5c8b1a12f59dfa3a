"""Raw values of each description block, before scaling, and a check that the row order gives no grades away."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.data.vectors import VECTORS, QueryVectors, align_vectors
from kinrank.describe.spec import COLUMN, parse_quantile
from kinrank.describe.summaries import PREDICTORS, STATISTICS, predictors, quantiles, statistics
from kinrank.errors import DataError


def raw_blocks(
    queries: QuerySet, blocks: Mapping[str, float], reference: int, depth: int, query_vectors: QueryVectors | None
) -> list[Float64]:
    """Return one array of shape (queries, values) per block; unknown values are NaN."""
    X = np.ascontiguousarray(queries.X)
    shared = statistics(X, queries.offsets, reference, depth) if not blocks.keys().isdisjoint(STATISTICS) else None
    arrays: list[Float64] = []
    for block in blocks:
        share = parse_quantile(block)
        if shared is not None and block in STATISTICS:
            arrays.append(shared[:, STATISTICS.index(block)])
        elif share is not None:
            arrays.append(quantiles(X, queries.offsets, reference, depth, share))
        elif block == "predictors":
            arrays.append(predictors(X, queries.offsets, reference, depth))
        elif block == "size":
            arrays.append(np.log1p(queries.sizes)[:, None])
        elif block == "text":
            arrays.append(text_vectors(queries, query_vectors))
        else:
            arrays.append(_column(queries, block.removeprefix(COLUMN)))
    return arrays


def block_names(block: str, width: int, feature_names: tuple[str, ...]) -> list[str]:
    """Return a name for each value of a block."""
    if block == "predictors":
        return [f"predictors({name})" for name in PREDICTORS]
    if block == "text":
        return [f"text({i})" for i in range(width)]
    if block in STATISTICS or parse_quantile(block) is not None:
        return [f"{block}({name})" for name in feature_names]
    return [block]


def text_vectors(queries: QuerySet, query_vectors: QueryVectors | None) -> Float64:
    """Return the vector of each query, as given or from the query column that holds it."""
    given = queries.query_columns.get(VECTORS) if query_vectors is None else query_vectors
    if given is None:
        raise DataError("the description has a text block: pass query_vectors=, one vector per query")
    return align_vectors(queries, given).astype(np.float64)


def _column(queries: QuerySet, name: str) -> Float64:
    if name not in queries.query_columns:
        column_names = ", ".join(map(repr, queries.query_columns)) or "none"
        raise DataError(f"the description uses the query column {name!r}, but the query columns are: {column_names}")
    try:
        values = queries.query_columns[name].astype(np.float64)
    except ValueError:
        raise DataError(f"query column {name!r} must be numeric to be part of the description: encode it") from None
    return np.where(np.isfinite(values), values, np.nan)[:, None]


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
