"""Read judgments from a table with one row per judged document, and query vectors from Parquet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kinrank.data.delimited import SEPARATORS, read_delimited, table_suffix
from kinrank.data.queryset import QuerySet
from kinrank.data.textfile import PathLike
from kinrank.data.texts import TEXT
from kinrank.data.vectors import VECTORS, align_vectors
from kinrank.errors import DataError, FileFormatError

FORMATS = ".tsv or .csv with a header (optionally .gz or .xz), or .parquet"


@dataclass(frozen=True)
class JudgmentColumns:
    """Names of the columns of a judgment table. Other text columns become query columns."""

    qid: str = "qid"
    text: str = "query"
    doc_id: str = "doc_id"
    y: str = "y"


def read_judgments(path: PathLike, columns: JudgmentColumns | None = None) -> QuerySet:
    r"""Read judged documents without features. The text of a query becomes the query column "text".

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
    names = columns or JudgmentColumns()
    table = _read_table(Path(path), names)
    for name in (names.qid, names.text, names.doc_id, names.y):
        if name not in table.column_names:
            raise FileFormatError(
                path, 0, f"no column {name!r}, got {table.column_names}: name the column that holds it, or add it"
            )
    table = table.rename_columns([TEXT if name == names.text else name for name in table.column_names])
    judged = QuerySet.from_table(table, qid=names.qid, y=names.y, doc_id=names.doc_id)
    if judged.n_features:
        name = judged.feature_names[0]
        raise FileFormatError(
            path,
            0,
            f"column {name!r} is numeric, but features come from the engine: drop it, or rename it query.{name} if it "
            "belongs to the query",
        )
    if not judged.judged.all():
        query = judged.qid[judged.query_of_row[np.argmin(judged.judged)]].item()
        raise FileFormatError(path, 0, f"a judgment of query {query!r} has no grade: fill it or drop the row")
    _check_no_duplicates(judged, path)
    return judged


def read_vectors(path: PathLike, judged: QuerySet, qid: str = "qid") -> QuerySet:
    """Add query vectors from a Parquet file with the columns `qid` and "vector" (lists of numbers)."""
    table = _read_parquet(Path(path))
    if not {qid, VECTORS} <= set(table.column_names):
        raise FileFormatError(path, 0, f"expected the columns {qid!r} and {VECTORS!r}, got {table.column_names}")
    column = table[VECTORS].combine_chunks()
    lists = np.array(column.to_pylist(), dtype=object) if column.null_count else column.to_numpy(zero_copy_only=False)
    by_id = dict(zip(table[qid].cast(pa.string()).to_pylist(), lists, strict=True))
    text_ids = judged.replace(qid=judged.qid.astype(np.str_))
    vectors = align_vectors(text_ids, by_id)
    return judged.replace(query_columns={**judged.query_columns, VECTORS: vectors})


def _read_table(path: Path, names: JudgmentColumns) -> pa.Table:
    if path.suffix == ".parquet":
        return _read_parquet(path)
    if table_suffix(path) not in SEPARATORS:
        raise DataError(f"{path}: unknown format of judgments; expected {FORMATS}")
    return read_delimited(path, as_text=(names.qid, names.text, names.doc_id))


def _read_parquet(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise FileFormatError(path, 0, f"cannot be read as Parquet ({error}): write the file again") from None


def _check_no_duplicates(judged: QuerySet, path: PathLike) -> None:
    for query in judged:
        documents = [] if query.doc_id is None else query.doc_id.tolist()
        if len(set(documents)) < len(documents):
            duplicate = next(doc_id for doc_id in documents if documents.count(doc_id) > 1)
            raise FileFormatError(
                path, 0, f"document {duplicate!r} is judged twice for query {query.qid[0].item()!r}: keep one judgment"
            )
