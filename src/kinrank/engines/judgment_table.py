"""Judgments with the text of their queries, as search teams keep them: a table with a line per judged document."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from kinrank.data.queryset import QuerySet
from kinrank.data.textfile import PathLike, read_bytes
from kinrank.data.vectors import VECTORS, align_vectors
from kinrank.engines.logger import TEXT
from kinrank.errors import DataError, FileFormatError

SEPARATORS = {".tsv": "\t", ".csv": ","}
FORMS = "a table with a header, .tsv or .csv (packed as .gz or .xz), or .parquet"


@dataclass(frozen=True)
class Columns:
    """What the columns of a table of judgments are called; further columns of text belong to the query."""

    qid: str = "qid"
    text: str = "query"
    doc_id: str = "doc_id"
    y: str = "y"


def read_judgments(path: PathLike, columns: Columns | None = None) -> QuerySet:
    r"""Judged documents of queries, without features; the text of a query is its column "text".

    A document that is judged twice for a query is an error.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judgments.tsv"
    >>> _ = path.write_text("qid\tquery\tdoc_id\ty\n1\talien\td7\t2\n1\talien\td9\t0\n")
    >>> judged = read_judgments(path)
    >>> judged, judged.query_columns["text"].tolist()
    (QuerySet(1 queries, 2 rows, 0 features, judged), ['alien'])
    """
    names = columns or Columns()
    table = _table(Path(path), names)
    absent = [name for name in (names.qid, names.text, names.doc_id, names.y) if name not in table.column_names]
    if absent:
        raise FileFormatError(
            path, 0, f"no column {absent[0]!r} among {table.column_names}: say what it is called, or add it"
        )
    table = table.rename_columns([TEXT if name == names.text else name for name in table.column_names])
    judged = QuerySet.from_table(table, qid=names.qid, y=names.y, doc_id=names.doc_id)
    if judged.n_features:
        raise FileFormatError(
            path,
            0,
            f"column {judged.feature_names[0]!r} is numbers, and features come from the engine: drop it, or "
            f"name it query.{judged.feature_names[0]} where it belongs to the query",
        )
    _refuse_twice(judged, path)
    return judged


def read_vectors(path: PathLike, judged: QuerySet, qid: str = "qid") -> QuerySet:
    """The same queries with their vectors, from a Parquet file with the columns qid and "vector" (lists of numbers)."""
    table = _parquet(Path(path))
    if not {qid, VECTORS} <= set(table.column_names):
        raise FileFormatError(path, 0, f"expected the columns {qid!r} and {VECTORS!r}, got {table.column_names}")
    flat = table[VECTORS].combine_chunks()
    lists = np.array(flat.to_pylist(), dtype=object) if flat.null_count else flat.to_numpy(zero_copy_only=False)
    by_id = dict(zip(table[qid].cast(pa.string()).to_pylist(), lists, strict=True))
    text_ids = judged.replace(qid=judged.qid.astype(np.str_))
    vectors = align_vectors(text_ids, by_id)
    return judged.replace(query_columns={**judged.query_columns, VECTORS: vectors})


def _table(path: Path, names: Columns) -> pa.Table:
    if path.suffix == ".parquet":
        return _parquet(path)
    suffix = path.with_suffix("").suffix if path.suffix in (".gz", ".xz") else path.suffix
    if suffix not in SEPARATORS:
        raise DataError(f"{path}: its suffix names no form of judgments; expected {FORMS}")
    # Ids are text however they look; a query is text even where all queries are numbers.
    text = {name: pa.string() for name in (names.qid, names.text, names.doc_id)}
    try:
        return pacsv.read_csv(
            pa.BufferReader(read_bytes(path)),
            parse_options=pacsv.ParseOptions(
                delimiter=SEPARATORS[suffix], quote_char='"' if suffix == ".csv" else False
            ),
            convert_options=pacsv.ConvertOptions(column_types=text, strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        raise FileFormatError(path, 0, f"cannot be read as a table ({error}); expected {FORMS}") from None


def _parquet(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise FileFormatError(path, 0, f"cannot be read as Parquet ({error}); write it again") from None


def _refuse_twice(judged: QuerySet, path: PathLike) -> None:
    for query in judged:
        documents = [] if query.doc_id is None else query.doc_id.tolist()
        if len(set(documents)) < len(documents):
            twice = next(doc_id for doc_id in documents if documents.count(doc_id) > 1)
            raise FileFormatError(
                path, 0, f"document {twice!r} is judged twice for query {query.qid[0].item()!r}: keep one judgment"
            )
