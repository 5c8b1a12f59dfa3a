"""Judged queries as numbered blocks that workers can read in any order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import State
from kinrank.data.files import PathLike
from kinrank.data.queryset import QuerySet
from kinrank.errors import DamagedFolderError, DataError, FileFormatError, ParameterError
from kinrank.folder import MANIFEST

SAMPLE_ROWS = 1 << 20
"""Maximum number of rows that scales, descriptions and encoders are fitted on: 193 MB with 46 features."""

_MIN_BLOCKS = 32  # per sample, so that it represents data that is sorted in some way


class Blocks(ABC):
    """Queries split into blocks that depend on the data only.

    A result that is computed block by block and combined in block order is therefore the same for any number of
    workers, whichever finishes first or fails.
    """

    feature_names: tuple[str, ...]

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of blocks."""

    @abstractmethod
    def split(self, rows_per_block: int) -> Self:
        """Split again, into blocks of about `rows_per_block` rows."""

    @abstractmethod
    def n_rows(self, block: int) -> int:
        """Return the approximate number of rows of a block, without reading it."""

    @abstractmethod
    def read(self, block: int) -> Iterator[QuerySet]:
        """Yield the queries of a block in order, in parts that fit in memory."""

    @abstractmethod
    def name(self, block: int) -> str:
        """Return where the block is stored, for error messages."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a text that changes with the data and with how it is split."""

    def head(self) -> QuerySet:
        """Return the first queries, as many as are read at once."""
        return next(iter(self.read(0)))

    def total_rows(self) -> int:
        """Return the approximate number of rows of all blocks, without reading them."""
        return sum(self.n_rows(block) for block in range(len(self)))

    def n_queries(self) -> int:
        """Return the approximate number of queries, by the rows of those that are read first."""
        first = self.head()
        return max(1, round(self.total_rows() * len(first) / max(first.n_rows, 1)))

    @contextmanager
    def error_context(self, block: int) -> Iterator[None]:
        """Add the block name to error messages."""
        try:
            yield
        except FileFormatError:  # names the file
            raise
        except DataError as error:
            raise DataError(f"{self.name(block)}: {error}") from error


class QuerySetBlocks(Blocks):
    """Blocks of a QuerySet, in memory or memory-mapped.

    A query with more than `rows_per_block` rows is a block of its own.

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
        self.split(rows_per_block)

    def split(self, rows_per_block: int) -> Self:
        """Split again, between queries."""
        check_rows_per_block(rows_per_block)
        self.starts = _block_starts(self.queries, rows_per_block)
        return self

    def __len__(self) -> int:
        return len(self.starts) - 1

    def n_rows(self, block: int) -> int:
        """Return the number of rows of a block."""
        first, last = self.starts[block], self.starts[block + 1]
        return int(self.queries.offsets[last] - self.queries.offsets[first])

    def read(self, block: int) -> Iterator[QuerySet]:
        """Yield the block as one part, without copying."""
        yield self.queries[self.starts[block] : self.starts[block + 1]]

    def name(self, block: int) -> str:
        """Return the range of queries in the block."""
        return f"queries {self.starts[block]:,} to {self.starts[block + 1] - 1:,}"

    def fingerprint(self) -> str:
        """Return sizes, features and the first and last id, without reading a memory-mapped set."""
        ids = self.queries.qid[[0, -1]].tolist() if len(self.queries) else []
        return repr((self.feature_names, self.queries.n_rows, self.starts, ids))


class FolderBlocks(QuerySetBlocks):
    """Blocks of a folder that `QuerySet.save` or `kinrank data convert` wrote.

    Another process receives only the path and memory-maps the folder, so every worker must be able to read it.
    """

    def __init__(self, path: PathLike, rows_per_block: int) -> None:
        super().__init__(QuerySet.open(path), rows_per_block)
        self.path = str(Path(path).absolute())  # a worker may have another working directory

    def split(self, rows_per_block: int) -> Self:
        """Split again, between queries."""
        self.rows_per_block = rows_per_block
        return super().split(rows_per_block)

    def __reduce__(self) -> tuple[type[FolderBlocks], tuple[str, int]]:
        return type(self), (self.path, self.rows_per_block)

    def name(self, block: int) -> str:
        """Return the folder and the range of queries."""
        return f"{self.path}, {super().name(block)}"

    def fingerprint(self) -> str:
        """Return the manifest, which has the checksum of every file, and the split."""
        return repr(((Path(self.path) / MANIFEST).read_text(), self.starts))


def check_rows_per_block(rows_per_block: int) -> None:
    """Raise ParameterError if blocks would have no rows."""
    if rows_per_block < 1:
        raise ParameterError(f"rows_per_block must be at least 1, got {rows_per_block}")


def _block_starts(queries: QuerySet, rows_per_block: int) -> list[int]:
    """Return the position of the first query of each block, then the number of queries."""
    starts = [0]
    while starts[-1] < len(queries):
        most = int(queries.offsets[starts[-1]]) + rows_per_block
        starts.append(max(starts[-1] + 1, int(queries.offsets.searchsorted(most, side="right")) - 1))
    return starts


@dataclass(frozen=True)
class Sample:
    """A sample of the queries: evenly spaced queries of evenly spaced blocks."""

    blocks: tuple[int, ...]
    """The blocks to read."""
    share: float
    """The share of a block's queries in the sample; 1.0 for all."""

    @classmethod
    def of_rows(cls, blocks: Blocks, n_rows: int) -> Sample:
        """Return a sample of about `n_rows` rows, or all of the data if it has fewer.

        Examples
        --------
        >>> blocks = QuerySetBlocks(QuerySet.from_arrays(np.zeros((100, 1)), group=[1] * 100), rows_per_block=10)
        >>> Sample.of_rows(blocks, 50).share, Sample.of_rows(blocks, 1000).share
        (0.5, 1.0)
        """
        if not len(blocks):
            raise DataError("there are no queries to learn from: check the data")
        rows = [blocks.n_rows(block) for block in range(len(blocks))]
        enough = max(_MIN_BLOCKS, -(-2 * n_rows * len(rows) // max(sum(rows), 1)))
        chosen = np.unique(np.linspace(0, len(rows) - 1, min(enough, len(rows))).astype(int)).tolist()
        n_chosen = sum(rows[block] for block in chosen)
        return cls(tuple(chosen), min(1.0, n_rows / max(n_chosen, 1)))

    def select(self, parts: Iterable[QuerySet]) -> list[QuerySet]:
        """Return the sampled queries of each part of a block; a block may have none."""
        return [self.of(part) for part in parts]

    def of(self, part: QuerySet) -> QuerySet:
        """Return the sampled queries of a part of a block."""
        return part if self.share == 1.0 else part[self.chosen(len(part))]

    def chosen(self, n_queries: int) -> NDArray[np.bool_]:
        """Return which queries of a part of a block are in the sample."""
        chosen = np.zeros(n_queries, dtype=np.bool_)
        wanted = n_queries if self.share == 1.0 else max(1, round(self.share * n_queries))
        chosen[np.linspace(0, n_queries - 1, wanted).astype(np.int64)] = True
        return chosen


class Store(Protocol):
    """Keeps intermediate results of training by name: in this process, or where workers share them."""

    def names(self) -> set[str]:
        """Return the names of the finished results."""

    def write(self, name: str, state: State) -> None:
        """Keep a result."""

    def read(self, name: str) -> State:
        """Return a result; raise `DamagedFolderError` if it is missing or damaged."""


class InProcessStore:
    """A store in this process."""

    def __init__(self) -> None:
        self._results: dict[str, State] = {}

    def names(self) -> set[str]:
        """Return the names of the finished results."""
        return set(self._results)

    def write(self, name: str, state: State) -> None:
        """Keep a result."""
        self._results[name] = state

    def read(self, name: str) -> State:
        """Return a result; raise `DamagedFolderError` if it is missing."""
        try:
            return self._results[name]
        except KeyError:
            raise DamagedFolderError(f"{name} has not been computed") from None
