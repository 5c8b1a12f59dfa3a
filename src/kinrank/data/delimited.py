"""Tables in text files: .csv and .tsv with a header row, compressed if the name ends in ``.gz`` or ``.xz``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Unpack

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from kinrank.data.files import PathLike, atomic_writer, parse_ids, read_bytes
from kinrank.data.queryset import QuerySet
from kinrank.data.tables import DATE, DOCUMENT_PREFIX, TITLE, ColumnNames
from kinrank.errors import DataError, FileFormatError

SEPARATORS = {".csv": ",", ".tsv": "\t"}


def read_csv(path: PathLike, **columns: Unpack[ColumnNames]) -> QuerySet:
    r"""Read a .csv or .tsv file with one row per candidate. An empty number is a missing value.

    Ids and keys of documents keep every character: 007 is not 7. They are numbers if all are plain whole numbers.
    For the columns see `QuerySet.from_table`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judged.csv"
    >>> _ = path.write_text("query,grade,bm25,label\na,1,7.5,1\na,0,,0\n")
    >>> read_csv(path, qid="query", y="grade", drop=["label"]).X.tolist()
    [[7.5], [nan]]
    """
    table = read_candidates(path, **columns)
    try:
        return QuerySet.from_table(table, **columns)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def read_candidates(path: PathLike, **columns: Unpack[ColumnNames]) -> pa.Table:
    """Read a .csv or .tsv file as a table, with ids and texts as they are in the file."""
    ids = [columns.get("qid", "qid"), columns.get("doc_id", "doc_id")]
    keys = [name for key in columns.get("keys", ()) for name in (key, DOCUMENT_PREFIX + key)]
    texts = [columns.get("title", TITLE), columns.get("text") or "text", "query.text"]
    table = read_delimited(path, as_text=(*ids, *keys, *texts))
    if not table.num_rows:
        raise FileFormatError(path, 0, "the table has a header but no rows: check how it was written")
    for name in {*ids, *keys}.intersection(table.column_names):
        table = table.set_column(table.column_names.index(name), name, _as_ids(table[name]))
    return table


def _as_ids(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of text with numbers in place of texts if all are whole numbers, and null in place of nothing."""
    encoded = column.combine_chunks().dictionary_encode()
    texts = np.array(encoded.dictionary.to_pylist(), dtype=np.str_)
    values, known = parse_ids(texts[texts != ""]), np.flatnonzero(texts != "")
    place = np.full(len(texts), -1)
    place[known] = np.arange(len(known))
    rows = place[encoded.indices.to_numpy()]
    return pa.chunked_array([pa.array(values).take(pa.array(rows, mask=rows < 0))])


def write_csv(queries: QuerySet, path: PathLike) -> None:
    """Write a .csv or .tsv file that `read_csv` reads back."""
    table = queries.to_table()
    vectors = [name for name in table.column_names if pa.types.is_nested(table.schema.field(name).type)]
    if vectors:
        raise DataError(
            f"{path}: column {vectors[0]!r} holds vectors, which a text file cannot: write .parquet instead"
        )
    write_delimited(table, path)


def write_delimited(table: pa.Table, path: PathLike) -> None:
    """Write a table that `read_delimited` reads back."""
    options = pacsv.WriteOptions(delimiter=SEPARATORS[table_suffix(path)])
    quoted = table_suffix(path) == ".csv"
    if not quoted:  # a .tsv file has no quotes, not even around the names
        options = pacsv.WriteOptions(delimiter=options.delimiter, quoting_style="none", include_header=False)
    try:
        with atomic_writer(path) as stream:
            if not quoted:
                stream.write(("\t".join(table.column_names) + "\n").encode())
            pacsv.write_csv(table, stream, options)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: a text cannot be written without quotes ({error}): write .csv instead") from None


def read_delimited(path: PathLike, as_text: Iterable[str] = ()) -> pa.Table:
    """Read a text file as a table. The columns `as_text` are text even if all their values look like numbers."""
    suffix = table_suffix(path)
    try:
        return pacsv.read_csv(
            pa.BufferReader(read_bytes(path)),
            parse_options=pacsv.ParseOptions(
                delimiter=SEPARATORS[suffix], quote_char='"' if suffix == ".csv" else False
            ),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys((DATE, *as_text), pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise FileFormatError(path, 0, f"cannot be read as a table ({error}): write it with a header row") from None


def table_suffix(path: PathLike) -> str:
    """Return the suffix that tells the separator, without that of the compression.

    Examples
    --------
    >>> table_suffix("judged.tsv.gz"), table_suffix("judged.csv")
    ('.tsv', '.csv')
    """
    name = Path(path)
    return name.with_suffix("").suffix if name.suffix in (".gz", ".xz") else name.suffix
