"""Texts by the hash of an id, in arrays that can be saved and mapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import State
from kinrank.data.hashes import IdHashes, hash_ids

LONGEST = 100
"""`TextTable.of` cuts texts after this many characters."""


class TextTable:
    """Texts by id, found by the hash of the id; about 40 bytes each for short texts.

    Parameters
    ----------
    hashes
        The ids, hashed, ascending.
    ends
        Where each text ends among the bytes.
    utf8
        All texts, one after another.

    Examples
    --------
    >>> table = TextTable.of(np.array([7, 3, 7]), np.array(["heat", "alien", "heat"]))
    >>> table.find(np.array(["3", "5"])), len(table)
    (['alien', None], 2)
    """

    def __init__(self, hashes: IdHashes, ends: NDArray[np.int64], utf8: NDArray[np.uint8]) -> None:
        # Plain arrays: a compiled function takes far longer to recognize a subclass.
        self.hashes, self.ends, self.utf8 = np.asarray(hashes), np.asarray(ends), np.asarray(utf8)

    @classmethod
    def of(cls, ids: NDArray[Any], texts: NDArray[Any], most: int | None = None) -> TextTable:
        """Return the first text of each id, hashed by `hash_ids`.

        Empty texts are left out, and texts of more than `most` ids.
        """
        _, rows = np.unique(ids, return_index=True)
        rows = np.sort(rows)
        rows = rows[texts[rows] != ""][:most]
        return cls.of_hashes(hash_ids(ids[rows]), [text[:LONGEST] for text in texts[rows].tolist()])

    @classmethod
    def of_hashes(cls, hashes: IdHashes, texts: Sequence[str]) -> TextTable:
        """Return the first text of each hash.

        Examples
        --------
        >>> TextTable.of_hashes(np.array([9, 4, 9], dtype=np.uint64), ["heat", "alien", "?"]).ends.tolist()
        [5, 9]
        """
        known, rows = np.unique(hashes, return_index=True)
        return cls._of_encoded(known, [texts[row].encode(errors="surrogatepass") for row in rows.tolist()])

    @classmethod
    def _of_encoded(cls, hashes: IdHashes, texts: list[bytes]) -> TextTable:
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return cls(hashes, ends, np.frombuffer(b"".join(texts), dtype=np.uint8))

    def __len__(self) -> int:
        return len(self.hashes)

    def _encoded(self, place: int) -> bytes:
        start = self.ends[place - 1] if place else 0
        return self.utf8[start : self.ends[place]].tobytes()

    def find(self, ids: NDArray[Any]) -> list[str | None]:
        """Return the text of each id, None for those without one."""
        return self.find_hashes(hash_ids(ids))

    def find_hashes(self, hashes: IdHashes) -> list[str | None]:
        """Return the text of each hash, None for those without one."""
        return [
            self._encoded(place).decode(errors="surrogatepass") if has else None
            for place, has in zip(*self._find(hashes), strict=True)
        ]

    def all(self) -> list[str]:
        """Return all texts."""
        return [self._encoded(place).decode(errors="surrogatepass") for place in range(len(self))]

    def _find(self, hashes: IdHashes) -> tuple[list[int], list[bool]]:
        if not len(self):
            return [0] * len(hashes), [False] * len(hashes)
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self) - 1)
        return places.tolist(), (self.hashes[places] == hashes).tolist()

    def take(self, ids: NDArray[Any]) -> TextTable:
        """Return the texts of some ids only."""
        hashes = np.unique(hash_ids(ids))
        known = [(value, place) for value, place, has in zip(hashes, *self._find(hashes), strict=True) if has]
        found = np.array([value for value, _ in known], dtype=np.uint64)
        return self._of_encoded(found, [self._encoded(place) for _, place in known])

    def joined(self, newer: TextTable) -> TextTable:
        """Return all texts of both; the newer text of an id in both.

        Examples
        --------
        >>> one = TextTable.of(np.array([7, 3]), np.array(["heat", "alien"]))
        >>> one.joined(TextTable.of(np.array([3, 5]), np.array(["aliens", "big"]))).find(np.array([7, 3, 5]))
        ['heat', 'aliens', 'big']
        """
        if not len(newer) or not len(self):
            return newer if len(newer) else self
        hashes, ends = np.empty(len(self) + len(newer), np.uint64), np.empty(len(self) + len(newer), np.int64)
        utf8 = np.empty(len(self.utf8) + len(newer.utf8), np.uint8)
        old, new = (self.hashes, self.ends, self.utf8), (newer.hashes, newer.ends, newer.utf8)
        n, size = _merge_texts(old, new, hashes, ends, utf8)
        return TextTable(hashes[:n], ends[:n], utf8[:size])

    def get_state(self) -> State:
        """Return the arrays; none of an empty table."""
        return {"hashes": self.hashes, "ends": self.ends, "utf8": self.utf8} if len(self) else {}

    @classmethod
    def from_state(cls, state: State) -> TextTable:
        """Restore from the arrays of `get_state`."""
        return cls(**state) if state else NO_TEXTS


NO_TEXTS = TextTable._of_encoded(np.empty(0, dtype=np.uint64), [])


@numba.njit(cache=True, nogil=True)
def _merge_texts(old, new, hashes, ends, utf8):  # type: ignore[no-untyped-def]
    """Merge two tables into the last three arrays, and return the numbers of texts and bytes."""
    i, j, n, size = 0, 0, 0, 0
    while i < len(old[0]) or j < len(new[0]):
        from_new = i == len(old[0]) or (j < len(new[0]) and new[0][j] <= old[0][i])
        if from_new:
            start, stop = new[1][j - 1] if j else 0, new[1][j]
            hashes[n] = new[0][j]
            i += i < len(old[0]) and old[0][i] == new[0][j]
            j += 1
        else:
            start, stop = old[1][i - 1] if i else 0, old[1][i]
            hashes[n] = old[0][i]
            i += 1
        for letter in range(start, stop):
            utf8[size] = new[2][letter] if from_new else old[2][letter]
            size += 1
        ends[n] = size
        n += 1
    return n, size
