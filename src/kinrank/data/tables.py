"""Arrow tables and pandas DataFrames in and out: one row per candidate, what belongs to the query repeated.

Columns are told apart by name first, then by type:

- ``qid``, ``y``, ``doc_id``: the query, the grade, the document (other names by parameter);
- ``query.NAME``: column NAME of the query, numbers, text, or vectors (lists of numbers of one length);
- other numbers: features, in the order of the table; a null is NaN;
- other text: a column of the query, under its own name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kinrank.arrays import Float32
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

QUERY_PREFIX = "query."
_ROWS_AT_ONCE = 4096
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__\Z")  # what pandas calls an index without a name


def from_table(table: pa.Table | pd.DataFrame, *, qid: str = "qid", y: str = "y", doc_id: str = "doc_id") -> QuerySet:
    """Build a QuerySet from a table with one row per candidate, rows in any order.

    Parameters
    ----------
    table
        An Arrow table, a pandas DataFrame, or anything that speaks the Arrow stream protocol (polars, DuckDB).
        A named index of a DataFrame counts as a column, one without a name is left out.
    qid
        The column of query ids. Required.
    y
        The column of grades; where it is not there, the queries are not judged.
    doc_id
        The column of document ids, if there is one.

    Raises
    ------
    DataError
        Where an id or a grade is null, a column of the query differs within a query, or a column is neither
        numbers nor text.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"qid": [1, 1], "y": [1, 0], "bm25": [7.5, None], "text": ["alien", "alien"]})
    >>> queries = from_table(table)
    >>> queries.feature_names, queries.X.tolist(), queries.query_columns["text"].tolist()
    (('bm25',), [[7.5], [nan]], ['alien'])
    """
    columns = _columns(table)
    if qid not in columns:
        raise DataError(
            f"no column {qid!r} for the query ids among {list(columns)}: pass qid=, the name of that column, or "
            "rename it (kinrank convert --qid NAME does)"
        )
    _refuse_kinds(columns, y)
    special = {name: columns.pop(name) for name in (qid, y, doc_id) if name in columns}
    for name, column in special.items():
        _refuse_nulls(name, column)
    features = {name: column for name, column in columns.items() if _is_feature(name, column.type)}
    queries = QuerySet.from_arrays(
        _matrix(list(features.values()), len(special[qid])),
        special[y].to_numpy() if y in special else None,
        qid=_ids(special[qid]),
        doc_id=_ids(special[doc_id]) if doc_id in special else None,
        feature_names=list(features),
    )
    query_columns = {
        name.removeprefix(QUERY_PREFIX): (_vector_per_query if _is_vector(name, column.type) else _one_per_query)(
            name, column, queries
        )
        for name, column in columns.items()
        if name not in features
    }
    return queries.replace(query_columns=query_columns)


def to_table(queries: QuerySet) -> pa.Table:
    """As an Arrow table that `from_table` reads back: qid, y, doc_id, the features, ``query.NAME`` columns.

    The vector of a query is in its first row, null in the others: it would be most of the table if repeated.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[7.5], [3.0]], y=[1, 0], qid=[1, 1], query_columns={"intent": ["title"]})
    >>> to_table(queries).column_names
    ['qid', 'y', 'f1', 'query.intent']
    """
    for name in queries.feature_names:
        if is_reserved(name):
            raise DataError(f"feature {name!r} has the name of another column of the table: rename it")
    query_of_row = pa.array(queries.query_of_row)
    columns = {"qid": pa.array(queries.qid).take(query_of_row)}
    if queries.y is not None:
        columns["y"] = pa.array(queries.y)
    if queries.doc_id is not None:
        columns["doc_id"] = pa.array(queries.doc_id)
    for i, name in enumerate(queries.feature_names):
        columns[name] = pa.array(np.ascontiguousarray(queries.X[:, i]))
    for name, values in queries.query_columns.items():
        columns[QUERY_PREFIX + name] = (
            pa.array(values).take(query_of_row) if values.ndim == 1 else _vectors_once(values, queries)
        )
    return pa.table(columns)


def is_reserved(name: str) -> bool:
    """Whether a feature cannot have this name, since the table has another column for it.

    Examples
    --------
    >>> is_reserved("qid"), is_reserved("query.intent"), is_reserved("query_length")
    (True, True, False)
    """
    return name in ("qid", "y", "doc_id") or name.startswith(QUERY_PREFIX)


def _columns(table: Any) -> dict[str, pa.ChunkedArray]:
    """The columns by name, dictionary columns (categories) as what they stand for."""
    if hasattr(table, "iloc"):  # pandas, without importing it
        arrow = pa.Table.from_pandas(table.rename(columns=str))
    elif hasattr(table, "__arrow_c_stream__"):
        arrow = pa.table(table)
    else:
        raise DataError(f"expected an Arrow table or a pandas DataFrame, got {type(table).__name__}: use from_arrays")
    columns: dict[str, pa.ChunkedArray] = {}
    for name, column in zip(arrow.column_names, arrow.columns, strict=True):
        if name in columns:
            raise DataError(f"two columns are called {name!r}: rename one")
        if not _UNNAMED_INDEX.match(name):
            columns[name] = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    return columns


def _is_number(kind: pa.DataType) -> bool:
    t = pa.types
    is_number: bool = (
        t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_boolean(kind) or t.is_null(kind)
    )
    return is_number


def _is_text(kind: pa.DataType) -> bool:
    is_text: bool = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return is_text


def _is_vector(name: str, kind: pa.DataType) -> bool:
    t = pa.types
    listed = t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind)
    return bool(listed and name.startswith(QUERY_PREFIX) and _is_number(kind.value_type))


def _is_feature(name: str, kind: pa.DataType) -> bool:
    """Whether a column is a feature; if not, it belongs to the query."""
    return _is_number(kind) and not name.startswith(QUERY_PREFIX)


def _matrix(columns: list[pa.ChunkedArray], n_rows: int) -> Float32:
    X = np.empty((n_rows, len(columns)), dtype=np.float32)
    values = [column.cast(pa.float32(), safe=False).to_numpy() for column in columns]
    # From columns to rows in pieces that the cache holds: three times as fast as column after column.
    for start in range(0, n_rows, _ROWS_AT_ONCE):
        piece = X[start : start + _ROWS_AT_ONCE]
        for i, column in enumerate(values):
            piece[:, i] = column[start : start + _ROWS_AT_ONCE]
    return X


def _ids(column: pa.ChunkedArray) -> NDArray[Any]:
    codes, values = _encoded(column)
    ids: NDArray[Any] = values[codes]
    return ids


def _one_per_query(name: str, column: pa.ChunkedArray, queries: QuerySet) -> NDArray[Any]:
    """The value that all rows of a query share."""
    codes, values = _encoded(column)
    if queries.row_order is not None:
        codes = codes[queries.row_order]
    first = codes[queries.offsets[:-1]]
    differs = codes != first[queries.query_of_row]
    if differs.any():
        row = int(np.argmax(differs))
        query = int(queries.query_of_row[row])
        one, other = values[[first[query], codes[row]]].tolist()
        raise DataError(
            f"column {name!r} is {one!r} and {other!r} within query {queries.qid[query].item()!r}, but text and "
            f"{QUERY_PREFIX}* columns belong to the query: drop the column"
        )
    one_each: NDArray[Any] = values[first]
    return one_each


def _vector_per_query(name: str, column: pa.ChunkedArray, queries: QuerySet) -> NDArray[Any]:
    """The vector of each query, from the rows that have one; there must be no two different ones."""
    row_of = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    lists = column.drop_null().combine_chunks()
    lengths = np.unique(pc.list_value_length(lists).to_numpy(zero_copy_only=False))
    if len(lengths) > 1:
        raise DataError(f"column {name!r} has vectors of lengths {lengths[:2].tolist()}: all must be of one length")
    vectors = pc.list_flatten(lists).to_numpy(zero_copy_only=False).reshape(len(row_of), -1)
    place = np.arange(queries.n_rows) if queries.row_order is None else np.argsort(queries.row_order)
    query = queries.query_of_row[place[row_of]]
    known, first = np.unique(query, return_index=True)
    if len(known) < len(queries):
        lacking = np.setdiff1d(np.arange(len(queries)), known)[0]
        raise DataError(f"column {name!r} has no vector for query {queries.qid[lacking].item()!r}: give one to each")
    one_each: NDArray[Any] = vectors[first]
    differs = (vectors != one_each[query]).any(axis=1)
    if differs.any():
        other = queries.qid[query[np.argmax(differs)]].item()
        raise DataError(f"column {name!r} has two different vectors for query {other!r}: keep one of them")
    return one_each


def _vectors_once(vectors: NDArray[Any], queries: QuerySet) -> pa.Array:
    """The vector of each query in its first row, null elsewhere."""
    place = np.full(queries.n_rows, -1)
    place[queries.offsets[:-1]] = np.arange(len(queries))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    return lists.take(pa.array(place, mask=place < 0))


def _encoded(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """A column as codes into its different values; null text is empty, a null number NaN."""
    if not len(column):
        return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    values = encoded.dictionary
    if _is_text(values.type):
        return encoded.indices.to_numpy(), np.array(values.fill_null("").to_pylist(), dtype=np.str_)
    return encoded.indices.to_numpy(), values.to_numpy(zero_copy_only=False)


def _refuse_nulls(name: str, column: pa.ChunkedArray) -> None:
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise DataError(f"column {name!r} is null in row {row}: every row needs one; fill it or drop the row")


def _refuse_kinds(columns: dict[str, pa.ChunkedArray], y: str) -> None:
    for name, column in columns.items():
        known = _is_number(column.type) or _is_text(column.type) or _is_vector(name, column.type)
        if not known or (name == y and not _is_number(column.type)):
            expected = "numbers" if name == y else "numbers or text"
            raise DataError(f"column {name!r} is {column.type}, expected {expected}: convert or drop it")
