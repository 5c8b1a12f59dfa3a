"""Compiled parts of `kinrank.data.evidence`: hash texts, find the candidates of queries, merge sorted cells."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.data.id_hashes import IdHashes

_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # of FNV-1a
_MIX_1, _MIX_2, _SHIFT = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53), np.uint64(33)


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


@numba.njit(cache=True, nogil=True)
def add_totals(query, offsets, document, day, looks, choices, few, keys, rows, documents, first_day, weight, total):  # type: ignore[no-untyped-def]
    """Add the weighted looks and choices of the candidates of each query to the first two rows of `total`.

    Those of too few clients are also added to the last two rows, and whether there are any is returned.
    The weight of a day is ``weight[day - first_day]``; days outside count 0, and the last weight is for cells without
    a day.
    """
    any_few = False
    for i in range(len(keys)):
        place = lower_bound(query, keys[i], 0, len(query))
        if place == len(query) or query[place] != keys[i]:
            continue
        start, stop = offsets[place], offsets[place + 1]
        for row in range(rows[i], rows[i + 1]):
            cell = lower_bound(document, documents[row], start, stop)
            while cell < stop and document[cell] == documents[row]:
                number = day[cell] - first_day
                if day[cell] < 0:
                    number = len(weight) - 1
                if 0 <= number < len(weight):
                    total[0, row] += weight[number] * looks[cell]
                    total[1, row] += weight[number] * choices[cell]
                    if few[cell]:
                        any_few = True
                        total[2, row] += weight[number] * looks[cell]
                        total[3, row] += weight[number] * choices[cell]
                cell += 1
    return any_few


@numba.njit(cache=True, nogil=True)
def merge_cells(a, b, out, replace):  # type: ignore[no-untyped-def]
    """Merge two sorted sets of cells, and return the numbers of cells and of queries.

    Equal cells add up or, if `replace`, those of `b` count. A sum is of too few clients if both are.

    `a` and `b` are tuples of the arrays of an `Evidence`, `out` of the same for the result. With an empty `out`, only
    count.
    """
    write = len(out[0]) > 0
    n_cells, n_queries, i, j = 0, 0, 0, 0
    while i < len(a[0]) or j < len(b[0]):
        first = j == len(b[0]) or (i < len(a[0]) and a[0][i] <= b[0][j])
        second = i == len(a[0]) or (j < len(b[0]) and b[0][j] <= a[0][i])
        key = a[0][i] if first else b[0][j]
        x, x_end = (a[1][i], a[1][i + 1]) if first else (0, 0)
        y, y_end = (b[1][j], b[1][j + 1]) if second else (0, 0)
        if write:
            out[0][n_queries] = key
            out[1][n_queries] = n_cells
        while x < x_end or y < y_end:
            left = y == y_end
            right = x == x_end
            if not left and not right:
                left = a[2][x] < b[2][y] or (a[2][x] == b[2][y] and a[3][x] <= b[3][y])
                right = b[2][y] < a[2][x] or (a[2][x] == b[2][y] and b[3][y] <= a[3][x])
            if write:
                out[2][n_cells] = a[2][x] if left else b[2][y]
                out[3][n_cells] = a[3][x] if left else b[3][y]
                first_counts = left and not (replace and right)
                out[4][n_cells] = (a[4][x] if first_counts else 0.0) + (b[4][y] if right else 0.0)
                out[5][n_cells] = (a[5][x] if first_counts else 0.0) + (b[5][y] if right else 0.0)
                out[6][n_cells] = (not first_counts or a[6][x]) and (not right or b[6][y])
            x += left
            y += right
            n_cells += 1
        i += first
        j += second
        n_queries += 1
    if write:
        out[1][n_queries] = n_cells
    return n_cells, n_queries
