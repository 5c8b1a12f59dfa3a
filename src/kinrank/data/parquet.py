"""Parquet files, read whole or block by block.

The columns are those of `kinrank.data.tables`. The files of a folder are read in the order of their names; the names
of subfolders (``day=3/``) are not read as columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Unpack

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq

from kinrank.data.blocks import check_rows_per_block
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
    with _error_context(path):
        return QuerySet.from_table(table, **columns)


def read_parquet_table(path: PathLike) -> pa.Table:
    """Read a Parquet file, or a folder of them, as it is."""
    with _error_context(path):
        return _dataset(path).to_table()


def write_parquet(queries: QuerySet, path: PathLike) -> None:
    """Write a Parquet file that `read_parquet` and `iter_parquet` read back."""
    pq.write_table(queries.to_table(), path, compression="zstd", write_page_checksum=True)


def count_rows(path: PathLike) -> int:
    """Return the number of rows, from the metadata of the files."""
    with _error_context(path):
        count: int = _dataset(path).count_rows()
    return count


def iter_parquet(
    path: PathLike | pds.Dataset,
    *,
    rows_per_block: int = 1_000_000,
    **columns: Unpack[ColumnNames],
) -> Iterator[QuerySet]:
    """Read Parquet in blocks of whole queries, using the memory of a few blocks or row groups.

    The rows of a query must be adjacent. To detect a query that is not, the ids of all queries are kept in memory
    (about 100 bytes each).

    Parameters
    ----------
    path
        A Parquet file, a folder of them, or an Arrow dataset of Parquet files on any file system.
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
    qid = columns.get("qid", "qid")
    seen: set[object] = set()
    for table in _whole_queries(path, qid, rows_per_block):
        with _error_context(path):
            block = QuerySet.from_table(table, **columns)
        ids = block.qid.tolist()
        again = seen.intersection(ids)
        if block.row_order is not None:  # rows of a query are apart: name the first that was moved
            moved = np.argmax(block.row_order != np.arange(block.n_rows))
            again.add(ids[block.query_of_row[moved]])
        if again:
            raise DataError(
                f"the rows of query {again.pop()!r} are not adjacent: sort the file by {qid!r}, or read it with "
                "read_parquet"
            )
        seen.update(ids)
        yield block


def _dataset(path: PathLike) -> pds.Dataset:
    return pds.dataset(path, format="parquet", partitioning=None)


@contextmanager
def _error_context(path: PathLike | pds.Dataset) -> Iterator[None]:
    """Add the file name to error messages."""
    name = "the Parquet files" if isinstance(path, pds.Dataset) else path
    try:
        yield
    except FileFormatError:  # names the file
        raise
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    except pa.ArrowException as error:
        raise FileFormatError(name, 0, f"cannot be read as Parquet ({error}): download or write it again") from error


def _whole_queries(path: PathLike | pds.Dataset, qid: str, rows_per_block: int) -> Iterator[pa.Table]:
    """Yield tables that hold whole queries."""
    with _error_context(path):
        dataset = path if isinstance(path, pds.Dataset) else _dataset(path)
        yield from _tables(dataset, qid, rows_per_block)


def _tables(dataset: pds.Dataset, qid: str, rows_per_block: int) -> Iterator[pa.Table]:
    buffer = dataset.schema.empty_table()
    for batch in _batches(dataset, rows_per_block):
        buffer = pa.concat_tables([buffer, pa.Table.from_batches([batch])], promote_options="permissive")
        while buffer.num_rows > rows_per_block:
            end = _query_end(buffer, qid, rows_per_block)
            if end == buffer.num_rows:  # the last query may continue in the next batch
                break
            yield buffer.slice(0, end)
            buffer = buffer.slice(end)
    while buffer.num_rows:
        end = _query_end(buffer, qid, rows_per_block)
        yield buffer.slice(0, end)
        buffer = buffer.slice(end)


def _batches(dataset: pds.Dataset, n_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches file by file; the scanner of a dataset reads tens of row groups ahead."""
    for fragment in dataset.get_fragments():
        with pq.ParquetFile(fragment.path, filesystem=fragment.filesystem, pre_buffer=False) as file:
            yield from file.iter_batches(batch_size=n_rows)


def _query_end(table: pa.Table, qid: str, most: int) -> int:
    """Return the end of the last query that ends within `most` rows, or of the first query if none does."""
    if qid not in table.column_names:
        raise DataError(f"no column {qid!r} for the query ids among {table.column_names}: pass qid=")
    ids = table[qid].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
    ends = np.append(np.flatnonzero(ids[1:] != ids[:-1]) + 1, len(ids))
    within = ends[ends <= most]
    return int(within[-1] if len(within) else ends[0])
