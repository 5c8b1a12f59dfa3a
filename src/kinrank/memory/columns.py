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

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, GrowingRows, GrowingTable, Int64, State, gather
from kinrank.data.hashes import IdHashes, hash_texts, query_keys
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, VECTORS
from kinrank.errors import DataError
from kinrank.kin.families import families_in
from kinrank.kin.known import NEIGHBORS, Near
from kinrank.kin.letters import QueryIndex, Terms, Vocabulary, joined_terms
from kinrank.kin.vectors import VectorIndex
from kinrank.memory._tables import DOCUMENT, Cells, ChosenFor, Everyone, Levels, Means, Sums
from kinrank.memory.answers import Answers, Asked, Kin, PartSums, Round, add_same, columns_of
from kinrank.store import nest, unnest

N_FOLDS = 10
"""Folds in which the columns of training queries are made: memory is nearly as dense there as it is later."""
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
_MOST_REPEATS = 1_000  # known queries of the same text that are read
_RESORTED = 10_000  # queries that come before keys are sorted again


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
class Judged:
    """What memory needs of judged queries."""

    texts: NDArray[np.str_]
    sizes: Int64
    """The number of candidates of each query."""
    grades: Float32
    targets: dict[str, IdHashes]
    """The hashes of documents, then of each key."""
    vectors: Float32 | None

    @classmethod
    def of(cls, queries: QuerySet, keys: Sequence[str], *, meaning: bool) -> Judged:
        """Take it from queries."""
        texts = np.array(texts_of(queries), dtype=np.str_)
        vectors = _vectors_of(queries) if meaning else None
        return cls(texts, queries.sizes, queries.grades, targets_of(queries, keys), vectors)

    @property
    def best(self) -> float:
        """The best grade."""
        return max(float(self.grades.max(initial=0.0)), 1.0)

    @property
    def relevant(self) -> tuple[Int64, IdHashes]:
        """Pairs of a query and a relevant document."""
        rows = np.flatnonzero(self.grades > 0)
        return np.repeat(np.arange(len(self.sizes)), self.sizes)[rows], self.targets[DOCUMENT][rows]

    def take(self, places: Int64) -> Judged:
        """Return some of the queries."""
        rows = gather(np.r_[0, np.cumsum(self.sizes)], places)[1]
        vectors = None if self.vectors is None else self.vectors[places]
        targets = {name: target[rows] for name, target in self.targets.items()}
        return Judged(self.texts[places], self.sizes[places], self.grades[rows], targets, vectors)

    @classmethod
    def concat(cls, parts: Sequence[Judged]) -> Judged:
        """Join queries."""
        vectors = [part.vectors for part in parts if part.vectors is not None]
        return cls(
            np.concatenate([part.texts for part in parts]),
            np.concatenate([part.sizes for part in parts]),
            np.concatenate([part.grades for part in parts]),
            {name: np.concatenate([part.targets[name] for part in parts]) for name in parts[0].targets},
            np.concatenate(vectors) if vectors else None,
        )

    def get_state(self) -> State:
        """Return all arrays."""
        targets = {f"target{number}": target for number, target in enumerate(self.targets.values())}
        vectors = {} if self.vectors is None else {"vectors": self.vectors}
        names = np.array(list(self.targets), dtype=np.str_)
        return {"texts": self.texts, "sizes": self.sizes, "grades": self.grades, "names": names, **targets, **vectors}

    @classmethod
    def from_state(cls, state: State) -> Judged:
        """Restore what `get_state` returned."""
        targets = {name: state[f"target{number}"] for number, name in enumerate(state["names"].tolist())}
        return cls(state["texts"], state["sizes"], state["grades"], targets, state.get("vectors"))


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
        judged = Judged.of(queries, keys, meaning=meaning)
        texts = judged.texts.tolist()
        vocabulary = Vocabulary.of(texts, words=True)
        index, words = QueryIndex().fit(texts), (vocabulary, vocabulary.terms(texts))
        vectors = None if judged.vectors is None else VectorIndex().fit(judged.vectors)
        return cls._of(judged, index, words, judged.best if best is None else best, vectors)._added_up()

    @classmethod
    def of_block(cls, judged: Judged, letters: Vocabulary, words: Vocabulary, best: float) -> QueryMemory:
        """Remember a block of the known queries, for `answers` and `of_blocks`. It has no sums, and so no `columns`."""
        texts = judged.texts.tolist()
        index = QueryIndex().of_terms(letters, letters.terms(texts))
        vectors = None if judged.vectors is None else VectorIndex().fit(judged.vectors)
        return cls._of(judged, index, (words, words.terms(texts)), best, vectors)

    @classmethod
    def of_blocks(cls, blocks: Sequence[QueryMemory], *, meaning: bool) -> QueryMemory:
        """Join blocks of known queries, with or without their vectors."""
        first = blocks[0]
        vectors = [block.vectors for block in blocks if block.vectors is not None]
        return QueryMemory(
            np.concatenate([block.texts for block in blocks]),
            np.concatenate([block.key for block in blocks]),
            QueryIndex.of_blocks([block.index for block in blocks]),
            (first.words[0], joined_terms([block.words[1] for block in blocks])),
            {name: Cells.concat([block.cells[name] for block in blocks]) for name in first.cells},
            first.best,
            Levels(),
            VectorIndex.of_blocks(vectors) if vectors and meaning else None,
        )._added_up()

    def _added_up(self) -> QueryMemory:
        """Return the same with the sums over all known queries."""
        return replace(self, sums=Levels([_sums(self.cells, slice(None), self.words[1], self.vectors)]))

    def of_others(self, queries: QuerySet) -> QueryMemory:
        """Remember other queries alone, described as these are."""
        judged = Judged.of(queries, self.keys, meaning=self.vectors is not None)
        texts = judged.texts.tolist()
        words = self.words[0], self.words[0].terms(texts)
        vectors = None if self.vectors is None else self.vectors.of(self._checked(judged.vectors))
        return self._of(judged, self.index.of(texts), words, self.best, vectors)._added_up()

    @classmethod
    def _of(
        cls,
        judged: Judged,
        index: QueryIndex,
        words: tuple[Vocabulary, Terms],
        best: float,
        vectors: VectorIndex | None,
    ) -> QueryMemory:
        good = np.clip(judged.grades.astype(np.float64) / best, 0.0, 1.0)
        n = len(judged.sizes)
        owner, once = np.repeat(np.arange(n), judged.sizes), np.ones(len(good))
        cells = {name: Cells.of(n, owner, target, once, good) for name, target in judged.targets.items()}
        return cls(judged.texts, query_keys(judged.texts), index, words, cells, best, Levels(), vectors)

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
        asked = self.asked(queries)
        places, same = self.same(asked.key), {}
        for name, target in asked.targets.items():
            same[name] = np.zeros((len(target), 2))
            add_same(self.cells[name], places, asked, name, same[name])
        by_letters = self.nearest(asked), self.cells
        by_meaning = None if self.vectors is None else (self.nearest_in_meaning(asked), self.cells)
        return columns_of(asked, self.sums, by_letters, by_meaning, same)

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
        order = Round(np.unique(part, return_inverse=True)[1], wanted, in_time)
        asked = self.asked(queries if wanted.all() else queries[np.flatnonzero(wanted)])
        if not len(asked.key):
            return np.empty((0, len(self.names)), dtype=np.float32)
        return self.answers(asked, order).columns(asked, order)

    def answers(self, asked: Asked, order: Round, first: int = 0, listed: NDArray[np.bool_] | None = None) -> Answers:
        """Return what these queries say of the candidates of those that are asked about in a round.

        Parameters
        ----------
        asked
            The queries that are asked about.
        order
            The parts of all known queries, of which these may be some.
        first
            The place of the first of these queries among all known ones.
        listed
            Which of these queries may answer for queries of the same text; None: all.
        """
        part = order.part[first : first + len(self)]
        shape = len(asked.key), NEIGHBORS
        near = np.full(shape, -1, dtype=np.int32), np.zeros(shape, dtype=np.float32)
        meant = near[0].copy(), near[1].copy()
        same = {name: np.zeros((len(target), 2)) for name, target in asked.targets.items()}
        for own in order.parts_asked:
            places, counted = order.of_part(own), order.counts(part, own)
            some = asked.take(places)
            near[0][places], near[1][places] = self.nearest(some, counted)
            if self.vectors is not None:
                meant[0][places], meant[1][places] = self.nearest_in_meaning(some, counted)
            alike = self.same(some.key, counted if listed is None else counted & listed)
            rows = gather(asked.offsets, places)[1]
            for name, table in self.cells.items():
                found = np.zeros((len(rows), 2))
                add_same(table, alike, some, name, found)
                same[name][rows] = found
        targets = {name: np.unique(target) for name, target in asked.targets.items()}
        vectors = None if self.vectors is None else self.vectors.vectors_
        return Answers(
            Kin.of(near, first, self.cells, asked),
            None if vectors is None else Kin.of(meant, first, self.cells, asked),
            same,
            PartSums.of(targets, part, order.n_parts, self.cells, self.words[1], vectors),
        )

    def asked(self, queries: QuerySet) -> Asked:
        """Describe queries to look up."""
        texts = np.array(texts_of(queries), dtype=np.str_)
        vectors = None if self.vectors is None else _vectors_of(queries)
        return self._asked(texts, queries.offsets, targets_of(queries, self.keys), vectors)

    def asked_of(self, queries: Judged) -> Asked:
        """Describe judged queries to look up."""
        offsets = np.r_[0, np.cumsum(queries.sizes)]
        return self._asked(queries.texts, offsets, queries.targets, queries.vectors)

    def _asked(
        self, texts: NDArray[np.str_], offsets: Int64, targets: dict[str, IdHashes], vectors: Float32 | None
    ) -> Asked:
        listed = texts.tolist()
        terms, words = self.index.describe(listed), self.words[0].terms(listed)
        described = None if self.vectors is None else self.vectors.describe(self._checked(vectors))
        return Asked(query_keys(texts), terms, words, described, offsets, targets)

    def _checked(self, vectors: Float32 | None) -> Float32:
        """Return vectors of queries, if they are as long as those of known queries."""
        assert self.vectors is not None
        assert vectors is not None
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
        return cls.block_from_state(state)._added_up()

    @classmethod
    def block_from_state(cls, state: State) -> QueryMemory:
        """Restore a block of known queries, for `of_blocks`."""
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
        best = float(state["best"])
        return cls(texts, query_keys(texts), index, (vocabulary, terms), cells, best, Levels(), vectors)


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


def listed_repeats(key: IdHashes) -> NDArray[np.bool_]:
    """Return which known queries are read among those of the same text: the first ones."""
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.r_[True, key[order][1:] != key[order][:-1]][: len(key)])
    number = np.arange(len(key)) - np.repeat(starts, np.diff(np.r_[starts, len(key)]))
    listed = np.empty(len(key), dtype=np.bool_)
    listed[order] = number < _MOST_REPEATS
    return listed


def _sorted_keys(key: IdHashes, start: int) -> tuple[Int64, IdHashes]:
    """Return the order of the keys from a position on, and the keys in it."""
    order = start + np.argsort(key[start:], kind="stable")
    return order, key[order]
