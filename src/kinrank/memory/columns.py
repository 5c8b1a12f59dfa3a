"""Columns of memory: what this query, its kin and everyone chose of a candidate, as features of any ranker.

| | this document | each key of it, such as its site or brand |
|---|---|---|
| this query | what was chosen for the same text | the same of that brand |
| its kin | what was chosen for the most similar texts | |
| everyone | what was chosen for any query | |

One more column crosses the table: *chosen for*, how like the query is to all queries for which the document was chosen.

Kin are the known queries whose letters are most like the query's own. If queries have vectors, they are also those
whose vectors are, and the columns of kin and *chosen for* come twice: by letters and by meaning.

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
from scipy import sparse

from kinrank.arrays import Float32, Float64, GrowingRows, GrowingTable, Int64, State, gather
from kinrank.data.hashes import IdHashes, hash_texts, lower_bound, query_keys
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, VECTORS
from kinrank.errors import DataError
from kinrank.kin.families import families_in
from kinrank.kin.known import NEIGHBORS, Near
from kinrank.kin.letters import QueryIndex, Terms, Vocabulary
from kinrank.kin.vectors import VectorIndex, unit_vectors
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
MEANING = ("meaning_good", "meaning_rate", "meaning_count", "meaning_nearest_good", "meaning_nearest_bad")
CHOSEN_MEANING = "meaning_chosen_for"
"""The columns of kin and *chosen for* by vectors, after all others; keys have those of kin, too."""
_SMOOTHING = np.float32(0.05)  # amount of nothing in the rate of kin
_MOST_REPEATS = 1_000  # known queries of the same text that are read
_RESORTED = 10_000  # queries that come before keys are sorted again
_LEADING = np.uint64(52)


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
        offsets, rows = gather(self.offsets, places)
        return Cells(offsets, self.target[rows], self.amount[rows], self.good[rows])

    def of_targets(self, targets: IdHashes, counted: NDArray[np.bool_] | None) -> tuple[Int64, Cells]:
        """Return the counted known queries with cells of some targets, which are ascending, and these cells."""
        rows = _rows_of(self.target, targets)
        known = np.searchsorted(self.offsets, rows, side="right") - 1
        if counted is not None:
            rows, known = rows[counted[known]], known[counted[known]]
        places, starts = np.unique(known, return_index=True)
        return places, Cells(np.r_[starts, len(rows)], self.target[rows], self.amount[rows], self.good[rows])

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
    def of(cls, target: IdHashes, amount: Float32, good: Float32) -> Everyone:
        """Add up cells."""
        targets, number = np.unique(target, return_inverse=True)
        sums = (np.bincount(number, weights=values) for values in (amount, good))
        return cls(targets, *(values.astype(np.float32) for values in sums))


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


class Means(NamedTuple):
    """The mean vector of all known queries that chose a document, of unit length."""

    target: IdHashes
    vector: Float32

    @classmethod
    def of(cls, cells: Cells, counted: NDArray[np.bool_] | slice, vectors: Float32) -> Means:
        """Add up the vectors of the queries of some cells, each as often as it chose."""
        rows = np.arange(len(cells.good))[counted]
        rows = rows[cells.good[rows] > 0]
        target, number = np.unique(cells.target[rows], return_inverse=True)
        shape = len(target), len(cells.offsets) - 1
        chose = sparse.csr_array((cells.good[rows], (number, cells.known[rows])), shape=shape)
        return cls(target, unit_vectors(chose @ vectors))

    def replaced(self, newer: Means, targets: IdHashes) -> Means:
        """Return both; of some targets, what the newer ones say."""
        kept = ~np.isin(self.target, targets)
        target = np.r_[self.target[kept], newer.target]
        order = np.argsort(target)
        return Means(target[order], np.vstack([self.vector[kept], newer.vector])[order])


class Sums(NamedTuple):
    """What all counted queries together say: by kind of target, and the words and vectors of documents."""

    everyone: dict[str, Everyone]
    chosen: ChosenFor
    means: Means | None

    @property
    def n_documents(self) -> int:
        """The number of documents."""
        return len(self.everyone[DOCUMENT].target)

    def replaced(self, newer: Sums) -> Sums:
        """Return both; of a target in both, what the newer ones say."""
        everyone = {}
        for name, theirs in newer.everyone.items():
            mine = self.everyone[name]
            kept = ~np.isin(mine.target, theirs.target)
            target = np.r_[mine.target[kept], theirs.target]
            order = np.argsort(target)
            amount, good = np.r_[mine.amount[kept], theirs.amount], np.r_[mine.good[kept], theirs.good]
            everyone[name] = Everyone(target[order], amount[order], good[order])
        old, new = self.chosen, newer.chosen
        places = np.flatnonzero(~np.isin(old.target, newer.everyone[DOCUMENT].target))
        target = np.r_[old.target[places], new.target]
        order = np.argsort(target)
        words = GrowingTable(Terms._make, Terms(old.offsets, old.term, old.weight))
        both = words.append(Terms(new.offsets, new.term, new.weight)).table
        chosen = both.take(np.r_[places, len(old.target) + np.arange(len(new.target))][order])
        means = newer.means
        if self.means is not None and means is not None:
            means = self.means.replaced(means, newer.everyone[DOCUMENT].target)
        length = np.r_[old.length[places], new.length][order]
        return Sums(everyone, ChosenFor(target[order], *chosen, length), means)


class Levels(tuple[Sums, ...]):
    """What all known queries together say, in parts: of a target in several, the last one counts.

    So one more query costs what its own targets cost. Parts of about the same size become one.
    """

    def updated(self, newer: Sums) -> Levels:
        """Return these parts with what some targets say now."""
        parts = [*self, newer]
        while len(parts) > 1 and 2 * parts[-1].n_documents >= parts[-2].n_documents:
            parts[-2:] = [parts[-2].replaced(parts[-1])]
        return Levels(parts)

    def add_everyone(self, name: str, target: IdHashes, found: Float32) -> Int64:
        """Add what all say of targets to two columns, and return the part that says it; -1 without one."""
        part = np.full(len(target), -1, dtype=np.int64)
        for number in range(len(self) - 1, -1, -1):
            _add_everyone(*self[number].everyone[name], target, part, number, found)
        return part


class _Growing(NamedTuple):
    """The arrays of `QueryMemory` with memory for further queries."""

    texts: GrowingRows
    key: GrowingRows
    words: GrowingTable[Terms]
    cells: dict[str, GrowingTable[Cells]]

    @classmethod
    def of(cls, memory: QueryMemory) -> _Growing:
        """Copy the arrays."""
        cells = {name: GrowingTable(Cells._make, table) for name, table in memory.cells.items()}
        words = GrowingTable(Terms._make, memory.words[1])
        return cls(GrowingRows(memory.texts), GrowingRows(memory.key), words, cells)

    def append(self, other: QueryMemory) -> _Growing:
        """Return the arrays with those of further queries."""
        cells = {name: table.append(other.cells[name]) for name, table in self.cells.items()}
        texts, key = self.texts.append(other.texts), self.key.append(other.key)
        return _Growing(texts, key, self.words.append(other.words[1]), cells)


@dataclass(frozen=True, eq=False)
class Asked:
    """Queries whose candidates are looked up."""

    key: IdHashes
    terms: Terms
    words: Terms
    vectors: Float32 | None
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
    sums: Levels
    vectors: VectorIndex | None = None
    """The vectors of known queries, if kin are found by meaning, too."""
    growing: _Growing | None = None
    sorted_keys: tuple[tuple[Int64, IdHashes], ...] = ()
    """The order of the keys of the queries that were known first, and the keys in it."""

    # --- building -------------------------------------------------------------------------------------------------

    @classmethod
    def of(
        cls, queries: QuerySet, keys: Sequence[str] = (), *, best: float | None = None, meaning: bool = False
    ) -> QueryMemory:
        """Remember judged queries with texts and document ids.

        Parameters
        ----------
        queries
            The queries. Candidates that are not judged count as grade 0, as wherever a ranker learns.
        keys
            Columns of documents to remember, too, such as their site or brand.
        best
            The best grade; None: the highest of these.
        meaning
            Whether kin are found by the vectors of queries, too.
        """
        texts = texts_of(queries)
        top = max(float(queries.grades.max()), 1.0) if best is None else best
        vocabulary = Vocabulary.of(texts, words=True)
        index, words = QueryIndex().fit(texts), (vocabulary, vocabulary.terms(texts))
        vectors = VectorIndex().fit(_vectors_of(queries)) if meaning else None
        return cls._of(queries, index, words, keys, top, vectors)

    def of_others(self, queries: QuerySet) -> QueryMemory:
        """Remember other queries alone, described as these are."""
        texts = texts_of(queries)
        words = self.words[0], self.words[0].terms(texts)
        vectors = None if self.vectors is None else self.vectors.of(self._checked(_vectors_of(queries)))
        return self._of(queries, self.index.of(texts), words, self.keys, self.best, vectors)

    @classmethod
    def _of(
        cls,
        queries: QuerySet,
        index: QueryIndex,
        words: tuple[Vocabulary, Terms],
        keys: Sequence[str],
        best: float,
        vectors: VectorIndex | None,
    ) -> QueryMemory:
        good = np.clip(queries.grades.astype(np.float64) / best, 0.0, 1.0)
        owner, once = queries.query_of_row, np.ones(queries.n_rows)
        cells = {
            name: Cells.of(len(queries), owner, target, once, good)
            for name, target in targets_of(queries, keys).items()
        }
        texts = np.array(texts_of(queries), dtype=np.str_)
        sums = Levels([_sums(cells, slice(None), words[1], vectors)])
        return cls(texts, query_keys(texts), index, words, cells, best, sums, vectors)

    def families(self) -> Int64:
        """Return the families of known queries; see `kinrank.kin.families`."""
        return families_in(self.index, self.vectors, self.key)

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
        return column_names(self.keys, meaning=self.vectors is not None)

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
            sums = Levels([_sums(self.cells, counted, self.words[1], self.vectors)])
            found[np.repeat(own, asked.sizes)] = self._columns(self.asked(asked[own]), sums, counted)
        return found

    def asked(self, queries: QuerySet) -> Asked:
        """Describe queries to look up."""
        texts = texts_of(queries)
        terms, words = self.index.describe(texts), self.words[0].terms(texts)
        key = query_keys(queries.query_columns[TEXT])
        vectors = None if self.vectors is None else self.vectors.describe(self._checked(_vectors_of(queries)))
        return Asked(key, terms, words, vectors, queries.offsets, targets_of(queries, self.keys))

    def _checked(self, vectors: Float32) -> Float32:
        """Return vectors of queries, if they are as long as those of known queries."""
        assert self.vectors is not None
        if vectors.shape[1] != self.vectors.width:
            raise DataError(
                f"memory knows queries by vectors of {self.vectors.width} numbers, and these have {vectors.shape[1]}: "
                "use the encoder that the model was trained with, or train again"
            )
        return vectors

    def nearest(self, asked: Asked, allowed: NDArray[np.bool_] | None = None) -> Near:
        """Return the positions and similarities of the kin of queries by letters, without those of the same text."""
        return self.index.nearest(asked.terms, NEIGHBORS, allowed, (self.key, asked.key))

    def nearest_in_meaning(self, asked: Asked, allowed: NDArray[np.bool_] | None = None) -> Near:
        """Return the same by vectors; none without vectors."""
        if self.vectors is None or asked.vectors is None:
            return np.empty((len(asked.key), 0), dtype=np.int32), np.empty((len(asked.key), 0), dtype=np.float32)
        return self.vectors.nearest(asked.vectors, NEIGHBORS, allowed, (self.key, asked.key))

    def _columns(self, asked: Asked, sums: Levels, counted: NDArray[np.bool_] | None) -> Float32:
        near, same = self.nearest(asked, counted), self.same(asked.key, counted)
        n_rows = int(asked.offsets[-1])
        columns, part = [], {}
        for name, target in asked.targets.items():
            found = np.zeros((n_rows, 9), dtype=np.float32)
            part[name] = sums.add_everyone(name, target, found)
            _add_kin(*self.cells[name], *near, asked.offsets, target, found)
            if same.shape[1]:
                _add_same(*self.cells[name], same, asked.offsets, target, found)
            columns.append(_with_rates(found))
        chosen = np.zeros((n_rows, 2), dtype=np.float32)
        document = asked.targets[DOCUMENT]
        for number, each in enumerate(sums):
            _add_chosen(*each.chosen, *asked.words, asked.offsets, document, part[DOCUMENT], number, chosen)
        by_meaning = self._by_meaning(asked, sums, part[DOCUMENT], counted)
        return np.hstack([columns[0], chosen, *columns[1:], *by_meaning])

    def _by_meaning(self, asked: Asked, sums: Levels, part: Int64, counted: NDArray[np.bool_] | None) -> list[Float32]:
        """Return the columns of kin by vectors, and *chosen for* after those of documents."""
        if asked.vectors is None:
            return []
        near, n_rows = self.nearest_in_meaning(asked, counted), int(asked.offsets[-1])
        columns = []
        for name, target in asked.targets.items():
            found = np.zeros((n_rows, 9), dtype=np.float32)
            _add_kin(*self.cells[name], *near, asked.offsets, target, found)
            columns.append(_with_rates(found)[:, _KIN])
        chosen, document = np.zeros(n_rows, dtype=np.float32), asked.targets[DOCUMENT]
        for number, each in enumerate(sums):
            if each.means is not None:
                _add_meant(*each.means, asked.vectors, asked.offsets, document, part, number, chosen)
        return [columns[0], chosen[:, None], *columns[1:]]

    def same(self, key: IdHashes, counted: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
        """Return the positions of known queries with the same text, a row for each query; -1 in place of none."""
        counted = self.index.allowed(counted)
        columns = [np.empty((len(key), 0), dtype=np.int32)]
        for order, keys in self._by_key:
            first = np.searchsorted(keys, key)
            last = np.minimum(np.searchsorted(keys, key, side="right"), first + _MOST_REPEATS)
            width = int((last - first).max(initial=0))
            if not width:
                continue
            places = first[:, None] + np.arange(width)
            found = np.where(places < last[:, None], order[np.minimum(places, len(order) - 1)], -1).astype(np.int32)
            columns.append(found if counted is None else np.where((found >= 0) & counted[found], found, np.int32(-1)))
        return np.hstack(columns)

    @cached_property
    def _by_key(self) -> list[tuple[Int64, IdHashes]]:
        """The order of the keys, and the keys in it, for the queries known first and for those that came since."""
        start = sum(len(order) for order, _ in self.sorted_keys)
        return [*self.sorted_keys, _sorted_keys(self.key, start)]

    # --- learning and forgetting ------------------------------------------------------------------------------------

    def take(self, known: NDArray[Any]) -> QueryMemory:
        """Return some of the known queries, by position or mask."""
        places = np.arange(len(self))[known]
        cells = {name: table.take(places) for name, table in self.cells.items()}
        words = self.words[0], self.words[1].take(places)
        vectors = None if self.vectors is None else self.vectors.take(places)
        sums = Levels([_sums(cells, slice(None), words[1], vectors)])
        texts, key, index = self.texts[places], self.key[places], self.index.take(places)
        return QueryMemory(texts, key, index, words, cells, self.best, sums, vectors)

    def prepared(self) -> QueryMemory:
        """Return the same with memory for further queries, which the first `joined` would have to find."""
        return replace(self, growing=_Growing.of(self), sorted_keys=(_sorted_keys(self.key, 0),))

    def joined(self, other: QueryMemory) -> QueryMemory:
        """Return the known queries of both, described alike: `other` is made by `of_others`.

        This costs little more than the further queries do, and the documents that they speak of.
        """
        before = self if self.growing is not None else self.prepared()
        assert before.growing is not None
        growing = before.growing.append(other)
        cells = {name: table.table for name, table in growing.cells.items()}
        vectors = self.vectors
        if vectors is not None and other.vectors is not None:
            vectors = vectors.add(other.vectors.vectors_)
        few_came = len(self) < 2 * len(before.sorted_keys[0][0]) + _RESORTED
        longer = replace(
            before,
            texts=growing.texts.rows,
            key=growing.key.rows,
            index=self.index.add(other.texts.tolist()),
            words=(self.words[0], growing.words.table),
            cells=cells,
            vectors=vectors,
            growing=growing,
            sorted_keys=before.sorted_keys if few_came else (_sorted_keys(growing.key.rows, 0),),
        )
        return longer._with_changed({name: table.target for name, table in other.cells.items()}, len(other))

    def without(self, places: Int64) -> QueryMemory:
        """Return the same without some of the known queries. The others keep their positions."""
        changed = {name: table.take(places).target for name, table in self.cells.items()}
        vectors = None if self.vectors is None else self.vectors.remove(places)
        return replace(self, index=self.index.remove(places), vectors=vectors)._with_changed(changed, len(places))

    def _with_changed(self, targets: dict[str, IdHashes], n_changed: int) -> QueryMemory:
        """Return the same after queries came or went that speak of some targets."""
        counted = self.index.allowed()
        if 4 * n_changed > len(self):
            sums = _sums(self.cells, slice(None) if counted is None else counted, self.words[1], self.vectors)
            return replace(self, sums=Levels([sums]))
        everyone = {}
        for name, table in self.cells.items():
            target = np.unique(targets[name])
            places, cells = table.of_targets(target, counted)
            nothing = np.zeros(len(target), dtype=np.float32)  # so that no earlier part says more of them
            columns = zip(cells[1:], (target, nothing, nothing), strict=True)
            everyone[name] = Everyone.of(*(np.r_[column, further] for column, further in columns))
            if name == DOCUMENT:
                chosen = ChosenFor.of(cells, slice(None), self.words[1].take(places))
                vectors = None if self.vectors is None else self.vectors.at(places)
                means = None if vectors is None else Means.of(cells, slice(None), vectors)
        return replace(self, sums=self.sums.updated(Sums(everyone, chosen, means)))

    # --- saving -----------------------------------------------------------------------------------------------------

    def get_state(self) -> State:
        """Return everything remembered."""
        kept = self.index.allowed()
        if kept is not None:
            return self.take(kept).get_state()
        cells = {f"cells{i}": table._asdict() for i, table in enumerate(self.cells.values())}
        words = {"idf": self.words[0].idf, **self.words[1]._asdict()}
        known = {"texts": self.texts, "keys": np.array(self.keys, dtype=np.str_), "best": np.array(self.best)}
        vectors = {} if self.vectors is None else self.vectors.get_state()
        return nest(index=self.index.get_state(), words=words, vectors=vectors, **cells) | known

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
        stored = unnest(state, "vectors")
        vectors = VectorIndex().set_state(stored) if stored else None
        sums, best = Levels([_sums(cells, slice(None), terms, vectors)]), float(state["best"])
        return cls(texts, query_keys(texts), index, (vocabulary, terms), cells, best, sums, vectors)


def column_names(keys: Sequence[str] = (), *, meaning: bool = False) -> tuple[str, ...]:
    """Return the names of the columns of memory, with or without those of kin by meaning.

    Examples
    --------
    >>> column_names(["site"])[-2:]
    ('site_query_asked', 'site_query_good')
    """
    document = [name for names in PARTS.values() for name in names]
    by_letters = (*document, *(f"{key}_{name}" for key in keys for part in _OF_KEYS for name in PARTS[part]))
    if not meaning:
        return by_letters
    return (*by_letters, *MEANING, CHOSEN_MEANING, *(f"{key}_{name}" for key in keys for name in MEANING))


def texts_of(queries: QuerySet) -> list[str]:
    """Return the texts of queries."""
    if TEXT not in queries.query_columns:
        raise DataError("memory finds queries by their texts, and these have none: pass query_text (column text)")
    texts: list[str] = queries.query_columns[TEXT].astype(np.str_).tolist()
    return texts


def _vectors_of(queries: QuerySet) -> Float32:
    """Return the vectors of queries."""
    if VECTORS not in queries.query_columns:
        raise DataError("memory finds queries by their vectors, too, and these have none: pass query_vectors")
    vectors: Float32 = queries.query_columns[VECTORS]
    return vectors


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


def _sums(
    cells: dict[str, Cells], counted: NDArray[np.bool_] | slice, words: Terms, vectors: VectorIndex | None
) -> Sums:
    """Add up the cells of the counted queries."""
    rows = {
        name: counted if isinstance(counted, slice) else np.repeat(counted, np.diff(table.offsets))
        for name, table in cells.items()
    }
    everyone = {
        name: Everyone.of(table.target[rows[name]], table.amount[rows[name]], table.good[rows[name]])
        for name, table in cells.items()
    }
    of_documents = cells[DOCUMENT], rows[DOCUMENT]
    means = None if vectors is None else Means.of(*of_documents, vectors.vectors_)
    return Sums(everyone, ChosenFor.of(*of_documents, words), means)


_KIN = slice(3, 8)  # the columns of kin among those of a target


def _with_rates(found: Float32) -> Float32:
    """Return the columns of a target from its sums, in the order of `PARTS`."""
    asked, good, kin_good, kin_asked, count, nearest_good, nearest_bad, same_asked, same_good = found.T
    rate = good / (asked + 1), kin_good / (kin_asked + _SMOOTHING)
    return np.column_stack(
        [asked, good, rate[0], kin_good, rate[1], count, nearest_good, nearest_bad, same_asked, same_good]
    )


def _sorted_keys(key: IdHashes, start: int) -> tuple[Int64, IdHashes]:
    """Return the order of the keys from a position on, and the keys in it."""
    order = start + np.argsort(key[start:], kind="stable")
    return order, key[order]


@numba.njit(cache=True, nogil=True)
def _rows_of(target, wanted):  # type: ignore[no-untyped-def]
    """Return the positions of wanted targets, which are ascending."""
    may_be = np.zeros(1 << 12, dtype=np.bool_)  # by the leading bits of hashes
    for value in wanted:
        may_be[value >> _LEADING] = True
    rows = np.empty(len(target), dtype=np.int64)
    n = 0
    for row in range(len(target)):
        if may_be[target[row] >> _LEADING]:
            place = lower_bound(wanted, target[row], 0, len(wanted))
            if place < len(wanted) and wanted[place] == target[row]:
                rows[n] = row
                n += 1
    return rows[:n].copy()


@numba.njit(cache=True, nogil=True)
def _add_everyone(known, amount, good, target, part, number, found):  # type: ignore[no-untyped-def]
    for row in range(len(target)):
        if part[row] >= 0:
            continue
        place = lower_bound(known, target[row], 0, len(known))
        if place < len(known) and known[place] == target[row]:
            part[row] = number
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
def _add_chosen(  # type: ignore[no-untyped-def]
    known, offsets, term, weight, length, asked, asked_term, asked_weight, rows, target, part, number, found
):
    """Add how like the words of a query are to those of all queries that chose a document, by sum and by cosine."""
    for i in range(len(rows) - 1):
        for row in range(rows[i], rows[i + 1]):
            if part[row] != number:
                continue
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


@numba.njit(cache=True, nogil=True)
def _add_meant(known, mean, asked, rows, target, part, number, found):  # type: ignore[no-untyped-def]
    """Add the cosine of the vector of a query and the mean of those of all queries that chose a document."""
    for i in range(len(rows) - 1):
        for row in range(rows[i], rows[i + 1]):
            if part[row] != number:
                continue
            place = lower_bound(known, target[row], 0, len(known))
            if place < len(known) and known[place] == target[row]:
                total = np.float32(0.0)
                for j in range(mean.shape[1]):
                    total += mean[place, j] * asked[i, j]
                found[row] = total
