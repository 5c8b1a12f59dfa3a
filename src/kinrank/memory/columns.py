"""Columns of memory: what this query, its kin and everyone chose of a candidate, as features of any ranker.

| | this document | each key of it, such as its site or brand |
|---|---|---|
| this query | what was chosen for the same text | the same of that brand |
| its kin | what was chosen for the most similar texts | |
| everyone | what was chosen for any query | |

One more column crosses the table: *chosen for*, how like the query is to all queries for which the document was chosen.

A *cell* is what one known query says of a document, or of a key: an amount of evidence, and the good part of it. A
judgment has amount 1; its good part is its grade as a share of the best one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.hashes import IdHashes, hash_texts, lower_bound, query_keys
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT
from kinrank.errors import DataError
from kinrank.memory.kin import NEIGHBORS, QueryIndex, Terms, Vocabulary
from kinrank.store import nest, unnest

N_FOLDS = 10
"""Folds in which the columns of training queries are made: memory is nearly as dense there as it is later."""
DOCUMENT = "document"
PARTS = {
    "everyone": ("everyone_asked", "everyone_good", "everyone_rate"),
    "kin": ("kin_good", "kin_rate", "kin_count", "kin_nearest_good", "kin_nearest_bad"),
    "query": ("query_asked", "query_good"),
    "chosen": ("chosen_for", "chosen_for_share"),
}
"""The columns of each part: of any query, of similar ones, of the same text, and of all texts that chose a document."""
_OF_KEYS = ("everyone", "kin", "query")
_SMOOTHING = np.float32(0.05)  # amount of nothing in the rate of kin
_MOST_REPEATS = 1_000  # known queries of the same text that are read


class Cells(NamedTuple):
    """What known queries say of documents, or of keys: query ``i`` owns ``offsets[i]:offsets[i + 1]``."""

    offsets: Int64
    target: IdHashes
    """Hashes of documents or keys, ascending within a query."""
    amount: Float32
    good: Float32

    @classmethod
    def of(cls, n_known: int, known: Int64, target: IdHashes, amount: Float64, good: Float64) -> Cells:
        """Build from one value per cell in any order; equal cells add up, but no amount is above 1."""
        order = np.lexsort((target, known))
        known, target = known[order], target[order]
        starts = np.flatnonzero(np.r_[True, (known[1:] != known[:-1]) | (target[1:] != target[:-1])][: len(known)])
        sums = [np.add.reduceat(values[order], starts) if len(starts) else values for values in (amount, good)]
        scale = 1.0 / np.maximum(sums[0], 1.0)
        counts = np.bincount(known[starts], minlength=n_known)
        amounts, goods = ((values * scale).astype(np.float32) for values in sums)
        return cls(np.r_[0, np.cumsum(counts)], target[starts], amounts, goods)

    def take(self, places: Int64) -> Cells:
        """Return the cells of some known queries."""
        sizes = np.diff(self.offsets)[places]
        offsets = np.r_[0, np.cumsum(sizes)]
        rows = np.repeat(self.offsets[places] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return Cells(offsets, self.target[rows], self.amount[rows], self.good[rows])

    def joined(self, other: Cells) -> Cells:
        """Return the cells of these and of further queries."""
        values = (np.r_[a, b] for a, b in zip(self[1:], other[1:], strict=True))
        return Cells(np.r_[self.offsets, self.offsets[-1] + other.offsets[1:]], *values)

    @property
    def known(self) -> Int64:
        """The known query of each cell."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


class Everyone(NamedTuple):
    """What all known queries say of documents or keys, which are ascending."""

    target: IdHashes
    amount: Float32
    good: Float32

    @classmethod
    def of(cls, cells: Cells, counted: NDArray[np.bool_] | slice) -> Everyone:
        """Add up some cells."""
        target, number = np.unique(cells.target[counted], return_inverse=True)
        sums = (np.bincount(number, weights=values[counted]) for values in (cells.amount, cells.good))
        return cls(target, *(values.astype(np.float32) for values in sums))


class ChosenFor(NamedTuple):
    """The words of all known queries that chose a document: document ``i`` owns ``offsets[i]:offsets[i + 1]``."""

    target: IdHashes
    offsets: Int64
    term: NDArray[np.int32]
    weight: Float32
    length: Float32
    """Euclidean length of the words of each document."""

    @classmethod
    def of(cls, cells: Cells, counted: NDArray[np.bool_] | slice, words: Terms) -> ChosenFor:
        """Add up the words of the queries of some cells, each as often as it chose."""
        good = np.where(cells.good > 0, cells.good, 0.0)
        rows = np.arange(len(good))[counted]
        rows = rows[good[rows] > 0]
        own = words.take(cells.known[rows])
        sizes = np.diff(own.offsets)
        target, number = np.unique(cells.target[rows], return_inverse=True)
        document, weight = np.repeat(number, sizes), own.weight * np.repeat(good[rows], sizes)
        order = np.lexsort((own.term, document))
        document, term, weight = document[order], own.term[order], weight[order]
        first = np.r_[True, (document[1:] != document[:-1]) | (term[1:] != term[:-1])][: len(term)]
        starts = np.flatnonzero(first)
        sums = np.add.reduceat(weight, starts) if len(starts) else weight
        counts = np.bincount(document[starts], minlength=len(target))
        length = np.sqrt(np.bincount(document[starts], weights=sums.astype(np.float64) ** 2, minlength=len(target)))
        return cls(
            target, np.r_[0, np.cumsum(counts)], term[starts], sums.astype(np.float32), length.astype(np.float32)
        )


class Sums(NamedTuple):
    """What all counted queries together say: by kind of target, and the words of documents."""

    everyone: dict[str, Everyone]
    chosen: ChosenFor


@dataclass(frozen=True, eq=False)
class Asked:
    """Queries whose candidates are looked up."""

    key: IdHashes
    terms: Terms
    words: Terms
    offsets: Int64
    targets: dict[str, IdHashes]


@dataclass(frozen=True, eq=False)
class QueryMemory:
    """Known queries with what they say of documents and keys.

    Build one with `of`. `columns` looks candidates up; `cross_fitted` does so for the known queries themselves.

    Examples
    --------
    >>> names = {"qid": [1, 1, 2, 2], "doc_id": ["d1", "d2", "d1", "d2"], "query_columns": {"text": ["cat", "cats"]}}
    >>> queries = QuerySet.from_arrays([[0.0], [0.0], [0.0], [0.0]], [0, 1, 0, 1], **names)
    >>> memory = QueryMemory.of(queries)
    >>> new = queries[0].replace(query_columns={"text": np.array(["cat food"])})
    >>> dict(zip(memory.names, memory.columns(new)[1].round(1).tolist(), strict=True))["kin_nearest_good"] > 0.3
    True
    """

    texts: NDArray[np.str_]
    """The text of each known query."""
    key: IdHashes
    """Its hash."""
    index: QueryIndex
    words: tuple[Vocabulary, Terms]
    """The words of each known query."""
    cells: dict[str, Cells]
    """What known queries say of documents, then of each key."""
    best: float
    """The best grade."""
    sums: Sums

    # --- building -------------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, queries: QuerySet, keys: Sequence[str] = (), *, best: float | None = None) -> QueryMemory:
        """Remember judged queries with texts and document ids.

        Parameters
        ----------
        queries
            The queries. Candidates that are not judged count as grade 0, as wherever a ranker learns.
        keys
            Columns of documents to remember, too, such as their site or brand.
        best
            The best grade; None: the highest of these.
        """
        texts = texts_of(queries)
        top = max(float(queries.grades.max()), 1.0) if best is None else best
        vocabulary = Vocabulary.of(texts, words=True)
        index, words = QueryIndex().fit(texts), (vocabulary, vocabulary.terms(texts))
        return cls._of(queries, index, words, keys, top)

    def of_others(self, queries: QuerySet) -> QueryMemory:
        """Remember other queries alone, described as these are."""
        texts = texts_of(queries)
        index = self.index.of_others(self.index.vocabulary_.terms(texts))
        return self._of(queries, index, (self.words[0], self.words[0].terms(texts)), self.keys, self.best)

    @classmethod
    def _of(
        cls,
        queries: QuerySet,
        index: QueryIndex,
        words: tuple[Vocabulary, Terms],
        keys: Sequence[str],
        best: float,
    ) -> QueryMemory:
        good = np.clip(queries.grades.astype(np.float64) / best, 0.0, 1.0)
        owner, once = queries.query_of_row, np.ones(queries.n_rows)
        cells = {
            name: Cells.of(len(queries), owner, target, once, good)
            for name, target in targets_of(queries, keys).items()
        }
        texts = np.array(texts_of(queries), dtype=np.str_)
        return cls(texts, query_keys(texts), index, words, cells, best, _sums(cells, slice(None), words[1]))

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of documents that are remembered, too."""
        return tuple(name for name in self.cells if name != DOCUMENT)

    # --- looking up -----------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return column_names(self.keys)

    def columns(self, queries: QuerySet) -> Float32:
        """Return the columns of the candidates of queries; shape (rows, columns)."""
        return self._columns(self.asked(queries), self.sums, None)

    def cross_fitted(
        self, part: NDArray[Any], queries: QuerySet, *, in_time: bool = False, wanted: NDArray[np.bool_] | None = None
    ) -> Float32:
        """Return the columns of the known queries, each from other parts.

        Leaving out only the query itself would give its grades away: a document that is relevant to it would have one
        good query less than where it is not.

        Parameters
        ----------
        part
            The fold, or the time, of each known query.
        queries
            The known queries.
        in_time
            Whether only earlier parts count; else all others.
        wanted
            The queries whose columns are wanted; None: all.
        """
        wanted = np.ones(len(queries), dtype=np.bool_) if wanted is None else wanted
        kept = np.flatnonzero(wanted)
        asked = queries if wanted.all() else queries[kept]
        found = np.zeros((asked.n_rows, len(self.names)), dtype=np.float32)
        for value in np.unique(part[kept]):
            own = part[kept] == value
            counted = part < value if in_time else part != value
            sums = _sums(self.cells, counted, self.words[1])
            found[np.repeat(own, asked.sizes)] = self._columns(self.asked(asked[own]), sums, counted)
        return found

    def asked(self, queries: QuerySet) -> Asked:
        """Describe queries to look up."""
        texts = texts_of(queries)
        terms, words = self.index.vocabulary_.terms(texts), self.words[0].terms(texts)
        key = query_keys(queries.query_columns[TEXT])
        return Asked(key, terms, words, queries.offsets, targets_of(queries, self.keys))

    def nearest(self, asked: Asked, allowed: NDArray[np.bool_] | None = None) -> tuple[NDArray[np.int32], Float32]:
        """Return the positions and similarities of the kin of queries, without those of the same text."""
        return self.index.nearest(asked.terms, NEIGHBORS, allowed, (self.key, asked.key))

    def _columns(self, asked: Asked, sums: Sums, counted: NDArray[np.bool_] | None) -> Float32:
        near, same = self.nearest(asked, counted), self._same(asked.key, counted)
        n_rows = int(asked.offsets[-1])
        columns = []
        for name, target in asked.targets.items():
            found = np.zeros((n_rows, 9), dtype=np.float32)
            _add_everyone(*sums.everyone[name], target, found)
            _add_kin(*self.cells[name], *near, asked.offsets, target, found)
            if same.shape[1]:
                _add_same(*self.cells[name], same, asked.offsets, target, found)
            columns.append(_with_rates(found))
        chosen = np.zeros((n_rows, 2), dtype=np.float32)
        _add_chosen(*sums.chosen, *asked.words, asked.offsets, asked.targets[DOCUMENT], chosen)
        return np.hstack([columns[0], chosen, *columns[1:]])

    def _same(self, key: IdHashes, counted: NDArray[np.bool_] | None) -> NDArray[np.int32]:
        """Return the positions of known queries with the same text, a row for each query; -1 in place of none."""
        order, keys = self._by_key
        first = np.searchsorted(keys, key)
        last = np.minimum(np.searchsorted(keys, key, side="right"), first + _MOST_REPEATS)
        width = int((last - first).max(initial=0))
        if not width:
            return np.empty((len(key), 0), dtype=np.int32)
        places = first[:, None] + np.arange(width)
        found = np.where(places < last[:, None], order[np.minimum(places, len(order) - 1)], -1).astype(np.int32)
        return found if counted is None else np.where((found >= 0) & counted[found], found, np.int32(-1))

    @cached_property
    def _by_key(self) -> tuple[Int64, IdHashes]:
        """The order of the keys, and the keys in it."""
        order = np.argsort(self.key, kind="stable")
        return order, self.key[order]

    # --- learning and forgetting ------------------------------------------------------------------------------------

    def take(self, known: NDArray[Any]) -> QueryMemory:
        """Return some of the known queries, by position or mask."""
        places = np.arange(len(self))[known]
        cells = {name: table.take(places) for name, table in self.cells.items()}
        words = self.words[0], self.words[1].take(places)
        index = self.index.of_others(self.index.terms_.take(places))
        sums = _sums(cells, slice(None), words[1])
        return replace(
            self, texts=self.texts[places], key=self.key[places], index=index, words=words, cells=cells, sums=sums
        )

    def joined(self, other: QueryMemory) -> QueryMemory:
        """Return the known queries of both, described alike: `other` is made by `of_others`."""
        cells = {name: table.joined(other.cells[name]) for name, table in self.cells.items()}
        words = self.words[0], self.words[1].joined(other.words[1])
        index = self.index.of_others(self.index.terms_.joined(other.index.terms_))
        texts, key = np.r_[self.texts, other.texts], np.r_[self.key, other.key]
        sums = _sums(cells, slice(None), words[1])
        return replace(self, texts=texts, key=key, index=index, words=words, cells=cells, sums=sums)

    # --- saving -----------------------------------------------------------------------------------------------------

    def get_state(self) -> State:
        """Return everything remembered."""
        cells = {f"cells{i}": table._asdict() for i, table in enumerate(self.cells.values())}
        words = {"idf": self.words[0].idf, **self.words[1]._asdict()}
        known = {"texts": self.texts, "keys": np.array(self.keys, dtype=np.str_), "best": np.array(self.best)}
        return nest(index=self.index.get_state(), words=words, **cells) | known

    @classmethod
    def from_state(cls, state: State) -> QueryMemory:
        """Restore what `get_state` returned."""
        words = unnest(state, "words")
        vocabulary = Vocabulary(np.asarray(words["idf"]), words=True)
        terms = Terms(*(np.asarray(words[name]) for name in Terms._fields))
        cells = {}
        for i, name in enumerate([DOCUMENT, *state["keys"].tolist()]):
            arrays = unnest(state, f"cells{i}")
            cells[name] = Cells(*(np.asarray(arrays[field]) for field in Cells._fields))
        texts = np.asarray(state["texts"])
        index = QueryIndex().set_state(unnest(state, "index"))
        sums = _sums(cells, slice(None), terms)
        return cls(texts, query_keys(texts), index, (vocabulary, terms), cells, float(state["best"]), sums)


def column_names(keys: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of the columns of memory.

    Examples
    --------
    >>> column_names(["site"])[-2:]
    ('site_query_asked', 'site_query_good')
    """
    document = [name for names in PARTS.values() for name in names]
    return (*document, *(f"{key}_{name}" for key in keys for part in _OF_KEYS for name in PARTS[part]))


def texts_of(queries: QuerySet) -> list[str]:
    """Return the texts of queries."""
    if TEXT not in queries.query_columns:
        raise DataError("memory finds queries by their texts, and these have none: pass query_text (column text)")
    texts: list[str] = queries.query_columns[TEXT].astype(np.str_).tolist()
    return texts


def targets_of(queries: QuerySet, keys: Iterable[str] = ()) -> dict[str, IdHashes]:
    """Return the hashes of the documents of candidates, and of each key."""
    if queries.doc_id is None:
        raise DataError("memory finds documents by their ids, and these have none: pass doc_id")
    missing = [key for key in keys if key not in queries.doc_columns]
    if missing:
        raise DataError(
            f"the candidates have no column {missing[0]!r}, which memory uses as a key: pass it, as {missing}"
        )
    return {DOCUMENT: hash_texts(queries.doc_id)} | {key: hash_texts(queries.doc_columns[key]) for key in keys}


def _sums(cells: dict[str, Cells], counted: NDArray[np.bool_] | slice, words: Terms) -> Sums:
    """Add up the cells of the counted queries."""
    rows = {
        name: counted if isinstance(counted, slice) else np.repeat(counted, np.diff(table.offsets))
        for name, table in cells.items()
    }
    everyone = {name: Everyone.of(table, rows[name]) for name, table in cells.items()}
    return Sums(everyone, ChosenFor.of(cells[DOCUMENT], rows[DOCUMENT], words))


def _with_rates(found: Float32) -> Float32:
    """Return the columns of a target from its sums, in the order of `PARTS`."""
    asked, good, kin_good, kin_asked, count, nearest_good, nearest_bad, same_asked, same_good = found.T
    rate = good / (asked + 1), kin_good / (kin_asked + _SMOOTHING)
    return np.column_stack(
        [asked, good, rate[0], kin_good, rate[1], count, nearest_good, nearest_bad, same_asked, same_good]
    )


@numba.njit(cache=True, nogil=True)
def _add_everyone(known, amount, good, target, found):  # type: ignore[no-untyped-def]
    for row in range(len(target)):
        place = lower_bound(known, target[row], 0, len(known))
        if place < len(known) and known[place] == target[row]:
            found[row, 0] += amount[place]
            found[row, 1] += good[place]


@numba.njit(cache=True, nogil=True)
def _unique(target, start, stop, wanted, number):  # type: ignore[no-untyped-def]
    """Write the different targets of some rows into `wanted`, ascending, and the position of each row's one."""
    order = np.argsort(target[start:stop])
    n = 0
    for j in range(stop - start):
        value = target[start + order[j]]
        if n == 0 or wanted[n - 1] != value:
            wanted[n] = value
            n += 1
        number[order[j]] = n - 1
    return n


@numba.njit(cache=True, nogil=True)
def _add_kin(offsets, known, amount, good, places, similarities, rows, target, found):  # type: ignore[no-untyped-def]
    """Add what similar queries say: with weights w², their amount, good part and number, and the nearest of both."""
    longest = 0
    for i in range(len(places)):
        longest = max(longest, rows[i + 1] - rows[i])
    wanted, number = np.empty(longest, dtype=np.uint64), np.empty(longest, dtype=np.int64)
    for i in range(len(places)):
        n = _unique(target, rows[i], rows[i + 1], wanted, number)
        sums = np.zeros((n, 5), dtype=np.float32)
        for j in range(places.shape[1]):
            if places[i, j] < 0:
                break
            w = similarities[i, j]
            start, stop = offsets[places[i, j]], offsets[places[i, j] + 1]
            for cell in range(start, stop):
                place = lower_bound(wanted, known[cell], 0, n)
                if place == n or wanted[place] != known[cell]:
                    continue
                bad = amount[cell] - good[cell]
                sums[place, 0] += w * w * good[cell]
                sums[place, 1] += w * w * amount[cell]
                sums[place, 2] += good[cell]
                sums[place, 3] = max(sums[place, 3], w * good[cell])
                sums[place, 4] = max(sums[place, 4], w * bad)
        for row in range(rows[i], rows[i + 1]):
            for column in range(5):
                found[row, 2 + column] = sums[number[row - rows[i]], column]


@numba.njit(cache=True, nogil=True)
def _add_same(offsets, known, amount, good, places, rows, target, found):  # type: ignore[no-untyped-def]
    """Add what known queries of the same text say."""
    for i in range(len(places)):
        for j in range(places.shape[1]):
            if places[i, j] < 0:
                continue
            start, stop = offsets[places[i, j]], offsets[places[i, j] + 1]
            for row in range(rows[i], rows[i + 1]):
                cell = lower_bound(known, target[row], start, stop)
                if cell < stop and known[cell] == target[row]:
                    found[row, 7] += amount[cell]
                    found[row, 8] += good[cell]


@numba.njit(cache=True, nogil=True)
def _add_chosen(known, offsets, term, weight, length, asked, asked_term, asked_weight, rows, target, found):  # type: ignore[no-untyped-def]
    """Add how like the words of a query are to those of all queries that chose a document, by sum and by cosine."""
    for i in range(len(rows) - 1):
        for row in range(rows[i], rows[i + 1]):
            place = lower_bound(known, target[row], 0, len(known))
            if place == len(known) or known[place] != target[row]:
                continue
            total, start, stop = 0.0, offsets[place], offsets[place + 1]
            for word in range(asked[i], asked[i + 1]):
                entry = lower_bound(term, asked_term[word], start, stop)
                if entry < stop and term[entry] == asked_term[word]:
                    total += weight[entry] * asked_weight[word]
            found[row, 0] = total
            found[row, 1] = total / length[place]
