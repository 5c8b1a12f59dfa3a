"""Parquet files as numbered blocks of whole queries, each read by itself.

A data set is the row groups of its files, one after the other. A block is a run of row groups. A query belongs to the
block that holds its first row: who reads a block leaves out rows at its beginning that go on from the row group before,
and goes on into the next ones until the last query ends. So row groups may be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs

from kinrank.data.blocks import Blocks, check_rows_per_block
from kinrank.data.filesystems import filesystem_of
from kinrank.data.queryset import QuerySet
from kinrank.data.textfile import PathLike
from kinrank.errors import DataError, FileFormatError


class ParquetBlocks(Blocks):
    """The blocks of a Parquet file or a folder of them.

    Parameters
    ----------
    path
        A file, a folder, or a URI that Arrow or fsspec can open.
    rows_per_block
        Row groups are put together until they have so many rows; a larger row group is a block of its own.
    qid, y, doc_id
        Names of columns, as in `QuerySet.from_table`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from kinrank import write_parquet
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judged.parquet"
    >>> write_parquet(QuerySet.from_arrays([[1.0], [2.0], [3.0]], qid=["a", "b", "b"]), path)
    >>> [qid for part in ParquetBlocks(path, 1000).read(0) for qid in part.qid.tolist()]
    ['a', 'b']
    """

    def __init__(
        self, path: PathLike, rows_per_block: int, *, qid: str = "qid", y: str = "y", doc_id: str = "doc_id"
    ) -> None:
        self.columns = {"qid": qid, "y": y, "doc_id": doc_id}
        self.filesystem, place = filesystem_of(path)
        self.files = _files(self.filesystem, place)
        self._identity = _identity(self.filesystem, self.files)
        # One row per row group: its file, its number there, its rows.
        self.groups, self.feature_names = self._look()
        self.cut(rows_per_block)

    def cut(self, rows_per_block: int) -> Self:
        """Cut anew, by row groups."""
        check_rows_per_block(rows_per_block)
        self.starts = _cut(self.groups[:, 2], rows_per_block)
        return self

    def __len__(self) -> int:
        return len(self.starts) - 1

    def n_rows(self, block: int) -> int:
        """Rows of the block's row groups."""
        return int(self.groups[self.starts[block] : self.starts[block + 1], 2].sum())

    def name(self, block: int) -> str:
        """The file and the row groups."""
        first, last = self.groups[self.starts[block]], self.groups[self.starts[block + 1] - 1]
        if first[0] == last[0]:
            return f"{self.files[first[0]]}, row groups {first[1]} to {last[1]}"
        return f"{self.files[first[0]]}, row group {first[1]}, to {self.files[last[0]]}, row group {last[1]}"

    def fingerprint(self) -> str:
        """Files, their sizes and times, and how they are cut."""
        return repr((self._identity, self.columns, self.starts.tolist()))

    def read(self, block: int) -> Iterator[QuerySet]:
        """The queries that begin in the block, a row group at a time."""
        first, last = int(self.starts[block]), int(self.starts[block + 1])
        with _Reader(self.filesystem, self.files, self.groups, self.columns["qid"]) as reader:
            continued = reader.last_id(first - 1) if first else None
            held: pa.Table | None = None
            for group in range(first, last):
                table = reader.table(group)
                if continued is not None:
                    table = table.slice(reader.leading(table, continued))
                    if not table.num_rows:  # one query fills the row group
                        continue
                    continued = None
                held = table if held is None else pa.concat_tables([held, table], promote_options="permissive")
                end = reader.last_start(held)
                if end:
                    yield self._queries(held.slice(0, end), group)
                held = held.slice(end)
            if held is not None:
                rest = list(reader.rest(last, reader.first_id(held)))
                yield self._queries(pa.concat_tables([held, *rest], promote_options="permissive"), last - 1)

    def _queries(self, table: pa.Table, group: int) -> QuerySet:
        """A table that holds whole queries."""
        try:
            queries = QuerySet.from_table(table, **self.columns)
        except DataError as error:
            raise DataError(f"{self._where(group)}: {error}") from error
        if queries.row_order is not None:  # grouping has pulled some row forward: the first of them
            moved = int(np.argmax(queries.row_order != np.arange(queries.n_rows)))
            query = queries.qid[queries.query_of_row[moved]].item()
            raise DataError(
                f"{self._where(group)}: query {query!r} comes back after other queries: the rows of a query must lie "
                f"together; sort the file by {self.columns['qid']!r}"
            )
        if queries.feature_names != self.feature_names:
            odd = sorted(set(queries.feature_names) ^ set(self.feature_names)) or "their order"
            raise DataError(f"{self._where(group)}: features differ from those of {self.files[0]}: {odd}")
        return queries

    def _where(self, group: int) -> str:
        return f"{self.files[self.groups[group, 0]]}, row group {self.groups[group, 1]}"

    def _look(self) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """The row groups by the files' own books, and the features by the first row."""
        groups = []
        for number, name in enumerate(self.files):
            with _readable(name), self.filesystem.open_input_file(name) as source:
                books = pq.read_metadata(source)
            rows = [books.row_group(group).num_rows for group in range(books.num_row_groups)]
            groups += [(number, group, count) for group, count in enumerate(rows) if count]
        if not groups:
            raise DataError(f"{self.files[0]}: no rows in these Parquet files")
        table = np.array(groups, dtype=np.int64)
        with _Reader(self.filesystem, self.files, table, self.columns["qid"]) as reader:
            first = QuerySet.from_table(reader.head(0, 1), **self.columns)
        return table, first.feature_names


class _Reader:
    """Row groups by number, each file opened once."""

    def __init__(self, filesystem: fs.FileSystem, files: list[str], groups: NDArray[np.int64], qid: str) -> None:
        self.filesystem, self.files, self.groups, self.qid = filesystem, files, groups, qid

    def __enter__(self) -> _Reader:
        self._stack = ExitStack()
        self._open: dict[int, pq.ParquetFile] = {}
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def table(self, group: int) -> pa.Table:
        """All of a row group."""
        number, place, _ = self.groups[group].tolist()
        with _readable(self.files[number], place):
            return _plain(self._file(number).read_row_group(place, use_threads=False))

    def head(self, group: int, n_rows: int) -> pa.Table:
        """The first rows of a row group; its other pages are not read."""
        number, place, _ = self.groups[group].tolist()
        with _readable(self.files[number], place):
            batches = self._file(number).iter_batches(batch_size=n_rows, row_groups=[place], use_threads=False)
            return _plain(pa.Table.from_batches([next(iter(batches))]))

    def last_id(self, group: int) -> object:
        """The query of the last row of a row group."""
        return self._ids(group)[-1].as_py()

    def first_id(self, table: pa.Table) -> object:
        """The query of the first row."""
        return table[self.qid][0].as_py()

    def leading(self, table: pa.Table, query: object) -> int:
        """How many rows at the beginning belong to a query."""
        return _leading(table[self.qid], query)

    def last_start(self, table: pa.Table) -> int:
        """Where the last query begins."""
        codes = table[self.qid].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        changes = np.flatnonzero(codes[1:] != codes[:-1])
        return int(changes[-1]) + 1 if len(changes) else 0

    def rest(self, group: int, query: object) -> Iterator[pa.Table]:
        """What a query has in this row group and the following ones."""
        while group < len(self.groups):
            ids = self._ids(group)
            n_rows = _leading(ids, query)
            if n_rows:
                yield self.head(group, n_rows)
            if n_rows < len(ids):
                return
            group += 1

    def _ids(self, group: int) -> pa.ChunkedArray:
        number, place, _ = self.groups[group].tolist()
        with _readable(self.files[number], place):
            return _plain(self._file(number).read_row_group(place, columns=[self.qid], use_threads=False))[self.qid]

    def _file(self, number: int) -> pq.ParquetFile:
        if number not in self._open:
            source = self._stack.enter_context(self.filesystem.open_input_file(self.files[number]))
            # Pages that carry a checksum are compared with it; others must still decode.
            file = self._stack.enter_context(pq.ParquetFile(source, page_checksum_verification=True))
            if self.qid not in file.schema_arrow.names:
                raise DataError(
                    f"{self.files[number]}: no column {self.qid!r} for the query ids among {file.schema_arrow.names}: "
                    "pass qid="
                )
            self._open[number] = file
        return self._open[number]


@contextmanager
def _readable(name: str, group: int | None = None) -> Iterator[None]:
    """Say of which file and row group it is that Arrow complains."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        what = "cannot" if group is None else f"row group {group} cannot"
        raise FileFormatError(name, 0, f"{what} be read as Parquet ({error}); fetch or write it again") from error


def _plain(table: pa.Table) -> pa.Table:
    """Dictionary columns (categories) as what they stand for, so that row groups fit together."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, table[place].cast(field.type.value_type))
    return table


def _leading(ids: pa.ChunkedArray, query: object) -> int:
    """How many values at the beginning equal `query`."""
    other = int(pc.index(pc.not_equal(ids, pa.scalar(query, ids.type)), True).as_py())
    return len(ids) if other < 0 else other


def _files(filesystem: fs.FileSystem, place: str) -> list[str]:
    """The Parquet files, in the order of their names, as `iter_parquet` takes them."""
    with _readable(place):
        found: list[str] = pds.dataset(place, filesystem=filesystem, format="parquet", partitioning=None).files
    if not found:
        raise DataError(f"{place}: no Parquet files there")
    return found


def _identity(filesystem: fs.FileSystem, files: list[str]) -> list[tuple[str, int, int]]:
    return [(info.path, info.size, info.mtime_ns or 0) for info in filesystem.get_file_info(files)]


def _cut(rows: NDArray[np.int64], rows_per_block: int) -> NDArray[np.int64]:
    """Positions of the first row group of each block, and the number of row groups last."""
    starts, held = [0], 0
    for group, count in enumerate(rows.tolist()):
        if held and held + count > rows_per_block:
            starts.append(group)
            held = 0
        held += count
    return np.array([*starts, len(rows)], dtype=np.int64)
