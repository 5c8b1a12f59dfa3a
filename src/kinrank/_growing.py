"""Arrays that grow at their end without being copied, while earlier copies stay as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


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
        self._buffer = _Buffer(np.array(rows), len(rows))
        self._n = len(rows)

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
