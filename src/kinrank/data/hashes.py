"""Hashes of texts and ids: one for the ids of queries that a model has seen, a faster one for looking up memory."""

from __future__ import annotations

import hashlib
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

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
