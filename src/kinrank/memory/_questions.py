"""Known questions, in the order in which they were learned, found by their texts or by vectors of the caller.

What is found depends on the questions and their order alone: a memory that is opened again answers as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank._growing import GrowingRows
from kinrank.arrays import Float32, Int64
from kinrank.memory.kin import QueryIndex, Terms, Vocabulary, product_with, table_of

_TAIL = 256  # the last questions are compared one by one; each such number of them goes into an index
_BUCKETS = 2**19
_LEAST = 0.03  # similarity below which questions have nothing in common


class TextQuestions:
    """Questions by their character n-grams.

    The frequency of n-grams is counted again whenever the number of questions has doubled. In between, new questions
    go into indexes of 256, of which two of equal size become one.

    Examples
    --------
    >>> questions = TextQuestions()
    >>> questions.add(["how do I reset my password?", "opening hours"])
    >>> questions.nearest("password reset", 5)[0].tolist()
    [0]
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._vocabulary = Vocabulary.of([""])
        self._counted = 0
        self._indexes: dict[tuple[int, int], QueryIndex] = {}
        self._tail_start = 0
        self._tail = _growing(Terms(np.zeros(1, dtype=np.int64), np.empty(0, np.int32), np.empty(0, np.float32)))

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, questions: Sequence[str]) -> None:
        """Add questions after the others."""
        known = len(self)
        self._texts += questions
        counted = _power_of_two(len(self))
        bounds = _bounds(len(self))
        if counted == self._counted and bounds[-1] == self._tail_start:
            self._append(self._vocabulary.terms(self._texts[known:]))
            return
        if counted != self._counted:
            self._vocabulary, self._counted = Vocabulary.of(self._texts[:counted], most_buckets=_BUCKETS), counted
            self._indexes = {}
        kept, self._indexes = self._indexes, {}
        for part in pairwise(bounds):
            self._indexes[part] = kept.get(part) or QueryIndex().of_terms(self._vocabulary, self._terms(*part))
        self._tail_start = bounds[-1]
        self._tail = _growing(self._terms(self._tail_start, len(self)))

    def nearest(self, question: str, n: int) -> tuple[Int64, Float32]:
        """Return the positions and similarities of at most n similar questions, most similar first."""
        asked = self._vocabulary.terms([question])
        found, similar = [], []
        for (start, _), index in self._indexes.items():
            places, values = index.nearest(asked, n)
            found.append(places[0].astype(np.int64) + start)
            similar.append(values[0])
        found.append(np.arange(self._tail_start, len(self)))
        similar.append(_products(asked.term, asked.weight, *(part.rows for part in self._tail)))
        return _best(np.concatenate(found), np.concatenate(similar), n)

    def _terms(self, start: int, stop: int) -> Terms:
        return self._vocabulary.terms(self._texts[start:stop])

    def _append(self, terms: Terms) -> None:
        offsets, term, weight = self._tail
        ends = offsets.rows[-1] + terms.offsets[1:]
        self._tail = offsets.append(ends), term.append(terms.term), weight.append(terms.weight)


class VectorQuestions:
    """Questions by vectors; all are compared.

    Examples
    --------
    >>> questions = VectorQuestions()
    >>> questions.add([[1.0, 0.0], [0.0, 2.0]])
    >>> [values.tolist() for values in questions.nearest([3.0, 0.0], 5)]
    [[0], [1.0]]
    """

    def __init__(self) -> None:
        self._vectors: GrowingRows | None = None

    def __len__(self) -> int:
        return 0 if self._vectors is None else len(self._vectors)

    @property
    def width(self) -> int:
        """Length of a vector."""
        return 0 if self._vectors is None else int(self._vectors.rows.shape[1])

    def add(self, questions: Sequence[Any]) -> None:
        """Add questions after the others."""
        vectors = np.array([_unit(each) for each in questions], dtype=np.float32)
        if len(vectors):
            self._vectors = GrowingRows(vectors) if self._vectors is None else self._vectors.append(vectors)

    def nearest(self, question: Any, n: int) -> tuple[Int64, Float32]:
        """Return the positions and similarities of at most n similar questions, most similar first."""
        if self._vectors is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        return _best(np.arange(len(self)), self._vectors.rows @ _unit(question), n)


def _unit(vector: Any) -> Float32:
    values = np.asarray(vector, dtype=np.float32)
    return np.asarray(values / max(float(np.linalg.norm(values)), 1e-12), dtype=np.float32)


def _power_of_two(n: int) -> int:
    """Return the largest power of two that is not above n; 0 for 0."""
    return (1 << n.bit_length()) >> 1


def _bounds(n: int) -> list[int]:
    """Return where indexes of n questions start and end: their sizes are powers of two, largest first.

    Examples
    --------
    >>> _bounds(255), _bounds(1024 + 256 + 7)
    ([0], [0, 1024, 1280])
    """
    bounds, rest = [0], n // _TAIL
    while rest:
        size = _power_of_two(rest)
        bounds.append(bounds[-1] + size * _TAIL)
        rest -= size
    return bounds


def _growing(terms: Terms) -> tuple[GrowingRows, GrowingRows, GrowingRows]:
    return GrowingRows(terms.offsets), GrowingRows(terms.term), GrowingRows(terms.weight)


def _best(places: Int64, similar: NDArray[Any], n: int) -> tuple[Int64, Float32]:
    """Return the n most similar places, of equally similar ones the first."""
    near = similar > _LEAST
    places, similar = places[near], similar[near]
    if len(places) > 4 * n:
        near = similar >= np.partition(similar, len(similar) - n)[len(similar) - n]
        places, similar = places[near], similar[near]
    order = np.lexsort((places, -similar))[:n]
    return places[order], np.minimum(similar[order], np.float32(1.0)).astype(np.float32)


@numba.njit(cache=True, nogil=True)
def _products(asked, asked_weight, offsets, term, weight):  # type: ignore[no-untyped-def]
    """Return the scalar product of a text with each of others, to the bit as an index sums it that reads all."""
    found = np.zeros(len(offsets) - 1, dtype=np.float32)
    table = table_of(asked, asked_weight, 0, len(asked))
    for i in range(len(found)):
        found[i] = product_with(table, term, weight, offsets[i], offsets[i + 1], found[i])
    return found
