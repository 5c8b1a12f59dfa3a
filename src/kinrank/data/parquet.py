"""Parquet files in and out, whole or as a stream of blocks.

Columns are those of `kinrank.data.tables`. A folder of Parquet files is read file by file in the order of their
names; the names of its sub-folders (``day=3/``) are not read as columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq

from kinrank.data.queryset import QuerySet
from kinrank.data.textfile import PathLike
from kinrank.errors import DataError, FileFormatError, ParameterError


def read_parquet(path: PathLike, *, qid: str = "qid", y: str = "y", doc_id: str = "doc_id") -> QuerySet:
    """Read a Parquet file, or a folder of them, into memory; see `QuerySet.from_table`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judged.parquet"
    >>> write_parquet(QuerySet.from_arrays([[1.0], [2.0]], y=[0, 1], qid=["a", "a"]), path)
    >>> read_parquet(path)
    QuerySet(1 queries, 2 rows, 1 features, judged)
    """
    with _readable(path):
        return QuerySet.from_table(_dataset(path).to_table(), qid=qid, y=y, doc_id=doc_id)


def write_parquet(queries: QuerySet, path: PathLike) -> None:
    """Write as a Parquet file that `read_parquet` and `iter_parquet` read back."""
    pq.write_table(queries.to_table(), path, compression="zstd", write_page_checksum=True)


def count_rows(path: PathLike) -> int:
    """How many rows there are, from the files' own books: nothing is read."""
    with _readable(path):
        count: int = _dataset(path).count_rows()
    return count


def iter_parquet(
    path: PathLike | pds.Dataset,
    *,
    rows_per_block: int = 1_000_000,
    qid: str = "qid",
    y: str = "y",
    doc_id: str = "doc_id",
) -> Iterator[QuerySet]:
    """Read Parquet block by block, queries whole, in the memory of a few blocks or row groups.

    Rows of one query must lie together. The ids of queries already seen are remembered (about 100 bytes each),
    so that one which comes back is an error and not two halves of a query.

    Parameters
    ----------
    path
        A Parquet file, a folder of them, or an Arrow dataset of Parquet files, wherever they lie.
    rows_per_block
        A block ends with the last query that ends within so many rows; a longer query is a block of its own.
    qid, y, doc_id
        Names of columns, as in `QuerySet.from_table`.

    Yields
    ------
    QuerySet
        Blocks in the order of the file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judged.parquet"
    >>> write_parquet(QuerySet.from_arrays([[1.0], [2.0], [3.0]], qid=["a", "b", "b"]), path)
    >>> [block.qid.tolist() for block in iter_parquet(path, rows_per_block=2)]
    [['a'], ['b']]
    """
    if rows_per_block < 1:
        raise ParameterError(f"rows_per_block must be at least 1, got {rows_per_block}")
    seen: set[object] = set()
    for table in _whole_queries(path, qid, rows_per_block):
        with _readable(path):
            block = QuerySet.from_table(table, qid=qid, y=y, doc_id=doc_id)
        ids = block.qid.tolist()
        again = seen.intersection(ids)
        if block.row_order is not None:  # the first row that grouping pulled forward
            moved = np.argmax(block.row_order != np.arange(block.n_rows))
            again.add(ids[block.query_of_row[moved]])
        if again:
            raise DataError(
                f"query {again.pop()!r} comes back after other queries: a stream needs the rows of a query together; "
                f"sort the file by {qid!r}, or read it with read_parquet"
            )
        seen.update(ids)
        yield block


def _dataset(path: PathLike) -> pds.Dataset:
    return pds.dataset(path, format="parquet", partitioning=None)


@contextmanager
def _readable(path: PathLike | pds.Dataset) -> Iterator[None]:
    """Say of which file it is that Arrow, or we, complain."""
    name = "the Parquet files" if isinstance(path, pds.Dataset) else path
    try:
        yield
    except FileFormatError:  # says it
        raise
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    except pa.ArrowException as error:
        raise FileFormatError(name, 0, f"cannot be read as Parquet ({error}); fetch or write it again") from error


def _whole_queries(path: PathLike | pds.Dataset, qid: str, rows_per_block: int) -> Iterator[pa.Table]:
    """Tables that end where a query ends."""
    with _readable(path):
        dataset = path if isinstance(path, pds.Dataset) else _dataset(path)
        yield from _tables(dataset, qid, rows_per_block)


def _tables(dataset: pds.Dataset, qid: str, rows_per_block: int) -> Iterator[pa.Table]:
    held = dataset.schema.empty_table()
    for batch in _batches(dataset, rows_per_block):
        held = pa.concat_tables([held, pa.Table.from_batches([batch])], promote_options="permissive")
        while held.num_rows > rows_per_block:
            end = _query_end(held, qid, rows_per_block)
            if end == held.num_rows:  # the last query may go on in the next batch
                break
            yield held.slice(0, end)
            held = held.slice(end)
    while held.num_rows:
        end = _query_end(held, qid, rows_per_block)
        yield held.slice(0, end)
        held = held.slice(end)


def _batches(dataset: pds.Dataset, n_rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of the files one after the other; a dataset's own scanner reads tens of row groups ahead."""
    for fragment in dataset.get_fragments():
        with pq.ParquetFile(fragment.path, filesystem=fragment.filesystem, pre_buffer=False) as file:
            yield from file.iter_batches(batch_size=n_rows)


def _query_end(table: pa.Table, qid: str, most: int) -> int:
    """Where the last query ends that ends within `most` rows; where the first query ends if none does."""
    if qid not in table.column_names:
        raise DataError(f"no column {qid!r} for the query ids among {table.column_names}: pass qid=")
    ids = table[qid].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
    ends = np.append(np.flatnonzero(ids[1:] != ids[:-1]) + 1, len(ids))
    within = ends[ends <= most]
    return int(within[-1] if len(within) else ends[0])
