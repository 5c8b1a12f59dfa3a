"""Find the kin of a query: the known queries whose texts are most like its own.

A text is a sparse vector of unit length: its character n-grams (three to five characters, within words), weighted by
TF-IDF. The similarity of two texts is the cosine of their vectors. An inverted index, from n-grams to texts, finds the
most similar ones without reading the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.hashes import IdHashes
from kinrank.describe.encoders.ngrams import fold

NEIGHBORS = 50
"""How many kin of a query count."""
FAMILY = 0.6
"""Texts with a higher similarity are near-duplicates: they belong to one family."""
_SHORTEST, _LONGEST = 3, 5
_MOST_BUCKETS, _LEAST_BUCKETS = 2**22, 2**12
_SPREAD = np.int64(0x9E3779B1)
_MOST_READ = 32_000  # entries of the index to read for a query; from there on, only its rarest n-grams count
_SEED, _PRIME, _MIX = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3), np.uint64(0xFF51AFD7ED558CCD)
_SHIFT, _SPACE = np.uint64(32), np.uint32(32)


class Terms(NamedTuple):
    """The terms of texts with their weights: text ``i`` owns ``offsets[i]:offsets[i + 1]``, ascending by term."""

    offsets: Int64
    term: NDArray[np.int32]
    weight: Float32

    def take(self, texts: NDArray[Any]) -> Terms:
        """Return those of some texts."""
        starts, sizes = self.offsets[texts], np.diff(self.offsets)[texts]
        offsets = np.r_[0, np.cumsum(sizes)]
        rows = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
        return Terms(offsets, self.term[rows], self.weight[rows])

    def joined(self, other: Terms) -> Terms:
        """Return those of these and of further texts."""
        offsets = np.r_[self.offsets, self.offsets[-1] + other.offsets[1:]]
        return Terms(offsets, np.r_[self.term, other.term], np.r_[self.weight, other.weight])


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Turns texts into `Terms`: by words, or by n-grams. Terms are hashes, so that none is unknown."""

    idf: Float32
    """The weight of each term, by its hash."""
    words: bool
    """Whether terms are words; else character n-grams."""

    @classmethod
    def of(cls, texts: Sequence[str], *, words: bool = False, most_buckets: int = _MOST_BUCKETS) -> Vocabulary:
        """Learn how frequent terms are.

        Parameters
        ----------
        texts
            The texts to count in.
        words
            Whether terms are words; else character n-grams.
        most_buckets
            How many different terms are told apart, at most; a power of two.

        Examples
        --------
        >>> vocabulary = Vocabulary.of(["toy story", "toy shop"], words=True)
        >>> [round(weight, 2) for weight in vocabulary.terms(["toy story"]).weight.tolist()]
        [0.58, 0.81]
        """
        letters, ends = _letters(texts)
        size = int(np.clip(4 * 2 ** int(np.ceil(np.log2(len(letters) + 1))), _LEAST_BUCKETS, most_buckets))
        nothing = np.ones(size, dtype=np.float32)
        frequency = np.bincount(_terms(letters, ends, nothing, words)[1], minlength=size)
        return cls((np.log((1 + len(ends)) / (1 + frequency)) + 1).astype(np.float32), words)

    def terms(self, texts: Sequence[str]) -> Terms:
        """Return the terms of texts, each text of unit length."""
        return Terms(*_terms(*_letters(texts), self.idf, self.words))


class QueryIndex:
    """Known queries, found by their texts.

    Attributes
    ----------
    vocabulary_ : Vocabulary
        The n-grams.
    terms_ : Terms
        Those of each known text.

    Examples
    --------
    >>> index = QueryIndex().fit(["toy story", "toy story 2", "heat"])
    >>> places, similarities = index.nearest(index.vocabulary_.terms(["toy storry"]), 2)
    >>> places.tolist(), bool(similarities[0, 0] > similarities[0, 1] > 0.3)
    ([[0, 1]], True)
    """

    def fit(self, texts: Sequence[str]) -> Self:
        """Index texts."""
        vocabulary = Vocabulary.of(texts)
        return self.of_terms(vocabulary, vocabulary.terms(texts))

    def of_terms(self, vocabulary: Vocabulary, terms: Terms) -> Self:
        """Index texts, given by their terms in a vocabulary."""
        self.vocabulary_, self.terms_ = vocabulary, terms
        counts = np.bincount(terms.term, minlength=len(vocabulary.idf))
        self._starts = np.r_[0, np.cumsum(counts)]
        order = np.argsort(terms.term, kind="stable")
        owner = np.repeat(np.arange(len(self), dtype=np.int32), np.diff(terms.offsets))
        self._text, self._weight = owner[order], terms.weight[order]
        return self

    def of_others(self, terms: Terms) -> QueryIndex:
        """Return an index of other texts, given by their terms in this vocabulary."""
        return QueryIndex().of_terms(self.vocabulary_, terms)

    def __len__(self) -> int:
        return len(self.terms_.offsets) - 1

    def nearest(
        self,
        asked: Terms,
        n: int = NEIGHBORS,
        allowed: NDArray[np.bool_] | None = None,
        keys: tuple[IdHashes, IdHashes] | None = None,
    ) -> tuple[NDArray[np.int32], Float32]:
        """Return the positions and similarities of the most similar known texts, most similar first.

        Parameters
        ----------
        asked
            The texts to look for, in this vocabulary.
        n
            How many to return; fewer have position -1 and similarity 0.
        allowed
            Which known texts may be returned; None: all.
        keys
            A key of each known text and of each text to look for. Known texts with the same key are not returned.
        """
        allowed = np.ones(0, dtype=np.bool_) if allowed is None else allowed
        known_key, key = (np.empty(0, dtype=np.uint64),) * 2 if keys is None else keys
        found: tuple[NDArray[np.int32], Float32] = _nearest(
            *asked, self._starts, self._text, self._weight, *self.terms_, n, allowed, known_key, key, _MOST_READ
        )
        return found

    def families(self, above: float = FAMILY) -> Int64:
        """Return the family of each known text: texts that are more similar than `above` are in one, and so on.

        Only pairs that share enough of the rarer n-grams are compared: the others could not make them so similar.

        Examples
        --------
        >>> texts = ["frozen 2 cast", "cast of frozen 2", "frozen 2 cast list", "heat"]
        >>> QueryIndex().fit(texts).families().tolist()
        [0, 0, 0, 3]
        """
        found: Int64 = _families(*self.terms_, self._starts, self._text, self._weight, above)
        return found

    def get_state(self) -> State:
        """Return everything learned."""
        return {"idf": self.vocabulary_.idf, **self.terms_._asdict()}

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        terms = Terms(*(np.asarray(state[name]) for name in Terms._fields))
        return self.of_terms(Vocabulary(np.asarray(state["idf"]), words=False), terms)


def families_of(texts: Iterable[Any], above: float = FAMILY) -> Int64:
    """Return the family of each text, such as the query column text; see `QueryIndex.families`.

    Examples
    --------
    >>> families_of(["frozen cast", "heat", "Frozen  cast"]).tolist()
    [0, 1, 0]
    """
    listed = [str(text) for text in texts]
    return QueryIndex().fit(listed).families(above) if listed else np.empty(0, dtype=np.int64)


def nearest_similarity(texts: Iterable[Any], known: Iterable[Any]) -> Float64:
    """Return how similar each text is to the most similar known one, between 0 and 1.

    Examples
    --------
    >>> nearest_similarity(["toy story", "alien"], ["Toy Story", "heat"]).round(2).tolist()
    [1.0, 0.0]
    """
    index = QueryIndex().fit([str(text) for text in known])
    found = index.nearest(index.vocabulary_.terms([str(text) for text in texts]), 1)[1]
    return found[:, 0].astype(np.float64)


def _letters(texts: Sequence[str]) -> tuple[NDArray[np.uint32], Int64]:
    """Return the letters of all texts, one after the other, and where each ends."""
    folded = [fold(text) for text in texts]
    ends = np.cumsum([len(text) for text in folded], dtype=np.int64)
    return np.frombuffer("".join(folded).encode("utf-32-le", "surrogatepass"), dtype=np.uint32), ends


@numba.njit(cache=True, nogil=True)
def _is_letter(letter):  # type: ignore[no-untyped-def]
    return 48 <= letter <= 57 or 97 <= letter <= 122 or 65 <= letter <= 90 or letter > 127


@numba.njit(cache=True, nogil=True)
def _hash(letters, start, stop, before, after, mask):  # type: ignore[no-untyped-def]
    """Return the hash of letters, with a space before or after them."""
    value = _SEED
    if before:
        value = (value ^ np.uint64(_SPACE)) * _PRIME
    for place in range(start, stop):
        value = (value ^ np.uint64(letters[place])) * _PRIME
    if after:
        value = (value ^ np.uint64(_SPACE)) * _PRIME
    value = (value ^ (value >> _SHIFT)) * _MIX
    return np.int32((value ^ (value >> _SHIFT)) & mask)


@numba.njit(cache=True, nogil=True)
def _terms(letters, ends, idf, words):  # type: ignore[no-untyped-def]
    """Return the arrays of `Terms`: the weight of a term is (1 + log count) idf, then texts are scaled to length 1."""
    mask = np.uint64(len(idf) - 1)
    longest = 0
    start = 0
    for i in range(len(ends)):
        longest = max(longest, ends[i] - start)
        start = ends[i]
    buffer = np.empty((_LONGEST - _SHORTEST + 1) * (2 * longest + 2) + 1, dtype=np.int32)
    offsets = np.zeros(len(ends) + 1, dtype=np.int64)
    capacity = max(16, 4 * len(letters))
    term, weight = np.empty(capacity, dtype=np.int32), np.empty(capacity, dtype=np.float32)
    total, start = 0, 0
    for i in range(len(ends)):
        n, place, stop = 0, start, ends[i]
        while place < stop:
            if not _is_letter(letters[place]):
                place += 1
                continue
            end = place
            while end < stop and _is_letter(letters[end]):
                end += 1
            if words:
                buffer[n] = _hash(letters, place, end, False, False, mask)
                n += 1
            else:
                padded = end - place + 2
                for length in range(_SHORTEST, min(_LONGEST, padded) + 1):
                    for first in range(padded - length + 1):  # in the word with a space before and after it
                        last = first + length
                        before, after = first == 0, last == padded
                        from_, to = place + max(first - 1, 0), place + min(last - 1, padded - 2)
                        buffer[n] = _hash(letters, from_, to, before, after, mask)
                        n += 1
            place = end
        start = stop
        own = np.sort(buffer[:n])
        while total + n > capacity:
            capacity *= 2
            larger, heavier = np.empty(capacity, dtype=np.int32), np.empty(capacity, dtype=np.float32)
            larger[:total], heavier[:total] = term[:total], weight[:total]
            term, weight = larger, heavier
        first, squares, j = total, 0.0, 0
        while j < n:
            count = 1
            while j + count < n and own[j + count] == own[j]:
                count += 1
            term[total] = own[j]
            weight[total] = (1.0 + np.log(count)) * idf[own[j]]
            squares += weight[total] * weight[total]
            total += 1
            j += count
        if squares > 0:
            scale = np.float32(1.0 / np.sqrt(squares))
            for j in range(first, total):
                weight[j] *= scale
        offsets[i + 1] = total
    return offsets, term[:total].copy(), weight[:total].copy()


@numba.njit(cache=True, nogil=True)
def table_of(term, weight, start, stop):  # type: ignore[no-untyped-def]
    """Return a hash table of the terms of a text: their weights, and which of them is in each place, or -1."""
    size = 2
    while size < 4 * (stop - start):
        size *= 2
    owner, values = np.full(size, -1, dtype=np.int32), np.zeros(size, dtype=np.float32)
    for j in range(start, stop):
        slot = term[j] & (size - 1)
        while owner[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        owner[slot], values[slot] = term[j], weight[j]
    return owner, values


@numba.njit(cache=True, nogil=True)
def product_with(table, term, weight, start, stop, total):  # type: ignore[no-untyped-def]
    """Add the scalar product of a text, given by its table, and another one to a total, in the total's precision."""
    owner, values = table
    for j in range(start, stop):
        slot = term[j] & (len(owner) - 1)
        while owner[slot] >= 0:
            if owner[slot] == term[j]:
                total += values[slot] * weight[j]
                break
            slot = (slot + 1) & (len(owner) - 1)
    return total


@numba.njit(cache=True, nogil=True)
def _keep_best(places, values, size, place, value):  # type: ignore[no-untyped-def]
    """Insert a value into a heap whose first value is the lowest; of equal values, the earlier place wins."""
    n = len(places)
    if size == n and (value < values[0] or (value == values[0] and place > places[0])):
        return size
    if size < n:
        i = size
        size += 1
        while i > 0:
            parent = (i - 1) // 2
            if values[parent] < value or (values[parent] == value and places[parent] > place):
                break
            values[i], places[i] = values[parent], places[parent]
            i = parent
    else:
        i = 0
        while True:
            child = 2 * i + 1
            if child >= n:
                break
            right = child + 1
            if right < n and (
                values[right] < values[child] or (values[right] == values[child] and places[right] > places[child])
            ):
                child = right
            if value < values[child] or (value == values[child] and place > places[child]):
                break
            values[i], places[i] = values[child], places[child]
            i = child
    values[i], places[i] = value, place
    return size


@numba.njit(cache=True, nogil=True)
def _nearest(  # type: ignore[no-untyped-def]
    offsets,
    term,
    weight,
    starts,
    text,
    text_weight,
    known_offsets,
    known_term,
    known_weight,
    n,
    allowed,
    known_key,
    key,
    most_read,
):
    places = np.full((len(offsets) - 1, n), -1, dtype=np.int32)
    values = np.zeros((len(offsets) - 1, n), dtype=np.float32)
    # A table of the known texts that share a term. It has a place for each known text, or if these are many, a hash
    # table, whose size depends on what is read.
    n_known, slots = np.int64(len(known_offsets) - 1), np.int64(2)
    while slots < min(2 * min(most_read, len(text)), n_known):
        slots *= 2
    spread = np.int64(1) if n_known <= slots else _SPREAD
    owner, sums = np.full(slots, -1, dtype=np.int32), np.zeros(slots, dtype=np.float32)
    touched = np.empty(slots, dtype=np.int64)
    for i in range(len(offsets) - 1):
        own = np.arange(offsets[i], offsets[i + 1])
        lengths = np.empty(len(own), dtype=np.int64)
        total = 0
        for j in range(len(own)):
            lengths[j] = starts[term[own[j]] + 1] - starts[term[own[j]]]
            total += lengths[j]
        whole = total <= most_read
        if not whole:  # the rarest terms first
            own = own[np.argsort(lengths)]
        n_touched, read = 0, 0
        for j in own:
            start, stop = starts[term[j]], starts[term[j] + 1]
            stop = min(stop, start + most_read - read)
            read += stop - start
            for entry in range(start, stop):
                place = text[entry]
                slot = (np.int64(place) * spread) & (slots - 1)
                while owner[slot] != place and owner[slot] >= 0:
                    slot = (slot + 1) & (slots - 1)
                if owner[slot] < 0:
                    owner[slot] = place
                    touched[n_touched] = slot
                    n_touched += 1
                sums[slot] += weight[j] * text_weight[entry]
            if read == most_read:
                break
        wanted = n if whole else 4 * n
        best, best_values = np.empty(wanted, dtype=np.int32), np.empty(wanted, dtype=np.float32)
        size = 0
        for j in range(n_touched):
            slot = touched[j]
            place = owner[slot]
            same = len(key) > 0 and known_key[place] == key[i]
            if not same and (len(allowed) == 0 or allowed[place]):
                size = _keep_best(best, best_values, size, place, sums[slot])
            owner[slot], sums[slot] = -1, 0.0
        if not whole:
            table = table_of(term, weight, offsets[i], offsets[i + 1])
            for j in range(size):
                start, stop = known_offsets[best[j]], known_offsets[best[j] + 1]
                best_values[j] = product_with(table, known_term, known_weight, start, stop, 0.0)
        order = np.argsort(best[:size])
        order = order[np.argsort(-best_values[:size][order], kind="mergesort")][:n]
        for j in range(len(order)):
            places[i, j] = best[order[j]]
            values[i, j] = min(best_values[order[j]], np.float32(1.0))
    return places, values


@numba.njit(cache=True, nogil=True)
def _root(parent, place):  # type: ignore[no-untyped-def]
    while parent[place] != place:
        parent[place] = parent[parent[place]]
        place = parent[place]
    return place


@numba.njit(cache=True, nogil=True)
def _families(offsets, term, weight, starts, text, text_weight, above):  # type: ignore[no-untyped-def]
    n = len(offsets) - 1
    parent = np.arange(n)
    sums, touched = np.zeros(n, dtype=np.float32), np.empty(n, dtype=np.int64)
    for i in range(n):
        own = np.arange(offsets[i], offsets[i + 1])
        lengths = np.empty(len(own), dtype=np.int64)
        for j in range(len(own)):
            lengths[j] = starts[term[own[j]] + 1] - starts[term[own[j]]]
        # What is left of the vector adds at most its length, so the rarer terms alone must make up the difference.
        rest, n_touched = 1.0, 0
        for j in own[np.argsort(lengths)]:
            if rest <= 0.25 * above * above:
                break
            rest -= weight[j] * weight[j]
            for entry in range(starts[term[j]], starts[term[j] + 1]):
                other = text[entry]
                if other >= i:
                    break  # ascending; the later text finds this one
                if sums[other] == 0.0:
                    touched[n_touched] = other
                    n_touched += 1
                sums[other] += weight[j] * text_weight[entry]
        least = above - np.sqrt(max(rest, 0.0)) - 1e-6
        table = table_of(term, weight, offsets[i], offsets[i + 1])
        for j in range(n_touched):
            other = touched[j]
            near = sums[other] > least
            sums[other] = 0.0
            if not near:
                continue
            a, b = _root(parent, i), _root(parent, other)
            if a == b:
                continue
            if product_with(table, term, weight, offsets[other], offsets[other + 1], 0.0) > above:
                parent[max(a, b)] = min(a, b)
    for i in range(n):
        parent[i] = _root(parent, i)
    return parent
