"""Array types used in signatures, and arrays that grow at their end without being copied."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

State = dict[str, NDArray[Any]]
"""The arrays of a fitted object by name, as a model folder stores them."""


def gather(offsets: Int64, groups: NDArray[Any]) -> tuple[Int64, Int64]:
    """Return the offsets of some groups of rows, in a given order, and the positions of their rows.

    Examples
    --------
    >>> [found.tolist() for found in gather(np.array([0, 2, 2, 5]), np.array([2, 0]))]
    [[0, 3, 5], [2, 3, 4, 0, 1]]
    """
    starts = offsets[groups]
    sizes = offsets[groups + 1] - starts
    ends = np.r_[0, np.cumsum(sizes)]
    return ends, np.repeat(starts - ends[:-1], sizes) + np.arange(ends[-1])


class _Buffer:
    """Memory for rows; `used` counts those that belong to the longest array over it."""

    def __init__(self, rows: NDArray[Any], used: int) -> None:
        self.rows = rows
        self.used = used


class GrowingRows:
    """Rows of an array. Appending returns a longer array and costs only the new rows, on average.

    An array and those appended to it share memory. Appending twice to the same array gives two arrays that differ: the
    second one gets memory of its own.

    The first rows are copied.

    Examples
    --------
    >>> one = GrowingRows(np.array([1, 2]))
    >>> more = one.append(np.array([3]))
    >>> other = one.append(np.array([4]))
    >>> one.rows.tolist(), more.rows.tolist(), other.rows.tolist()
    ([1, 2], [1, 2, 3], [1, 2, 4])
    """

    def __init__(self, rows: NDArray[Any]) -> None:
        memory = np.empty((len(rows) + max(64, len(rows) // 8), *rows.shape[1:]), dtype=rows.dtype)
        memory[: len(rows)] = rows
        self._buffer, self._n = _Buffer(memory, len(rows)), len(rows)

    @property
    def rows(self) -> NDArray[Any]:
        """The rows, not to be written to."""
        view = self._buffer.rows[: self._n]
        view.flags.writeable = False
        return view

    def append(self, rows: NDArray[Any]) -> GrowingRows:
        """Return an array with further rows."""
        buffer, end = self._buffer, self._n + len(rows)
        dtype = np.promote_types(buffer.rows.dtype, rows.dtype)
        if buffer.used != self._n or end > len(buffer.rows) or dtype != buffer.rows.dtype:
            memory = np.empty((max(64, 2 * end), *rows.shape[1:]), dtype=dtype)
            memory[: self._n] = buffer.rows[: self._n]
            buffer = _Buffer(memory, self._n)
        buffer.rows[self._n : end] = rows
        buffer.used = end
        longer = object.__new__(GrowingRows)
        longer._buffer, longer._n = buffer, end
        return longer

    def __len__(self) -> int:
        return self._n


TableT = TypeVar("TableT", bound=tuple[NDArray[Any], ...])


class GrowingTable(Generic[TableT]):
    """Columns of groups of rows, after the offsets of the groups, that grow as `GrowingRows` do.

    Examples
    --------
    >>> table = GrowingTable(tuple, (np.array([0, 2]), np.array([5, 6])))
    >>> [column.tolist() for column in table.append((np.array([0, 1, 1]), np.array([7]))).table]
    [[0, 2, 3, 3], [5, 6, 7]]
    """

    def __init__(self, kind: Callable[..., TableT], table: TableT) -> None:
        self._make = kind
        self._columns = [GrowingRows(column) for column in table]

    @property
    def table(self) -> TableT:
        """The offsets and columns, not to be written to."""
        return self._make(column.rows for column in self._columns)

    def append(self, table: TableT) -> Self:
        """Return a table with further groups."""
        longer = copy(self)
        offsets = self._columns[0]
        ends = offsets.rows[-1] + table[0][1:]
        rows = (column.append(values) for column, values in zip(self._columns[1:], table[1:], strict=True))
        longer._columns = [offsets.append(ends), *rows]
        return longer
