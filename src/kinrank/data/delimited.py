"""Tables in text files: .csv and .tsv with a header row, compressed if the name ends in ``.gz`` or ``.xz``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Unpack

import pyarrow as pa
import pyarrow.csv as pacsv

from kinrank.data.files import PathLike, atomic_writer, read_bytes
from kinrank.data.queryset import QuerySet
from kinrank.data.tables import DATE, ColumnNames
from kinrank.errors import DataError, FileFormatError

SEPARATORS = {".csv": ",", ".tsv": "\t"}


def read_csv(path: PathLike, **columns: Unpack[ColumnNames]) -> QuerySet:
    r"""Read a .csv or .tsv file with one row per candidate. An empty number is a missing value.

    For the columns see `QuerySet.from_table`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judged.csv"
    >>> _ = path.write_text("query,grade,bm25,label\na,1,7.5,1\na,0,,0\n")
    >>> read_csv(path, qid="query", y="grade", drop=["label"]).X.tolist()
    [[7.5], [nan]]
    """
    table = read_delimited(path, as_text=(columns.get("text") or "text", "query.text"))
    if not table.num_rows:
        raise FileFormatError(path, 0, "the table has a header but no rows: check how it was written")
    try:
        return QuerySet.from_table(table, **columns)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def write_csv(queries: QuerySet, path: PathLike) -> None:
    """Write a .csv or .tsv file that `read_csv` reads back."""
    table = queries.to_table()
    vectors = [name for name in table.column_names if pa.types.is_nested(table.schema.field(name).type)]
    if vectors:
        raise DataError(
            f"{path}: column {vectors[0]!r} holds vectors, which a text file cannot: write .parquet instead"
        )
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
