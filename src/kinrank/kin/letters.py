"""Find the kin of a query: the known queries whose texts are most like its own.

A text is a sparse vector of unit length: its character n-grams (three to five characters, within words; symbols in
words, numbers and comparisons are letters), weighted by TF-IDF. The similarity of two texts is the cosine of their
vectors. An inverted index, from n-grams to texts, finds the most similar ones without reading the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64, GrowingTable, Int64, State, gather
from kinrank.kin.encoders.ngrams import words_of
from kinrank.kin.known import Keys, KnownIndex, Near

FAMILY = 0.6
"""Texts with a higher similarity are near-duplicates."""
_SHORTEST, _LONGEST = 3, 5
_MOST_BUCKETS, _LEAST_BUCKETS = 2**22, 2**12
BLOCK = 65_536
"""The number of texts in a block of an index, from where on there is another one."""
_TAIL = 256  # texts that are compared one by one
_TERMS_TOGETHER = 8  # listed terms with the same leading bits
_MOST_READ = 64  # entries of a block to read for each of its texts; from there on, only the rarer n-grams count
_HALF = 0.7  # share of the length of a query's vector that common terms have when the first texts are compared
_PRODUCT = 8.0  # time to compare a text, per term of it, in times to read an entry
_SCALE, _LOW, _HALF_WORD = np.float32(65_535.0), np.uint32(0xFFFF), np.uint32(16)
_TOGETHER = 256  # sums that are looked at together
_COMPARED = np.float32(-2.0)  # in place of a sum
_NO_KEYS = (np.empty(0, dtype=np.uint64),) * 2
_SEED, _PRIME, _MIX = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3), np.uint64(0xFF51AFD7ED558CCD)
_SHIFT, _SPACE = np.uint64(32), np.uint32(32)


class Terms(NamedTuple):
    """The terms of texts with their weights: text ``i`` owns ``offsets[i]:offsets[i + 1]``, ascending by term."""

    offsets: Int64
    term: NDArray[np.int32]
    weight: Float32

    def take(self, texts: NDArray[Any]) -> Terms:
        """Return those of some texts."""
        offsets, rows = gather(self.offsets, texts)
        return Terms(offsets, self.term[rows], self.weight[rows])

    def part(self, start: int, stop: int) -> Terms:
        """Return those of texts that follow each other, in the same memory."""
        offsets = self.offsets[start : stop + 1]
        terms = slice(offsets[0], offsets[-1])
        return Terms(offsets - offsets[0], self.term[terms], self.weight[terms])


_LISTS = ("first", "listed", "starts", "heaviest", "entries")


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
        return cls.of_letters(*_letters(texts), words=words, most_buckets=most_buckets)

    @classmethod
    def of_letters(
        cls, letters: NDArray[np.uint32], ends: Int64, *, words: bool = False, most_buckets: int = _MOST_BUCKETS
    ) -> Vocabulary:
        """Learn how frequent terms are, given the letters of all texts and where each text ends."""
        size = int(np.clip(4 * 2 ** int(np.ceil(np.log2(len(letters) + 1))), _LEAST_BUCKETS, most_buckets))
        nothing = np.ones(size, dtype=np.float32)
        frequency = np.bincount(_terms(letters, ends, nothing, words)[1], minlength=size)
        return cls((np.log((1 + len(ends)) / (1 + frequency)) + 1).astype(np.float32), words)

    def terms(self, texts: Sequence[str]) -> Terms:
        """Return the terms of texts, each text of unit length."""
        return Terms(*_terms(*_letters(texts), self.idf, self.words))


class _Block(NamedTuple):
    """Texts that came one after the other, at most 65,536: their terms, and for each term the texts that have it."""

    offsets: Int64
    term: NDArray[np.int32]
    weight: Float32
    """As in `Terms`."""
    first: NDArray[np.uint32]
    """Where in `listed` terms with the same leading bits start."""
    listed: NDArray[np.int32]
    """The terms of these texts, ascending."""
    starts: NDArray[np.uint32]
    """The entries of the k-th listed term are at ``starts[k]:starts[k + 1]``."""
    heaviest: Float32
    """The highest weight of each listed term."""
    entries: NDArray[np.uint32]
    """The position of a text in the block, and above it, in 16 bits, its weight in 65,535ths."""

    @classmethod
    def of(cls, terms: Terms, n_buckets: int) -> _Block:
        """List the texts of each term."""
        listed, starts, heaviest, entries = _listed(*terms, n_buckets)
        leading = 1 << max(len(listed) // _TERMS_TOGETHER, 1).bit_length() - 1
        first = np.searchsorted(listed, np.arange(leading + 1) * (n_buckets // leading)).astype(np.uint32)
        return cls(*terms, first, listed, starts, heaviest, entries)

    @property
    def terms(self) -> Terms:
        """The terms of each text."""
        return Terms(*self[:3])


class QueryIndex(KnownIndex):
    """Known queries, found by their texts.

    Texts are in blocks of up to 65,536; the last ones, less than 256, are compared one by one. In a block, the texts of
    the rarer terms of a query are read first. When the other terms together can no longer make a text as similar as the
    n-th best one, only texts that were met can be among the best. They are compared exactly. So all of the most similar
    texts are found, except by queries of very many terms, which read 64 entries for each text in a block at most.

    Attributes
    ----------
    vocabulary_ : Vocabulary
        The n-grams. Texts that are added have the weights that they would have had in `fit`.

    Examples
    --------
    >>> index = QueryIndex().fit(["toy story", "toy story 2"]).add(["heat"])
    >>> places, similarities = index.nearest(index.describe(["toy storry"]), 2)
    >>> places.tolist(), bool(similarities[0, 0] > similarities[0, 1] > 0.3)
    ([[0, 1]], True)
    """

    _blocks: tuple[_Block, ...]
    _tail: GrowingTable[Terms]

    def fit(self, items: Sequence[str]) -> Self:
        """Index texts."""
        letters = _letters(items)
        vocabulary = Vocabulary.of_letters(*letters)
        return self.of_terms(vocabulary, Terms(*_terms(*letters, vocabulary.idf, False)))

    def of_terms(self, vocabulary: Vocabulary, terms: Terms) -> Self:
        """Index texts, given by their terms in a vocabulary."""
        self.vocabulary_, self._blocks, self._removed = vocabulary, (), None
        self._set(terms)
        return self

    def describe(self, items: Sequence[str]) -> Terms:
        """Return the terms of texts."""
        return self.vocabulary_.terms(items)

    def of(self, items: Sequence[str]) -> QueryIndex:
        """Return an index of other texts, with terms weighed as in this one."""
        return QueryIndex().of_terms(self.vocabulary_, self.describe(items))

    @classmethod
    def of_blocks(cls, parts: Sequence[QueryIndex]) -> QueryIndex:
        """Return one index of the texts of several, with the same terms. Whole blocks are not made again.

        Examples
        --------
        >>> index = QueryIndex().fit(["toy story"])
        >>> both = QueryIndex.of_blocks([index, index.of(["heat"])])
        >>> both.nearest(both.describe(["heat"]), 1)[0].tolist()
        [[1]]
        """
        vocabulary = parts[0].vocabulary_
        if any(len(part) % BLOCK for part in parts[:-1]):
            return cls().of_terms(vocabulary, joined_terms([part.terms_ for part in parts]))
        whole = cls()
        whole.vocabulary_, whole._blocks = vocabulary, tuple(block for part in parts for block in part._blocks)
        whole._tail = parts[-1]._tail
        return whole

    def take(self, places: NDArray[Any]) -> QueryIndex:
        """Return an index of some of the texts, in a given order."""
        return QueryIndex().of_terms(self.vocabulary_, self.terms_.take(places))

    def __len__(self) -> int:
        return self._tail_start + len(self._tail.table.offsets) - 1

    @property
    def terms_(self) -> Terms:
        """The terms of each known text."""
        return joined_terms([*(block.terms for block in self._blocks), self._tail.table])

    @property
    def _tail_start(self) -> int:
        return sum(len(block.offsets) - 1 for block in self._blocks)

    def _append(self, items: Sequence[str]) -> None:
        terms, start = self.describe(items), self._tail_start
        kept, bounds = 0, _bounds(len(self) + len(items))
        if bounds[-1] == start:
            self._tail = self._tail.append(terms)
            return
        stop = 0
        for block in self._blocks:
            stop += len(block.offsets) - 1
            if kept + 1 >= len(bounds) or bounds[kept + 1] != stop:
                break
            kept += 1
        left = [block.terms for block in self._blocks[kept:]]
        self._blocks = self._blocks[:kept]
        self._set(joined_terms([*left, self._tail.table, terms]))

    def _set(self, terms: Terms) -> None:
        """Put texts into blocks, and the last ones into the tail, after the blocks that are there."""
        start = self._tail_start
        bounds = [bound - start for bound in _bounds(start + len(terms.offsets) - 1) if bound >= start]
        n_buckets = len(self.vocabulary_.idf)
        self._blocks += tuple(_Block.of(terms.part(*ends), n_buckets) for ends in pairwise(bounds))
        self._tail = GrowingTable(Terms._make, terms.part(bounds[-1], len(terms.offsets) - 1))

    def _nearest(self, asked: Terms, n: int, allowed: NDArray[np.bool_] | None, keys: Keys | None) -> Near:
        n_asked = len(asked.offsets) - 1
        places, values = np.full((n_asked, n), -1, dtype=np.int32), np.zeros((n_asked, n), dtype=np.float32)
        sizes, start = np.zeros(n_asked, dtype=np.int64), 0
        allowed = np.ones(0, dtype=np.bool_) if allowed is None else allowed
        found = (allowed, *(_NO_KEYS if keys is None else keys), places, values, sizes)
        n_bits = len(self.vocabulary_.idf).bit_length() - 1
        for block in self._blocks:
            shift = n_bits - (len(block.first) - 1).bit_length() + 1
            _search(*asked, *block, shift, _MOST_READ, start, *found)
            start += len(block.offsets) - 1
        _compare(*asked, *self._tail.table, start, *found)
        _sort(places, values, sizes)
        return places, values

    def similarities(self, asked: Terms, places: Int64) -> Float32:
        """Return how similar a text, as `describe` returns it, is to some of the known ones."""
        found, start = np.zeros(len(places), dtype=np.float32), 0
        for terms in (*(block.terms for block in self._blocks), self._tail.table):
            stop = start + len(terms.offsets) - 1
            own = np.flatnonzero((places >= start) & (places < stop))
            if len(own):
                found[own] = _products(asked.term, asked.weight, *terms, places[own] - start)
            start = stop
        return np.minimum(found, np.float32(1.0))

    def _get_state(self) -> State:
        state: State = {"idf": self.vocabulary_.idf, **self.terms_._asdict()}
        if self._blocks:
            state |= {name: np.concatenate([getattr(block, name) for block in self._blocks]) for name in _LISTS}
            state["sizes"] = np.array([[len(part) for part in block] for block in self._blocks], dtype=np.int64)
        return state

    def _set_state(self, state: State) -> None:
        self.vocabulary_ = Vocabulary(np.asarray(state["idf"]), words=False)
        arrays = {name: np.asarray(state[name]) for name in _Block._fields if name in state}
        terms, texts, blocks = Terms(*(arrays[name] for name in Terms._fields)), 0, []
        ends = dict.fromkeys(_LISTS, 0)
        for sizes in state["sizes"].tolist() if "sizes" in state else ():
            size = dict(zip(_Block._fields, sizes, strict=True))
            own = terms.part(texts, texts + size["offsets"] - 1)
            lists = []
            for name in _LISTS:
                lists.append(arrays[name][ends[name] : ends[name] + size[name]])
                ends[name] += size[name]
            blocks.append(_Block(*own, *lists))
            texts += size["offsets"] - 1
        self._blocks = tuple(blocks)
        self._set(terms.part(texts, len(terms.offsets) - 1))

    def near_pairs(self, above: float = FAMILY) -> tuple[Int64, Int64]:
        """Return the positions of all pairs of known texts that are more similar than `above`.

        Only pairs that share enough of the rarer n-grams are compared: the others could not make them so similar.

        Examples
        --------
        >>> texts = ["frozen 2 cast", "cast of frozen 2", "heat"]
        >>> [places.tolist() for places in QueryIndex().fit(texts).near_pairs()]
        [[1], [0]]
        """
        terms = self.terms_
        starts = np.r_[0, np.cumsum(np.bincount(terms.term, minlength=len(self.vocabulary_.idf)))]
        order = np.argsort(terms.term, kind="stable")
        owner = np.repeat(np.arange(len(self), dtype=np.int32), np.diff(terms.offsets))
        found: tuple[Int64, Int64] = _near_pairs(*terms, starts, owner[order], terms.weight[order], above)
        return found


def joined_terms(parts: Sequence[Terms]) -> Terms:
    """Return the terms of several lists of texts."""
    ends = np.cumsum([0, *(part.offsets[-1] for part in parts)])
    offsets = [part.offsets[1:] + end for part, end in zip(parts, ends[:-1], strict=True)]
    term, weight = (np.concatenate([part[field] for part in parts]) for field in (1, 2))
    return Terms(np.concatenate([np.zeros(1, dtype=np.int64), *offsets]), term, weight)


def _bounds(n: int) -> list[int]:
    """Return where blocks of n texts start and end: their sizes are powers of two, largest first.

    Examples
    --------
    >>> _bounds(255), _bounds(1024 + 256 + 7), _bounds(200_000)[:5]
    ([0], [0, 1024, 1280], [0, 65536, 131072, 196608, 198656])
    """
    bounds, rest = [0], n // _TAIL
    while rest:
        size = min(1 << rest.bit_length() - 1, BLOCK // _TAIL)
        bounds.append(bounds[-1] + size * _TAIL)
        rest -= size
    return bounds


def nearest_similarity(texts: Iterable[Any], known: Iterable[Any]) -> Float64:
    """Return how similar each text is to the most similar known one, between 0 and 1.

    Examples
    --------
    >>> nearest_similarity(["toy story", "alien"], ["Toy Story", "heat"]).round(2).tolist()
    [1.0, 0.0]
    """
    index = QueryIndex().fit([str(text) for text in known])
    found = index.nearest(index.describe([str(text) for text in texts]), 1)[1]
    return found[:, 0].astype(np.float64)


def _letters(texts: Sequence[str]) -> tuple[NDArray[np.uint32], Int64]:
    """Return the letters of all texts, one after the other, and where each ends. A space separates two words."""
    spaced = [" ".join(words_of(text)) for text in texts]
    ends = np.cumsum([len(text) for text in spaced], dtype=np.int64)
    return np.frombuffer("".join(spaced).encode("utf-32-le", "surrogatepass"), dtype=np.uint32), ends


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
            if letters[place] == _SPACE:
                place += 1
                continue
            end = place
            while end < stop and letters[end] != _SPACE:
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
def _products(own_term, own_weight, offsets, term, weight, positions):  # type: ignore[no-untyped-def]
    """Return the scalar products of a text with some of others."""
    table = table_of(own_term, own_weight, 0, len(own_term))
    found = np.empty(len(positions), dtype=np.float32)
    for i in range(len(positions)):
        start, stop = offsets[positions[i]], offsets[positions[i] + 1]
        found[i] = product_with(table, term, weight, start, stop, 0.0)
    return found


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
def _listed(offsets, term, weight, n_buckets):  # type: ignore[no-untyped-def]
    """Return the fields of `_Block` that list the texts of each term, but for the directory."""
    ends = np.zeros(n_buckets, dtype=np.uint32)
    for j in range(len(term)):
        ends[term[j]] += 1
    n_listed = 0
    for bucket in range(n_buckets):
        if ends[bucket]:
            n_listed += 1
    listed, starts = np.empty(n_listed, dtype=np.int32), np.zeros(n_listed + 1, dtype=np.uint32)
    k = 0
    for bucket in range(n_buckets):
        if ends[bucket]:
            listed[k] = bucket
            starts[k + 1] = starts[k] + ends[bucket]
            ends[bucket] = starts[k]
            k += 1
    entries = np.empty(len(term), dtype=np.uint32)
    for i in range(len(offsets) - 1):
        for j in range(offsets[i], offsets[i + 1]):
            share = np.uint32(min(np.float32(weight[j] * _SCALE + np.float32(0.5)), _SCALE))
            entries[ends[term[j]]] = (share << _HALF_WORD) | np.uint32(i)
            ends[term[j]] += np.uint32(1)
    heaviest = np.empty(n_listed, dtype=np.float32)
    for k in range(n_listed):
        most = np.uint32(0)
        for entry in entries[starts[k] : starts[k + 1]]:
            most = max(most, entry >> _HALF_WORD)
        heaviest[k] = (np.float32(most) + np.float32(1.0)) / _SCALE
    return listed, starts, heaviest, entries


@numba.njit(cache=True, nogil=True)
def _read(entries, weight, sums):  # type: ignore[no-untyped-def]
    scaled = np.float32(weight / _SCALE)
    for entry in entries:
        sums[entry & _LOW] += scaled * np.float32(entry >> _HALF_WORD)


@numba.njit(cache=True, nogil=True)
def _above(sums, bar, found):  # type: ignore[no-untyped-def]
    """Write the positions of sums above a bar into `found`, and return their number."""
    n = 0
    for start in range(0, len(sums), _TOGETHER):
        some, count = sums[start : start + _TOGETHER], 0
        for position in range(len(some)):
            count += some[position] > bar
        if count:
            for position in range(len(some)):
                if some[position] > bar:
                    found[n] = start + position
                    n += 1
    return n


@numba.njit(cache=True, nogil=True)
def _best_so_far(sums, n, start, allowed, known_key, key):  # type: ignore[no-untyped-def]
    """Return the positions of the n texts with the highest sums, of those that may be found."""
    best, best_values, size = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.float32), 0
    least = np.float32(0.0)
    for position in range(len(sums)):
        if sums[position] <= least or not _may_be_found(start + position, allowed, known_key, key):
            continue
        size = _keep_best(best, best_values, size, position, sums[position])
        if size == n:
            least = best_values[0]
    return best[:size]


@numba.njit(cache=True, nogil=True)
def _may_be_found(place, allowed, known_key, key):  # type: ignore[no-untyped-def]
    return (len(allowed) == 0 or allowed[place]) and (len(key) == 0 or known_key[place] != key[0])


@numba.njit(cache=True, nogil=True)
def _search(  # type: ignore[no-untyped-def]
    asked_offsets,
    asked_term,
    asked_weight,
    offsets,
    term,
    weight,
    first,
    listed,
    starts,
    heaviest,
    entries,
    shift,
    most_read,
    start,
    allowed,
    known_key,
    keys,
    places,
    values,
    sizes,
):
    """Add the most similar texts of a block to the heaps `places` and `values`."""
    n_texts, n = len(offsets) - 1, places.shape[1]
    sums, above = np.zeros(n_texts, dtype=np.float32), np.empty(n_texts, dtype=np.int32)
    most = most_read * n_texts
    compared = _PRODUCT * len(term) / n_texts
    for i in range(len(asked_offsets) - 1):
        own = np.empty(asked_offsets[i + 1] - asked_offsets[i], dtype=np.int64)
        where, lengths = np.empty_like(own), np.empty_like(own)
        m, left = 0, 0
        for j in range(asked_offsets[i], asked_offsets[i + 1]):
            bucket = asked_term[j] >> shift
            k, stop = np.int64(first[bucket]), np.int64(first[bucket + 1])
            while k < stop and listed[k] < asked_term[j]:
                k += 1
            if k < stop and listed[k] == asked_term[j]:
                own[m], where[m], lengths[m] = j, k, np.int64(starts[k + 1]) - np.int64(starts[k])
                left += lengths[m]
                m += 1
        order = np.argsort(lengths[:m])
        # The terms from each one on add at most this to a similarity; and what rounded weights may hide.
        slack = 2e-5 * np.sqrt(m)
        rest, squares, product = np.full(m + 1, slack), 0.0, 0.0
        for j in range(m - 1, -1, -1):
            w = asked_weight[own[order[j]]]
            squares += w * w
            product += w * heaviest[where[order[j]]]
            rest[j] = min(np.sqrt(squares), product) + slack
        size = sizes[i]
        if m == 0 or (size == n and rest[0] < values[i, 0]):
            continue
        key = keys[i : i + 1]
        table = table_of(asked_term, asked_weight, asked_offsets[i], asked_offsets[i + 1])
        j, read, wanted = 0, 0, left
        compare_first = size < n
        while True:
            least = values[i, 0] if size == n else np.float32(0.0)
            # Read until no other text can be among the best, and until it is quicker to compare those that can.
            while j < m and read < most and (rest[j] >= least or left > wanted):
                k = where[order[j]]
                _read(entries[starts[k] : starts[k + 1]], asked_weight[own[order[j]]], sums)
                read += lengths[order[j]]
                left -= lengths[order[j]]
                j += 1
                if compare_first and rest[j] < _HALF * rest[0]:
                    break
            stopped = j < m and read >= most
            if compare_first or size < n or stopped:
                for position in _best_so_far(sums, 4 * n if stopped else n, start, allowed, known_key, key):
                    value = min(product_with(table, term, weight, offsets[position], offsets[position + 1], 0.0), 1.0)
                    size = _keep_best(places[i], values[i], size, start + position, np.float32(value))
                    sums[position] = _COMPARED
                if compare_first and j < m and not stopped:
                    compare_first, wanted = False, left
                    continue
            if j == m or stopped:
                break
            if _above(sums, np.float32(least - rest[j]), above) * compared <= left:
                break
            wanted = left // 2
        if size == n and not stopped:
            bar = max(np.float32(values[i, 0] - rest[j]), np.float32(0.0))
            for position in above[: _above(sums, bar, above)]:
                if sums[position] > bar and _may_be_found(start + position, allowed, known_key, key):
                    value = min(product_with(table, term, weight, offsets[position], offsets[position + 1], 0.0), 1.0)
                    size = _keep_best(places[i], values[i], size, start + position, np.float32(value))
                    bar = max(np.float32(values[i, 0] - rest[j]), np.float32(0.0))
        sizes[i] = size
        if i < len(asked_offsets) - 2:
            sums[:] = 0.0


@numba.njit(cache=True, nogil=True)
def _compare(  # type: ignore[no-untyped-def]
    asked_offsets,
    asked_term,
    asked_weight,
    offsets,
    term,
    weight,
    start,
    allowed,
    known_key,
    keys,
    places,
    values,
    sizes,
):
    """Add the most similar of some texts to the heaps `places` and `values`, all compared."""
    for i in range(len(asked_offsets) - 1):
        table = table_of(asked_term, asked_weight, asked_offsets[i], asked_offsets[i + 1])
        for position in range(len(offsets) - 1):
            value = np.float32(
                min(product_with(table, term, weight, offsets[position], offsets[position + 1], 0.0), 1.0)
            )
            if value > 0.0 and _may_be_found(start + position, allowed, known_key, keys[i : i + 1]):
                sizes[i] = _keep_best(places[i], values[i], sizes[i], start + position, value)


@numba.njit(cache=True, nogil=True)
def _sort(places, values, sizes):  # type: ignore[no-untyped-def]
    """Sort heaps, the highest values first; of equal values, the earlier place."""
    for i in range(len(places)):
        found, value = places[i, : sizes[i]].copy(), values[i, : sizes[i]].copy()
        order = np.argsort(found)
        order = order[np.argsort(-value[order], kind="mergesort")]
        for j in range(len(order)):
            places[i, j], values[i, j] = found[order[j]], value[order[j]]


@numba.njit(cache=True, nogil=True)
def _near_pairs(offsets, term, weight, starts, text, text_weight, above):  # type: ignore[no-untyped-def]
    n, n_pairs = len(offsets) - 1, 0
    one, two = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.int64)
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
            if near and product_with(table, term, weight, offsets[other], offsets[other + 1], 0.0) > above:
                if n_pairs == len(one):
                    one, two = np.append(one, np.empty_like(one)), np.append(two, np.empty_like(two))
                one[n_pairs], two[n_pairs] = i, other
                n_pairs += 1
    return one[:n_pairs].copy(), two[:n_pairs].copy()
