"""Read judgments from a table with one row per judged document, and query vectors from Parquet."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Unpack

import numpy as np
import pyarrow as pa

from kinrank.data.delimited import SEPARATORS, read_delimited, table_suffix
from kinrank.data.parquet import read_parquet_table
from kinrank.data.queryset import QuerySet
from kinrank.data.tables import ColumnNames
from kinrank.data.textfile import PathLike
from kinrank.data.vectors import VECTORS, align_vectors
from kinrank.errors import DataError, FileFormatError

FORMATS = ".tsv or .csv with a header (optionally .gz or .xz), or .parquet"


_MEANINGS = {"qid": "query ids", "text": "query texts", "doc_id": "document ids", "y": "grades"}
_TEXTS = ("query", "text")


def read_judgments(path: PathLike, **columns: Unpack[ColumnNames]) -> QuerySet:
    r"""Read judged documents without features. The text of a query becomes the query column "text".

    Parameters
    ----------
    path
        The table. Text columns without another meaning become query columns.
    **columns
        Names of columns: qid, y, doc_id, text, query and drop, as in `QuerySet.from_table`. By default the text is in
        the column "query" or "text". It is also the id if the table has no column "qid".

    Raises
    ------
    FileFormatError
        If a column or a grade is missing, there are numeric columns besides the grades, or a document is judged twice
        for a query.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judgments.tsv"
    >>> _ = path.write_text("qid\tquery\tdoc_id\ty\n1\talien\td7\t2\n1\talien\td9\t0\n")
    >>> judged = read_judgments(path)
    >>> judged, judged.query_columns["text"].tolist()
    (QuerySet(1 queries, 2 rows, 0 features, judged), ['alien'])
    """
    table = _read_table(Path(path), columns)
    text = _text_column(table, columns)
    names = {
        "qid": _id_column(table, columns),
        "text": text,
        "doc_id": columns.get("doc_id", "doc_id"),
        "y": columns.get("y", "y"),
    }
    for option, name in names.items():
        if name not in table.column_names:
            raise FileFormatError(
                path,
                0,
                f"no column {name!r} for the {_MEANINGS[option]} among {table.column_names}: name the column that "
                f"holds them (--{option.replace('_', '-')} COLUMN on the command line), or add it",
            )
    judged = QuerySet.from_table(table, **names, query=columns.get("query", ()), drop=columns.get("drop", ()))
    if judged.n_features:
        name = judged.feature_names[0]
        raise FileFormatError(
            path,
            0,
            f"column {name!r} is numeric, but features come from the engine: drop it, or name it as a query column "
            f"(--drop {shlex.quote(name)} or --query-column {shlex.quote(name)} on the command line)",
        )
    if not judged.judged.all():
        query = judged.qid[judged.query_of_row[np.argmin(judged.judged)]].item()
        raise FileFormatError(path, 0, f"a judgment of query {query!r} has no grade: fill it or drop the row")
    _check_no_duplicates(judged, path)
    return judged


def read_vectors(path: PathLike, judged: QuerySet, **columns: Unpack[ColumnNames]) -> QuerySet:
    """Add query vectors from a Parquet file with the query ids and the column "vector" (lists of numbers)."""
    table = read_parquet_table(path)
    qid = _id_column(table, columns)
    if not {qid, VECTORS} <= set(table.column_names):
        raise FileFormatError(path, 0, f"expected the columns {qid!r} and {VECTORS!r}, got {table.column_names}")
    column = table[VECTORS].combine_chunks()
    lists = np.array(column.to_pylist(), dtype=object) if column.null_count else column.to_numpy(zero_copy_only=False)
    by_id = dict(zip(table[qid].cast(pa.string()).to_pylist(), lists, strict=True))
    text_ids = judged.replace(qid=judged.qid.astype(np.str_))
    vectors = align_vectors(text_ids, by_id)
    return judged.replace(query_columns={**judged.query_columns, VECTORS: vectors})


def _read_table(path: Path, columns: ColumnNames) -> pa.Table:
    if path.suffix == ".parquet":
        return read_parquet_table(path)
    if table_suffix(path) not in SEPARATORS:
        raise DataError(f"{path}: unknown format of judgments; expected {FORMATS}")
    ids = (columns.get("qid", "qid"), columns.get("doc_id", "doc_id"))
    return read_delimited(path, as_text=(*ids, *_TEXTS, *filter(None, [columns.get("text")])))


def _text_column(table: pa.Table, columns: ColumnNames) -> str:
    """Return the column of query texts: the named one, or the first default that exists."""
    return columns.get("text") or next((name for name in _TEXTS if name in table.column_names), _TEXTS[0])


def _id_column(table: pa.Table, columns: ColumnNames) -> str:
    """Return the column of query ids: that of their texts if the table lacks the default one."""
    qid, text = columns.get("qid", "qid"), _text_column(table, columns)
    return text if qid == "qid" and qid not in table.column_names and text in table.column_names else qid


def _check_no_duplicates(judged: QuerySet, path: PathLike) -> None:
    for query in judged:
        documents = [] if query.doc_id is None else query.doc_id.tolist()
        if len(set(documents)) < len(documents):
            duplicate = next(doc_id for doc_id in documents if documents.count(doc_id) > 1)
            raise FileFormatError(
                path, 0, f"document {duplicate!r} is judged twice for query {query.qid[0].item()!r}: keep one judgment"
            )
