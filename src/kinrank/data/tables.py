"""Arrow tables and pandas DataFrames: one row per candidate, with the values of the query repeated.

Columns are recognized by name first, then by type:

- ``qid``, ``y``, ``doc_id``: the query, the grade (null: not judged), the document (see `ColumnNames`);
- ``doc_title``: the title of the document, for explanations;
- ``sample_weight``: how much the judgment of the row counts;
- ``info.NAME``: information for readers of the file, not read;
- ``query.NAME``: query column NAME, with numbers, text or vectors (lists of numbers of one length);
- ``document.NAME``: document column NAME, with numbers or text, such as a site or brand;
- other numeric columns: features, in table order, unless they are said to belong to the query; null is NaN;
- other text columns: query columns of the same name.

This module knows plain arrays only; `QuerySet.from_table` and `QuerySet.to_table` are built on it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kinrank.arrays import Float32
from kinrank.data.query_rows import Groups, QueryRows, group_rows
from kinrank.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of categories, and views of text, which is what Polars has, as text."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    plain = pa.large_string() if pa.types.is_string_view(kind) else kind  # Arrow has few functions for views
    if not pa.types.is_dictionary(column.type):
        return column if plain == kind else column.cast(plain)
    return pa.chunked_array([part.dictionary.cast(plain).take(part.indices) for part in column.chunks], plain)


def is_number(kind: pa.DataType) -> bool:
    """Return whether values can be features: numbers, truth values or nothing."""
    t = pa.types
    matches: bool = (
        t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_boolean(kind) or t.is_null(kind)
    )
    return matches


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are text."""
    matches: bool = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return matches


QUERY_PREFIX = "query."
DOCUMENT_PREFIX = "document."
INFO_PREFIX = "info."
_TEXT = QUERY_PREFIX + "text"
ENGINE_RANK = "engine_rank"
"""The column of documents with their rank in the engine's own order; ``kinrank log`` writes it."""
DATE = QUERY_PREFIX + "date"
"""The day on which a query was first asked, as text; ``kinrank clicks`` writes it, to split by time."""
WEIGHT = "sample_weight"
TITLE = "doc_title"
_ROWS_AT_ONCE = 4096
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__\Z")  # pandas' name for an index without one


class ColumnNames(TypedDict, total=False):
    """What to read from a table: the keyword arguments of `QuerySet.from_table`."""

    qid: str
    y: str
    doc_id: str
    text: str | None
    title: str
    features: Sequence[str] | None
    query: Sequence[str]
    keys: Sequence[str]
    drop: Sequence[str]


def read_table(
    table: pa.Table | pd.DataFrame,
    *,
    qid: str,
    y: str,
    doc_id: str,
    text: str | None = None,
    title: str = TITLE,
    features: Sequence[str] | None = None,
    query: Sequence[str] = (),
    keys: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the arrays of a table, rows in table order, and the groups that define their order by query.

    They are the arguments of `QuerySet._from_groups`; see `QuerySet.from_table`.
    """
    columns = _columns(table)
    if qid not in columns:
        raise DataError(
            f"no column {qid!r} for the query ids among {list(columns)}: name that column by qid= (--columns "
            "qid=COLUMN on the command line; kinrank doctor FILE finds it)"
        )
    for name in keys:
        if name not in columns and DOCUMENT_PREFIX + name not in columns:
            raise DataError(f"no column {name!r} for a key of documents among {list(columns)}: correct the name")
    prefix = dict.fromkeys(query, QUERY_PREFIX) | dict.fromkeys(keys, DOCUMENT_PREFIX)
    columns = {prefix.get(name, "") + name: column for name, column in columns.items()}
    columns = _chosen(columns, text, features, drop, reserved=(qid, y, doc_id, title, WEIGHT))
    _check_types(columns, y)
    special = {name: columns.pop(name) for name in (qid, y, doc_id, WEIGHT) if name in columns}
    titles = columns.pop(title, special.get(title))
    if titles is None and title != TITLE:
        raise DataError(f"no column {title!r} for the titles among {list(columns)}: correct the name")
    for name in special.keys() - {y}:
        _check_not_null(name, special[name])
    documents = {name: columns.pop(name) for name in list(columns) if name.startswith(DOCUMENT_PREFIX)}
    numeric = {name: column for name, column in columns.items() if _is_feature(name, column.type)}
    groups = group_rows(len(special[qid]), _ids(special[qid]), None)
    query_columns = {
        name.removeprefix(QUERY_PREFIX): (_vector_per_query if _is_vector(name, column.type) else _one_per_query)(
            name, column, groups
        )
        for name, column in columns.items()
        if name not in numeric
    }
    return {
        "groups": groups,
        "X": _matrix(list(numeric.values()), len(special[qid])),
        "y": special[y].cast(pa.float32(), safe=False).to_numpy() if y in special else None,
        "doc_id": _ids(special[doc_id]) if doc_id in special else None,
        "feature_names": tuple(numeric),
        "query_columns": query_columns,
        "doc_title": None if titles is None else _ids(titles).astype(np.str_),
        "sample_weight": special[WEIGHT].to_numpy() if WEIGHT in special else None,
        "doc_columns": {name.removeprefix(DOCUMENT_PREFIX): _ids(column) for name, column in documents.items()},
    }


def write_table(queries: QueryRows) -> pa.Table:
    """Return the table that `read_table` reads back."""
    for name in queries.feature_names:
        if is_reserved(name):
            raise DataError(f"feature {name!r} has the name of another column of the table: rename it")
    query_of_row = pa.array(queries.query_of_row)
    columns = {"qid": pa.array(queries.qid).take(query_of_row)}
    if queries.y is not None:
        columns["y"] = pa.array(queries.y, from_pandas=True)  # NaN, not judged, becomes null
    if queries.doc_id is not None:
        columns["doc_id"] = pa.array(queries.doc_id)
    if queries.doc_title is not None:
        columns[TITLE] = pa.array(queries.doc_title)
    if queries.sample_weight is not None:
        columns[WEIGHT] = pa.array(queries.sample_weight)
    for name, values in queries.doc_columns.items():
        columns[DOCUMENT_PREFIX + name] = pa.array(values)
    for i, name in enumerate(queries.feature_names):
        columns[name] = pa.array(np.ascontiguousarray(queries.X[:, i]))
    for name, values in queries.query_columns.items():
        columns[QUERY_PREFIX + name] = (
            pa.array(values).take(query_of_row) if values.ndim == 1 else _vectors_once(values, queries.offsets)
        )
    return pa.table(columns)


def is_reserved(name: str) -> bool:
    """Return whether a table uses this name for another column, so that no feature can have it.

    Examples
    --------
    >>> is_reserved("qid"), is_reserved("query.intent"), is_reserved("query_length")
    (True, True, False)
    """
    return name in ("qid", "y", "doc_id", TITLE, WEIGHT) or name.startswith(
        (QUERY_PREFIX, DOCUMENT_PREFIX, INFO_PREFIX)
    )


def _chosen(
    columns: dict[str, pa.ChunkedArray],
    text: str | None,
    features: Sequence[str] | None,
    drop: Sequence[str],
    reserved: Sequence[str],
) -> dict[str, pa.ChunkedArray]:
    """Return the columns to read, with the text of the query by the name under which it is stored."""
    for name in (*drop, *([] if text is None else [text])):
        if name not in columns:
            raise DataError(f"no column {name!r} among {list(columns)}: correct the name")
    chosen = {name: column for name, column in columns.items() if name not in drop}
    if text is not None:
        replaced = {"text", _TEXT, text}.difference(reserved)  # the text may also be the query id
        chosen = {name: column for name, column in chosen.items() if name not in replaced}
        chosen[_TEXT] = columns[text]
    if features is None:
        return chosen
    numeric = [name for name, column in chosen.items() if name not in reserved and _is_feature(name, column.type)]
    for pattern in features:
        if not any(fnmatchcase(name, pattern) for name in numeric):
            raise DataError(f"no numeric column {pattern!r} for a feature among {numeric}: correct the name")
    others = {name for name in numeric if not any(fnmatchcase(name, pattern) for pattern in features)}
    return {name: column for name, column in chosen.items() if name not in others}


def _columns(table: Any) -> dict[str, pa.ChunkedArray]:
    """Return the columns by name, with dictionary columns (categories) and views of text decoded."""
    if hasattr(table, "iloc"):  # pandas, without importing it
        arrow = pa.Table.from_pandas(table.rename(columns=str))
    elif hasattr(table, "__arrow_c_stream__"):
        arrow = pa.table(table)
    else:
        raise DataError(f"expected an Arrow table or a pandas DataFrame, got {type(table).__name__}: use from_arrays")
    columns: dict[str, pa.ChunkedArray] = {}
    for name, column in zip(arrow.column_names, arrow.columns, strict=True):
        if name in columns:
            raise DataError(f"two columns are named {name!r}: rename one")
        if not _UNNAMED_INDEX.match(name) and not name.startswith(INFO_PREFIX):
            columns[name] = decoded(column)
    return columns


def _is_vector(name: str, kind: pa.DataType) -> bool:
    t = pa.types
    listed = t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind)
    return bool(listed and name.startswith(QUERY_PREFIX) and is_number(kind.value_type))


def _is_feature(name: str, kind: pa.DataType) -> bool:
    """Return whether a column is a feature; if not, it belongs to the query or to the document."""
    return is_number(kind) and not name.startswith((QUERY_PREFIX, DOCUMENT_PREFIX))


def _matrix(columns: list[pa.ChunkedArray], n_rows: int) -> Float32:
    X = np.empty((n_rows, len(columns)), dtype=np.float32)
    values = [column.cast(pa.float32(), safe=False).to_numpy() for column in columns]
    # Transpose in pieces that fit the cache: three times as fast as one column at a time.
    for start in range(0, n_rows, _ROWS_AT_ONCE):
        piece = X[start : start + _ROWS_AT_ONCE]
        for i, column in enumerate(values):
            piece[:, i] = column[start : start + _ROWS_AT_ONCE]
    return X


def _ids(column: pa.ChunkedArray) -> NDArray[Any]:
    codes, values = _encoded(column)
    ids: NDArray[Any] = values[codes]
    return ids


def _one_per_query(name: str, column: pa.ChunkedArray, groups: Groups) -> NDArray[Any]:
    """Return the value that all rows of a query share."""
    codes, values = _encoded(column)
    if groups.row_order is not None:
        codes = codes[groups.row_order]
    first = codes[groups.offsets[:-1]]
    query_of_row = groups.query_of_row
    differs = codes != first[query_of_row]
    if differs.any():
        row = int(np.argmax(differs))
        query = int(query_of_row[row])
        one, other = values[[first[query], codes[row]]].tolist()
        raise DataError(
            f"column {name!r} is {one!r} and {other!r} within query {groups.qid[query].item()!r}, but text and "
            f"{QUERY_PREFIX}* columns belong to the query: if it belongs to the document, name it as a key "
            f"(--columns {shlex.quote(f'keys={name}')} on the command line), else drop it (drop= instead of keys=)"
        )
    shared: NDArray[Any] = values[first]
    return shared


def _vector_per_query(name: str, column: pa.ChunkedArray, groups: Groups) -> NDArray[Any]:
    """Return the vector of each query from the rows that have one."""
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    lists = column.drop_null().combine_chunks()
    lengths = np.unique(pc.list_value_length(lists).to_numpy(zero_copy_only=False))
    if len(lengths) > 1:
        raise DataError(f"column {name!r} has vectors of lengths {lengths[:2].tolist()}: make all the same length")
    vectors = pc.list_flatten(lists).to_numpy(zero_copy_only=False).reshape(len(rows), -1)
    position = np.arange(groups.offsets[-1]) if groups.row_order is None else np.argsort(groups.row_order)
    query = groups.query_of_row[position[rows]]
    with_vector, first = np.unique(query, return_index=True)
    if len(with_vector) < len(groups.qid):
        missing = np.setdiff1d(np.arange(len(groups.qid)), with_vector)[0]
        raise DataError(f"column {name!r} has no vector for query {groups.qid[missing].item()!r}: add one per query")
    shared: NDArray[Any] = vectors[first]
    differs = (vectors != shared[query]).any(axis=1)
    if differs.any():
        other = groups.qid[query[np.argmax(differs)]].item()
        raise DataError(f"column {name!r} has two different vectors for query {other!r}: keep one of them")
    return shared


def _vectors_once(vectors: NDArray[Any], offsets: NDArray[np.int64]) -> pa.Array:
    """Return a column with the vector of each query in its first row and null elsewhere."""
    query = np.full(offsets[-1], -1)
    query[offsets[:-1]] = np.arange(len(vectors))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    return lists.take(pa.array(query, mask=query < 0))


def _encoded(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return a column as codes into its unique values. Null text becomes empty text, a null number NaN."""
    if not len(column):
        return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    values = encoded.dictionary
    if is_text(values.type):
        return encoded.indices.to_numpy(), np.array(values.fill_null("").to_pylist(), dtype=np.str_)
    return encoded.indices.to_numpy(), values.to_numpy(zero_copy_only=False)


def _check_not_null(name: str, column: pa.ChunkedArray) -> None:
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise DataError(f"column {name!r} is null in row {row}, but every row needs a value: fill it or drop the row")


def _check_types(columns: dict[str, pa.ChunkedArray], y: str) -> None:
    for name, column in columns.items():
        readable = is_number(column.type) or is_text(column.type) or _is_vector(name, column.type)
        if name == y and is_text(column.type):
            raise DataError(f"the grades in column {name!r} are {words_of(column)}")
        if not readable or (name == y and not is_number(column.type)):
            expected = "numbers" if name == y else "numbers or text"
            raise DataError(f"column {name!r} is {column.type}, expected {expected}: convert or drop it")


def words_of(column: pa.ChunkedArray) -> str:
    """Return what to do about grades that are text.

    Examples
    --------
    >>> words_of(pa.chunked_array([["bad", "good", "bad"]]))
    "text ('bad', 'good'): map words to numbers, such as bad = 0"
    """
    words = pc.unique(column.drop_null()).to_pylist()
    shown = ", ".join(map(repr, words[:3])) + (", ..." if len(words) > 3 else "")
    return f"text ({shown}): map words to numbers, such as {words[0] if words else 'bad'} = 0"
