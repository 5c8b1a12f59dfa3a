"""Judged queries as numbered blocks: each can be read by itself, in any order, by anyone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.data.textfile import PathLike
from kinrank.errors import DataError, FileFormatError, ParameterError
from kinrank.folder import MANIFEST

_SPREAD = 32  # blocks that a sample is taken from at least, so that data in some order still shows all of itself


class Blocks(ABC):
    """Queries cut into blocks by the data alone, never by who reads them.

    Whatever is computed block by block and put together in the order of block numbers is therefore the same whatever
    the number of workers, the order in which they finish, or what failed on the way.
    """

    feature_names: tuple[str, ...]

    @abstractmethod
    def __len__(self) -> int:
        """How many blocks there are."""

    @abstractmethod
    def cut(self, rows_per_block: int) -> Self:
        """Cut anew into blocks of about so many rows."""

    @abstractmethod
    def n_rows(self, block: int) -> int:
        """About how many rows a block has, known without reading it."""

    @abstractmethod
    def read(self, block: int) -> Iterator[QuerySet]:
        """The queries of a block, in parts that fit into memory, in order."""

    @abstractmethod
    def name(self, block: int) -> str:
        """What an error calls the block: where it lies."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Differs where the data, or how they are cut, differ."""

    @contextmanager
    def error_context(self, block: int) -> Iterator[None]:
        """Say of which block it is that an error complains."""
        try:
            yield
        except FileFormatError:  # says where
            raise
        except DataError as error:
            raise DataError(f"{self.name(block)}: {error}") from error


class QuerySetBlocks(Blocks):
    """The blocks of a set in memory, or of a folder that is mapped into it.

    Parameters
    ----------
    queries
        The set.
    rows_per_block
        A block ends with the last query that ends within so many rows; a longer query is a block of its own.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[1.0], [2.0], [3.0], [4.0]], qid=["a", "a", "b", "c"])
    >>> blocks = QuerySetBlocks(queries, rows_per_block=2)
    >>> [part.qid.tolist() for block in range(len(blocks)) for part in blocks.read(block)]
    [['a'], ['b', 'c']]
    """

    def __init__(self, queries: QuerySet, rows_per_block: int) -> None:
        self.queries = queries
        self.feature_names = queries.feature_names
        self.cut(rows_per_block)

    def cut(self, rows_per_block: int) -> Self:
        """Cut anew, by queries."""
        check_rows_per_block(rows_per_block)
        self.starts = _cut(self.queries, rows_per_block)
        return self

    def __len__(self) -> int:
        return len(self.starts) - 1

    def n_rows(self, block: int) -> int:
        """Rows of a block."""
        first, last = self.starts[block], self.starts[block + 1]
        return int(self.queries.offsets[last] - self.queries.offsets[first])

    def read(self, block: int) -> Iterator[QuerySet]:
        """The block as one part, not copied."""
        yield self.queries[self.starts[block] : self.starts[block + 1]]

    def name(self, block: int) -> str:
        """Which queries it holds."""
        return f"queries {self.starts[block]:,} to {self.starts[block + 1] - 1:,}"

    def fingerprint(self) -> str:
        """Sizes, features and the first and last ids: a set that is open is not read for this."""
        ids = self.queries.qid[[0, -1]].tolist() if len(self.queries) else []
        return repr((self.feature_names, self.queries.n_rows, self.starts, ids))


class FolderBlocks(QuerySetBlocks):
    """The blocks of a folder that `QuerySet.save` or `kinrank convert` wrote, mapped into memory by whoever reads.

    Sent to another process it is a path, so the folder must be where every worker can see it.

    Parameters
    ----------
    path
        The folder.
    rows_per_block
        See `QuerySetBlocks`.
    """

    def __init__(self, path: PathLike, rows_per_block: int) -> None:
        super().__init__(QuerySet.open(path), rows_per_block)
        self.path = str(Path(path).absolute())  # a worker may be elsewhere

    def cut(self, rows_per_block: int) -> Self:
        """Cut anew, by queries."""
        self.rows_per_block = rows_per_block
        return super().cut(rows_per_block)

    def __reduce__(self) -> tuple[type[FolderBlocks], tuple[str, int]]:
        return type(self), (self.path, self.rows_per_block)

    def name(self, block: int) -> str:
        """The folder, and which of its queries."""
        return f"{self.path}, {super().name(block)}"

    def fingerprint(self) -> str:
        """What the folder's manifest says, which has the checksum of every file."""
        return repr(((Path(self.path) / MANIFEST).read_text(), self.starts))


def check_rows_per_block(rows_per_block: int) -> None:
    """Raise where blocks would have no rows."""
    if rows_per_block < 1:
        raise ParameterError(f"rows_per_block must be at least 1, got {rows_per_block}")


def _cut(queries: QuerySet, rows_per_block: int) -> list[int]:
    """Positions of the first query of each block, and the number of queries last."""
    starts = [0]
    while starts[-1] < len(queries):
        most = int(queries.offsets[starts[-1]]) + rows_per_block
        starts.append(max(starts[-1] + 1, int(queries.offsets.searchsorted(most, side="right")) - 1))
    return starts


@dataclass(frozen=True)
class Sample:
    """Which queries stand for all: some of the blocks, and a share of the queries of each, evenly spaced.

    Attributes
    ----------
    blocks : tuple of int
        The blocks to look into.
    share : float
        How many of a block's queries are taken; 1.0 for all.
    """

    blocks: tuple[int, ...]
    share: float

    @classmethod
    def of_rows(cls, blocks: Blocks, n_rows: int) -> Sample:
        """About so many rows from all over the data; everything where there are no more.

        Examples
        --------
        >>> blocks = QuerySetBlocks(QuerySet.from_arrays(np.zeros((100, 1)), group=[1] * 100), rows_per_block=10)
        >>> Sample.of_rows(blocks, 50).share, Sample.of_rows(blocks, 1000).share
        (0.5, 1.0)
        """
        if not len(blocks):
            raise DataError("there is no query to learn from")
        rows = [blocks.n_rows(block) for block in range(len(blocks))]
        enough = max(_SPREAD, -(-2 * n_rows * len(rows) // max(sum(rows), 1)))
        chosen = np.unique(np.linspace(0, len(rows) - 1, min(enough, len(rows))).astype(int)).tolist()
        found = sum(rows[block] for block in chosen)
        return cls(tuple(chosen), min(1.0, n_rows / max(found, 1)))

    def pick(self, parts: Iterable[QuerySet]) -> list[QuerySet]:
        """Of each part of a block the queries that are in the sample; a block may be without any."""
        return [self._some(part) for part in parts]

    def _some(self, part: QuerySet) -> QuerySet:
        if self.share == 1.0:
            return part
        wanted = max(1, round(self.share * len(part)))
        return part[np.unique(np.linspace(0, len(part) - 1, wanted).astype(np.int64))]
