"""Raw values of each description block, before scaling."""

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
