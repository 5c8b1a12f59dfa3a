"""Hashes of texts and ids, and texts by the hash of an id."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import State
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, normalize_text

IdHashes = NDArray[np.uint64]
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # of FNV-1a
_MIX_1, _MIX_2, _SHIFT = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53), np.uint64(33)


def hash_ids(qid: NDArray[Any]) -> IdHashes:
    """Return a 64-bit hash of each id as text, so that query 301 of a file equals query "301" of a table.

    Examples
    --------
    >>> np.array_equal(hash_ids(np.array([301, 7])), hash_ids(np.array(["301", "7"])))
    True
    """
    digests = [hashlib.blake2b(str(value).encode(), digest_size=8).digest() for value in qid.tolist()]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64, copy=False)


def hash_texts(texts: NDArray[Any]) -> IdHashes:
    """Return a 64-bit hash of each id as text; 100 ids take about two microseconds.

    Examples
    --------
    >>> bool((hash_texts(np.array([301, 7])) == hash_texts(np.array(["301", "7"]))).all())
    True
    """
    hashes: IdHashes = _hash_rows(*_letters(texts), False)[0]
    return hashes


def hash_ascii(texts: NDArray[Any]) -> IdHashes | None:
    """Return the hash of each text as `kinrank.data.texts.normalize_text` returns it; None if one is not ASCII.

    Examples
    --------
    >>> bool((hash_ascii(np.array([" Toy  STORY", "heat"])) == hash_texts(np.array(["toy story", "heat"]))).all())
    True
    """
    hashes, ascii_only = _hash_rows(*_letters(texts), True)
    return hashes if ascii_only else None


def query_keys(texts: NDArray[Any]) -> IdHashes:
    """Return the hash of each query text, without regard to case, spaces and Unicode form."""
    hashes = hash_ascii(texts)
    if hashes is None:
        hashes = hash_texts(np.array([normalize_text(str(text)) for text in texts.tolist()], dtype=np.str_))
    return hashes


def keys_of(queries: QuerySet) -> IdHashes | None:
    """Return the hash of the text of each query; None without texts."""
    texts = queries.query_columns.get(TEXT)
    return None if texts is None else query_keys(texts)


def hashes_of(queries: QuerySet) -> tuple[IdHashes, IdHashes] | None:
    """Return the hashes of the texts of queries and of their documents; None without either."""
    keys = None if queries.doc_id is None else keys_of(queries)
    return None if keys is None or queries.doc_id is None else (keys, hash_texts(queries.doc_id))


def pair_hashes(query: IdHashes, document: IdHashes) -> IdHashes:
    """Return one hash of the hashes of a query and of a document.

    Examples
    --------
    >>> one, two = np.array([1], dtype=np.uint64), np.array([2], dtype=np.uint64)
    >>> bool(pair_hashes(one, two)[0] == pair_hashes(two, one)[0])
    False
    """
    return (query * _MIX_1) ^ document


def _letters(texts: NDArray[Any]) -> tuple[NDArray[np.uint32], int, int]:
    """Return the letters of all texts, their number, and the letters of each."""
    if texts.dtype.kind != "U":
        texts = texts.astype(np.str_)
    width = texts.dtype.itemsize // 4
    return np.ascontiguousarray(texts).view(np.uint32) if width else np.empty(0, dtype=np.uint32), len(texts), width


def hash_arrow(texts: Any) -> tuple[IdHashes, NDArray[np.bool_]]:
    """Return the hashes of an Arrow array of strings, as `hash_texts` does, and which are surely normalized.

    A text is surely normalized, as `kinrank.data.texts.normalize_text` does, if it is of ASCII letters without capitals
    and single spaces between words. The hash of a null is that of an empty text.
    """
    import pyarrow as pa

    _, offsets, data = texts.buffers()
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    starts = np.frombuffer(offsets, dtype=width)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    hashes, normal = np.empty(len(texts), dtype=np.uint64), np.empty(len(texts), dtype=np.bool_)
    _hash_utf8(starts, letters, hashes, normal)
    return hashes, normal


@numba.njit(cache=True, nogil=True)
def _finished(value):  # type: ignore[no-untyped-def]
    value ^= value >> _SHIFT
    value *= _MIX_1
    value ^= value >> _SHIFT
    value *= _MIX_2
    return value ^ (value >> _SHIFT)


@numba.njit(cache=True, nogil=True)
def _hash_rows(letters, n, width, normalize):  # type: ignore[no-untyped-def]
    """Return the hashes of texts, normalized as ASCII if `normalize`, and whether they then are ASCII."""
    found, ascii_only = np.empty(n, dtype=np.uint64), True
    for i in range(n):
        start, stop = i * width, (i + 1) * width
        while stop > start and letters[stop - 1] == 0:  # NumPy pads with zeros
            stop -= 1
        value, words, after_space = _OFFSET, False, False
        for letter in letters[start:stop]:
            if normalize:
                ascii_only &= letter < 128
                if 9 <= letter <= 13 or 28 <= letter <= 32:
                    after_space = True
                    continue
                if after_space and words:
                    value = (value ^ np.uint64(32)) * _PRIME
                words, after_space = True, False
                if 65 <= letter <= 90:
                    letter += np.uint32(32)
            value = (value ^ np.uint64(letter)) * _PRIME
        found[i] = _finished(value)
    return found, ascii_only


@numba.njit(cache=True, nogil=True)
def _hash_utf8(starts, data, found, normal):  # type: ignore[no-untyped-def]
    for i in range(len(found)):
        value = _OFFSET
        place = starts[i]
        plain, after_space = True, True
        while place < starts[i + 1]:
            byte = np.uint64(data[place])
            size = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            letter = byte if size == 1 else byte & np.uint64(0xFF >> (size + 1))
            for following in range(1, size):
                letter = (letter << np.uint64(6)) | np.uint64(data[place + following] & 0x3F)
            space = letter == 32
            if not 32 <= letter < 127 or 65 <= letter <= 90 or (space and after_space):
                plain = False
            after_space = space
            value = (value ^ letter) * _PRIME
            place += size
        found[i] = _finished(value)
        normal[i] = plain and not after_space


@numba.njit(cache=True, nogil=True)
def lower_bound(values, target, low, high):  # type: ignore[no-untyped-def]
    """Return the first position between two that does not hold a lower value than the target."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low


LONGEST = 100
"""`TextTable.of` cuts texts after this many characters."""


class TextTable:
    """Texts by id, found by the hash of the id; about 40 bytes each for short texts.

    The hashes of the ids are ascending; `ends` tells where each text ends among the bytes.

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
