"""Parquet files, read whole or block by block.

The columns are those of `kinrank.data.tables`. The files of a folder are read in the order of their names; the names
of subfolders (``day=3/``) are not read as columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs

from kinrank.data.blocks import Blocks, QuerySetBlocks, check_rows_per_block
from kinrank.data.files import PathLike, filesystem_of
from kinrank.data.queryset import QuerySet
from kinrank.data.tables import ColumnNames
from kinrank.errors import DataError, FileFormatError

# --- Parquet files as numbered blocks of whole queries ----------------------------------------------------------------
#
# A block is a run of row groups. A query belongs to the block that holds its first row: a reader skips leading rows
# that continue a query of the row group before, and reads on into later row groups until the last query ends. Row
# groups may therefore end anywhere.


class ParquetBlocks(Blocks):
    """Blocks of a Parquet file or a folder of them.

    A row group with more than `rows_per_block` rows is a block of its own. For the columns see
    `QuerySet.from_table`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from kinrank import write_parquet
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judged.parquet"
    >>> write_parquet(QuerySet.from_arrays([[1.0], [2.0], [3.0]], qid=["a", "b", "b"]), path)
    >>> [qid for part in ParquetBlocks(path, 1000).read(0) for qid in part.qid.tolist()]
    ['a', 'b']
    """

    def __init__(self, path: PathLike, rows_per_block: int, **columns: Unpack[ColumnNames]) -> None:
        self.columns: ColumnNames = {"qid": "qid", **columns}
        self.filesystem, root = filesystem_of(path)
        self.files = _files(self.filesystem, root)
        self._identity = _identity(self.filesystem, self.files)
        # One row per row group: its file, its number in that file, its number of rows.
        self.groups, self.feature_names = self._read_metadata()
        self.split(rows_per_block)

    def split(self, rows_per_block: int) -> Self:
        """Split again, between row groups."""
        check_rows_per_block(rows_per_block)
        self.starts = _block_starts(self.groups[:, 2], rows_per_block)
        return self

    def __len__(self) -> int:
        return len(self.starts) - 1

    def n_rows(self, block: int) -> int:
        """Return the number of rows of the row groups."""
        return int(self.groups[self.starts[block] : self.starts[block + 1], 2].sum())

    def name(self, block: int) -> str:
        """Return the file and the row groups."""
        first, last = self.groups[self.starts[block]], self.groups[self.starts[block + 1] - 1]
        if first[0] == last[0]:
            return f"{self.files[first[0]]}, row groups {first[1]} to {last[1]}"
        return f"{self.files[first[0]]}, row group {first[1]}, to {self.files[last[0]]}, row group {last[1]}"

    def fingerprint(self) -> str:
        """Return the files, their sizes and times, and the split."""
        return repr((self._identity, self.columns, self.starts.tolist()))

    def read(self, block: int) -> Iterator[QuerySet]:
        """Yield the queries that begin in the block, one row group at a time."""
        first, last = int(self.starts[block]), int(self.starts[block + 1])
        with _Reader(self.filesystem, self.files, self.groups, self.columns["qid"]) as reader:
            continued = reader.last_id(first - 1) if first else None
            buffer: pa.Table | None = None
            for group in range(first, last):
                table = reader.table(group)
                if continued is not None:
                    table = table.slice(reader.leading(table, continued))
                    if not table.num_rows:  # one query fills the row group
                        continue
                    continued = None
                buffer = table if buffer is None else pa.concat_tables([buffer, table], promote_options="permissive")
                end = reader.last_start(buffer)
                if end:
                    yield self._queries(buffer.slice(0, end), group)
                buffer = buffer.slice(end)
            if buffer is not None:
                rest = list(reader.rest(last, reader.first_id(buffer)))
                yield self._queries(pa.concat_tables([buffer, *rest], promote_options="permissive"), last - 1)

    def _queries(self, table: pa.Table, group: int) -> QuerySet:
        """Return the queries of a table that holds whole queries."""
        try:
            queries = QuerySet.from_table(table, **self.columns)
        except DataError as error:
            raise DataError(f"{self._location(group)}: {error}") from error
        if queries.row_order is not None:  # rows of a query are apart: name the first that was moved
            moved = int(np.argmax(queries.row_order != np.arange(queries.n_rows)))
            query = queries.qid[queries.query_of_row[moved]].item()
            raise DataError(
                f"{self._location(group)}: the rows of query {query!r} are not adjacent: sort the file by "
                f"{self.columns['qid']!r}"
            )
        if queries.feature_names != self.feature_names:
            odd = sorted(set(queries.feature_names) ^ set(self.feature_names)) or "their order"
            raise DataError(
                f"{self._location(group)}: features differ from those of {self.files[0]} ({odd}): write all files with "
                "the same columns"
            )
        return queries

    def _location(self, group: int) -> str:
        return f"{self.files[self.groups[group, 0]]}, row group {self.groups[group, 1]}"

    def _read_metadata(self) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Return the row groups, from the metadata of the files, and the features, from the first row."""
        groups = []
        for number, name in enumerate(self.files):
            with _error_context(name), self.filesystem.open_input_file(name) as source:
                metadata = pq.read_metadata(source)
            rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
            groups += [(number, group, count) for group, count in enumerate(rows) if count]
        if not groups:
            raise DataError(f"{self.files[0]}: these Parquet files have no rows")
        table = np.array(groups, dtype=np.int64)
        with _Reader(self.filesystem, self.files, table, self.columns["qid"]) as reader:
            first = QuerySet.from_table(reader.head(0, 1), **self.columns)
        return table, first.feature_names


class _Reader:
    """Read row groups by number, opening each file once."""

    def __init__(self, filesystem: fs.FileSystem, files: list[str], groups: NDArray[np.int64], qid: str) -> None:
        self.filesystem, self.files, self.groups, self.qid = filesystem, files, groups, qid

    def __enter__(self) -> _Reader:
        self._stack = ExitStack()
        self._open: dict[int, pq.ParquetFile] = {}
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def table(self, group: int) -> pa.Table:
        """Return a row group."""
        file, index, _ = self.groups[group].tolist()
        with _error_context(self.files[file], index):
            return _decoded(self._file(file).read_row_group(index, use_threads=False))

    def head(self, group: int, n_rows: int) -> pa.Table:
        """Return the first rows of a row group without reading its other pages."""
        file, index, _ = self.groups[group].tolist()
        with _error_context(self.files[file], index):
            batches = self._file(file).iter_batches(batch_size=n_rows, row_groups=[index], use_threads=False)
            return _decoded(pa.Table.from_batches([next(iter(batches))]))

    def last_id(self, group: int) -> object:
        """Return the query of the last row of a row group."""
        return self._ids(group)[-1].as_py()

    def first_id(self, table: pa.Table) -> object:
        """Return the query of the first row."""
        return table[self.qid][0].as_py()

    def leading(self, table: pa.Table, query: object) -> int:
        """Return how many leading rows belong to a query."""
        return _leading(table[self.qid], query)

    def last_start(self, table: pa.Table) -> int:
        """Return the first row of the last query."""
        codes = table[self.qid].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        changes = np.flatnonzero(codes[1:] != codes[:-1])
        return int(changes[-1]) + 1 if len(changes) else 0

    def rest(self, group: int, query: object) -> Iterator[pa.Table]:
        """Yield the rows of a query in this row group and later ones."""
        while group < len(self.groups):
            ids = self._ids(group)
            n_rows = _leading(ids, query)
            if n_rows:
                yield self.head(group, n_rows)
            if n_rows < len(ids):
                return
            group += 1

    def _ids(self, group: int) -> pa.ChunkedArray:
        file, index, _ = self.groups[group].tolist()
        with _error_context(self.files[file], index):
            return _decoded(self._file(file).read_row_group(index, columns=[self.qid], use_threads=False))[self.qid]

    def _file(self, number: int) -> pq.ParquetFile:
        if number not in self._open:
            source = self._stack.enter_context(self.filesystem.open_input_file(self.files[number]))
            # Pages with a checksum are verified; the others must at least decode.
            file = self._stack.enter_context(pq.ParquetFile(source, page_checksum_verification=True))
            if self.qid not in file.schema_arrow.names:
                raise DataError(
                    f"{self.files[number]}: no column {self.qid!r} for the query ids among {file.schema_arrow.names}: "
                    "pass qid="
                )
            self._open[number] = file
        return self._open[number]


@contextmanager
def _error_context(name: str, group: int | None = None) -> Iterator[None]:
    """Add the file name and the row group to the error messages of Arrow."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        what = "cannot" if group is None else f"row group {group} cannot"
        raise FileFormatError(name, 0, f"{what} be read as Parquet ({error}): download or write it again") from error


def _decoded(table: pa.Table) -> pa.Table:
    """Decode dictionary columns (categories), so that row groups can be concatenated."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, table[i].cast(field.type.value_type))
    return table


def _leading(ids: pa.ChunkedArray, query: object) -> int:
    """Return how many leading values equal `query`."""
    other = int(pc.index(pc.not_equal(ids, pa.scalar(query, ids.type)), True).as_py())
    return len(ids) if other < 0 else other


def _files(filesystem: fs.FileSystem, path: str) -> list[str]:
    """Return the Parquet files in the order of their names, as `iter_parquet` reads them."""
    with _error_context(path):
        files: list[str] = pds.dataset(path, filesystem=filesystem, format="parquet", partitioning=None).files
    if not files:
        raise DataError(f"{path}: there are no Parquet files in it; check the path")
    return files


def _identity(filesystem: fs.FileSystem, files: list[str]) -> list[tuple[str, int, int]]:
    return [(info.path, info.size, info.mtime_ns or 0) for info in filesystem.get_file_info(files)]


def _block_starts(rows: NDArray[np.int64], rows_per_block: int) -> NDArray[np.int64]:
    """Return the position of the first row group of each block, then the number of row groups."""
    starts, total = [0], 0
    for group, count in enumerate(rows.tolist()):
        if total and total + count > rows_per_block:
            starts.append(group)
            total = 0
        total += count
    return np.array([*starts, len(rows)], dtype=np.int64)


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
