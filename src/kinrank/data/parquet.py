"""Parquet files, read whole or block by block.

The columns are those of `kinrank.data.tables`. The files of a folder are read in the order of their names; the names
of subfolders (``day=3/``) are not read as columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Unpack

import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq

from kinrank.data.blocks import QuerySetBlocks, check_rows_per_block
from kinrank.data.parquet_blocks import ParquetBlocks
from kinrank.data.queryset import QuerySet
from kinrank.data.tables import ColumnNames
from kinrank.data.textfile import PathLike
from kinrank.errors import DataError, FileFormatError


def read_parquet(path: PathLike, **columns: Unpack[ColumnNames]) -> QuerySet:
    """Read a Parquet file, or a folder of them.

    Parameters
    ----------
    path
        The file or folder.
    **columns
        Names of columns: qid, y, doc_id, text, features and drop, as in `QuerySet.from_table`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judged.parquet"
    >>> write_parquet(QuerySet.from_arrays([[1.0], [2.0]], y=[0, 1], qid=["a", "a"]), path)
    >>> read_parquet(path)
    QuerySet(1 queries, 2 rows, 1 features, judged)
    """
    table = read_parquet_table(path)
    with _with_path(path):
        return QuerySet.from_table(table, **columns)


def read_parquet_table(path: PathLike) -> pa.Table:
    """Read a Parquet file, or a folder of them, as it is."""
    with _with_path(path):
        return _dataset(path).to_table()


def write_parquet(queries: QuerySet, path: PathLike) -> None:
    """Write a Parquet file that `read_parquet` and `iter_parquet` read back."""
    pq.write_table(queries.to_table(), path, compression="zstd", write_page_checksum=True)


def count_rows(path: PathLike) -> int:
    """Return the number of rows, from the metadata of the files."""
    with _with_path(path):
        count: int = _dataset(path).count_rows()
    return count


def iter_parquet(
    path: PathLike, *, rows_per_block: int = 1_000_000, **columns: Unpack[ColumnNames]
) -> Iterator[QuerySet]:
    """Read Parquet in blocks of whole queries, using the memory of a few blocks or row groups.

    The rows of a query must be adjacent. To detect a query that is not, the ids of all queries are kept in memory
    (about 100 bytes each).

    Parameters
    ----------
    path
        A Parquet file, a folder of them, or a URI that Arrow or fsspec can open.
    rows_per_block
        The largest number of rows of a block. A query with more rows is a block of its own.
    **columns
        Names of columns, as in `read_parquet`.

    Yields
    ------
    QuerySet
        Blocks in file order.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judged.parquet"
    >>> write_parquet(QuerySet.from_arrays([[1.0], [2.0], [3.0]], qid=["a", "b", "b"]), path)
    >>> [block.qid.tolist() for block in iter_parquet(path, rows_per_block=2)]
    [['a'], ['b']]
    """
    check_rows_per_block(rows_per_block)
    blocks = ParquetBlocks(path, rows_per_block, **columns)
    seen: set[object] = set()
    parts: list[QuerySet] = []
    for part in (part for block in range(len(blocks)) for part in blocks.read(block)):
        again = seen.intersection(part.qid.tolist())
        if again:
            raise DataError(
                f"{path}: the rows of query {again.pop()!r} are not adjacent: sort the file by "
                f"{blocks.columns['qid']!r}, or read it with read_parquet"
            )
        seen.update(part.qid.tolist())
        parts.append(part)
        if sum(each.n_rows for each in parts) > rows_per_block:
            *full, rest = _pieces(parts, rows_per_block)
            yield from full
            parts = [rest]
    if parts:
        yield from _pieces(parts, rows_per_block)


def _pieces(parts: list[QuerySet], rows_per_block: int) -> Iterator[QuerySet]:
    pieces = QuerySetBlocks(QuerySet.concat(parts), rows_per_block)
    return (piece for block in range(len(pieces)) for piece in pieces.read(block))


def _dataset(path: PathLike) -> pds.Dataset:
    return pds.dataset(path, format="parquet", partitioning=None)


@contextmanager
def _with_path(path: PathLike) -> Iterator[None]:
    """Add the file name to error messages."""
    try:
        yield
    except FileFormatError:  # names the file
        raise
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except pa.ArrowException as error:
        raise FileFormatError(path, 0, f"cannot be read as Parquet ({error}): download or write it again") from error
