"""What readers of a ledger hold in main memory: who said what of which document, for each question.

Most of it is arrays that never change. What came since is a small part next to them. Nobody waits for those who write.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinrank import folder
from kinrank.arrays import Float64, GrowingRows, Int64, State
from kinrank.errors import StoreError
from kinrank.kin.vectors import unit_vectors
from kinrank.memory.agreement import Agreement, marks, weights_of_pairs
from kinrank.memory.ledger import Changes, Cursor
from kinrank.store import nest, unnest

KIND = "memory snapshot"
_VERSION = 2  # of the arrays
NOBODY = -1
"""The person that all votes without a name count as, as they may be one's."""
TAUGHT = -(2**62)
"""Below are the numbers of votes without a name that the owner of the memory teaches, question by question."""
WHOLE = 10
"""The amount that is a whole vote."""
IN_FULL = 3
"""The number of questions for which what one person says of a document counts in full; more of them share that."""
SHARES = 1000
"""What one question, or one person, says of a document counts as so many thousandths at most."""
_MERGED = 50_000  # votes that came since, from which they are put among the others
_SMALL = 2_000  # questions that are read again whenever one of them is forgotten
_GONE = 0.1  # share of forgotten questions from which the others are read again


class Cells(NamedTuple):
    """What people said of documents for some questions, by question and document."""

    kin: Int64
    """Position among the questions that were asked for."""
    document: Int64
    amount: Float64
    good: Float64


class _Rows(NamedTuple):
    """What counts of the votes on some questions: one row for each question, document and person, in this order."""

    place: Int64
    document: Int64
    person: Int64
    said: Int64
    amount: Int64
    good: Int64
    group: Int64
    """The number that `_Documents` has for the document and the person."""

    def take(self, which: Any) -> _Rows:
        return _Rows(*(values[which] for values in self))

    def folded(self) -> _Rows:
        """Return the rows that count, of rows in the order in which they came.

        What somebody said last counts, and what was only skipped if nothing else was said.
        """
        order = np.lexsort((np.arange(len(self.place)), self.said, self.person, self.document, self.place))
        rows = self.take(order)
        last = np.ones(len(order), dtype=bool)
        last[:-1] = (np.diff(rows.place) != 0) | (np.diff(rows.document) != 0) | (np.diff(rows.person) != 0)
        return rows.take(last)

    @classmethod
    def joined(cls, parts: Sequence[_Rows]) -> _Rows:
        return cls(*(np.concatenate(values) for values in zip(*parts, strict=True))) if parts else _NO_ROWS


_NO_ROWS = _Rows(*(np.empty(0, dtype=np.int64) for _ in _Rows._fields))


class Snapshot:
    """What is known of questions and documents. `apply` adds what came since; one thread at a time may call it.

    Questions have places, in the order in which they came. A forgotten question leaves its place empty.

    Examples
    --------
    >>> from kinrank.memory.ledger import Entry, Said, open_ledger
    >>> ledger = open_ledger(":memory:")
    >>> for user in ("ann", "bob"):
    ...     ledger.append("", Entry("opening hours", ledger.person(user), [Said("contact", "chosen", 10, 10)]))
    >>> snapshot = Snapshot.of(ledger.since("", Cursor()))
    >>> cells = snapshot.cells([0])
    >>> snapshot.texts, snapshot.name(cells.document[0]), cells.amount.tolist()
    (['opening hours'], 'contact', [20.0])
    """

    def __init__(self) -> None:
        self.cursor = Cursor()
        self.texts: list[str] = []
        """The text of each place."""
        self.vectors: GrowingRows | None = None
        """The vector of each place, of unit length, zeros if it has none; None while no question has one."""
        self.marks = GrowingRows(np.empty(0, dtype=np.int64))
        """What `marks` says of the text of each place."""
        self.pairs = _Pairs.none()
        self.n_compared = 0
        """Grows whenever questions were compared again."""
        self._ids = np.empty(0, dtype=np.int64)
        self._new_ids: list[int] = []
        self._by_id = _Sorted.of(self._ids)
        self._new_places: dict[int, int] = {}
        self._empty: set[int] = set()  # without a vote that counts
        self._forgotten: set[int] = set()  # those of them that the ledger does not know any more
        # The votes: those of the arrays, by place, and all votes on questions of which one came since.
        self._rows, self._offsets = _NO_ROWS, np.zeros(1, dtype=np.int64)
        self._changed: dict[int, _Rows] = {}
        self._n_changed = 0
        # The documents: their names, and what is known of them for all questions.
        self._documents = _Documents.none()

    @classmethod
    def of(cls, changes: Changes) -> Snapshot:
        """Return a snapshot of everything."""
        self = cls()
        self.apply(changes)
        self._merge()
        return self

    # --- questions --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of questions with a vote."""
        return self.n_places - len(self._empty)

    @property
    def n_places(self) -> int:
        """Number of places, also of questions that are forgotten."""
        return len(self.texts)

    def is_known(self, places: Int64) -> NDArray[np.bool_]:
        """Return which places have a vote."""
        if not self._empty:
            return np.ones(len(places), dtype=bool)
        return np.array([place not in self._empty for place in places.tolist()], dtype=bool)

    def id(self, place: int) -> int:
        """Return the number that the ledger has for the question of a place."""
        return int(self._ids[place]) if place < len(self._ids) else self._new_ids[place - len(self._ids)]

    def place(self, question: int) -> int | None:
        """Return the place of a question by its number in the ledger; None without a vote on it."""
        place = self._place(question)
        return None if place is None or place in self._empty else place

    def _place(self, question: int) -> int | None:
        found = self._new_places.get(question)
        return self._by_id.find(question) if found is None else found

    # --- cells ------------------------------------------------------------------------------------------------------

    def cells(self, places: Sequence[int]) -> Cells:
        """Return what everyone said for some questions."""
        rows = self._gather(places)
        return _summed(rows.place, rows.document, rows.amount, rows.good, np.ones(len(rows.place)))

    def kin_cells(self, places: Sequence[int], near: NDArray[np.bool_] | None = None) -> Cells:
        """Return what people said for the kin of a question, which are given nearest first.

        A person counts once for a document: for the nearest of the kin for which they said something of it, and less if
        they said it for more than `IN_FULL` questions, similar or not. All who have no name count as one person. What
        is taught counts once for each question, and once for all together that are `near`: near-duplicates of the asked
        question.
        """
        rows = self._gather(places)
        taught = NOBODY - 1 - rows.place
        if near is not None:
            taught = np.where(near[rows.place], NOBODY, taught)
        person = np.where(rows.person < TAUGHT, taught, np.maximum(rows.person, NOBODY))
        order = np.lexsort((rows.place, person, rows.document))
        kin, document, person = rows.place[order], rows.document[order], person[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = (np.diff(document) != 0) | (np.diff(person) != 0)
        group = np.cumsum(first) - 1
        nearest = kin == kin[first][group]
        # Several rows are left only of those without a name: their mean is what one of them says.
        same = np.bincount(group, weights=nearest)[group[nearest]] if len(group) else np.empty(0)
        kept = order[nearest]
        asked = np.where(rows.person[kept] < TAUGHT, 1, self._documents.questions(rows.group[kept]))
        weight = np.minimum(1.0, IN_FULL / np.maximum(asked, 1)) / same
        return _summed(rows.place[kept], rows.document[kept], rows.amount[kept], rows.good[kept], weight)

    def _gather(self, places: Sequence[int]) -> _Rows:
        """Return the votes on some questions; the place of each is the position of its question among the given."""
        asked = np.asarray(places, dtype=np.int64)
        if not len(asked):
            return _NO_ROWS
        stored = (asked >= 0) & (asked < len(self._ids))
        if self._changed:
            stored &= np.array([place not in self._changed for place in asked.tolist()], dtype=bool)
        at = np.flatnonzero(stored)
        starts = self._offsets[asked[at]]
        counts = self._offsets[asked[at] + 1] - starts
        rows = self._rows.take(_ranges(starts, counts))._replace(place=np.repeat(at, counts))
        parts = [rows]
        for number in np.flatnonzero(~stored).tolist():
            own = self._changed.get(places[number], _NO_ROWS)
            parts.append(own._replace(place=np.full(len(own.place), number)))
        if len(parts) > 1:
            rows = _Rows.joined(parts)
            rows = rows.take(np.argsort(rows.place, kind="stable"))
        return rows.take(rows.amount > 0)

    # --- documents --------------------------------------------------------------------------------------------------

    @property
    def n_documents(self) -> int:
        """Number of documents of which something is known."""
        return len(self._documents.names)

    def name(self, document: int) -> str | None:
        """Return the name of a document by its number in the ledger."""
        return self._documents.names.get(document)

    def everyone(self, documents: Sequence[int]) -> tuple[Float64, Float64]:
        """Return for how many questions and people each document was shown and chosen; 0 if it is not known.

        All that one question says of a document counts as one at most, and so does all that one person says.
        """
        found = [self._documents.total(document) for document in documents]
        totals = np.array(found, dtype=np.float64).reshape(-1, 2) / SHARES
        return totals[:, 0], totals[:, 1]

    def said_in_full(self, document: int, person: int) -> bool:
        """Return whether a person can say something of a document for one more question that counts in full."""
        return person < TAUGHT or self._documents.said(document, max(person, NOBODY)) < IN_FULL

    # --- following the ledger ---------------------------------------------------------------------------------------

    def apply(self, changes: Changes) -> bool:
        """Add what came since, and return whether that was worth it: else start again with everything."""
        if changes.again and self.texts:
            return False
        self._add_questions(changes)
        for number, name in changes.documents:
            self._documents.names[number] = name
        votes = changes.votes
        ids, of = np.unique(np.concatenate([votes.question, np.array(changes.deleted, np.int64)]), return_inverse=True)
        found = [self._place(number) for number in ids.tolist()]
        place = np.array([-1 if each is None else each for each in found], dtype=np.int64)
        rows = _Rows(place[of[: len(votes.question)]], *votes[1:], np.zeros(len(votes.question), dtype=np.int64))
        rows = rows.take(np.argsort(rows.place, kind="stable"))
        places = np.unique(place[place >= 0])
        if len(self._ids) or len(self._changed) or len(changes.deleted):
            deleted = {self._place(number) for number in changes.deleted}
            bounds = np.searchsorted(rows.place, np.append(places, self.n_places)).tolist()
            for at, number in enumerate(places.tolist()):
                new = rows.take(slice(bounds[at], bounds[at + 1]))
                self._replace_rows(number, new, number in deleted)
        else:
            self._first(rows.take(rows.place >= 0).folded())
        if changes.deleted:
            self.pairs = self.pairs.without(changes.deleted)
            self.n_compared += 1
        if changes.pairs:
            self.pairs = self.pairs.added(self._new_pairs(changes.pairs))
        self._compare(np.unique(np.concatenate([ids, [pair[0] for pair in changes.pairs]])).astype(np.int64))
        self.cursor = changes.cursor
        if self._n_changed > max(_MERGED, len(self._rows.place) // 2):
            self._merge()
        return len(self._forgotten) <= (0 if self.n_places < _SMALL else _GONE * self.n_places)

    def _add_questions(self, changes: Changes) -> None:
        start = self.n_places
        known = [self._place(each.id) for each in changes.questions]
        new = [
            each
            for each, place in zip(changes.questions, known, strict=True)
            if place is None or place in self._forgotten
        ]
        for place, each in enumerate(new, start=start):
            self._new_places[each.id] = place
            self._new_ids.append(each.id)
            self.texts.append(each.text)
            self._empty.add(place)
        if new:
            self.marks = self.marks.append(np.array([marks(each.text) for each in new], dtype=np.int64))
        given = [np.frombuffer(each.vector, np.float32) if each.vector else None for each in new]
        width = next((len(each) for each in given if each is not None), 0)
        if self.vectors is not None:
            width = self.vectors.rows.shape[1]
        if width:
            nothing = np.zeros(width, dtype=np.float32)
            rows = np.array([nothing if each is None or len(each) != width else each for each in given], np.float32)
            before = GrowingRows(np.zeros((start, width), np.float32)) if self.vectors is None else self.vectors
            self.vectors = before.append(unit_vectors(rows)) if len(rows) else before

    def _first(self, rows: _Rows) -> None:
        """Take the first votes as arrays."""
        self._ids, self._new_ids = np.array(self._new_ids, dtype=np.int64), []
        self._by_id, self._new_places = _Sorted.of(self._ids), {}
        self._offsets = np.searchsorted(rows.place, np.arange(self.n_places + 1))
        known = np.zeros(self.n_places, dtype=bool)
        known[rows.place[rows.amount > 0]] = True
        self._empty = set(np.flatnonzero(~known).tolist())
        self._documents, self._rows = self._documents.counted(rows)

    def _replace_rows(self, place: int, new: _Rows, deleted: bool) -> None:
        """Add votes on a question to those that are there or, if some were deleted, put them in place of these."""
        before = self._all_rows(place)
        now = (new if deleted else _Rows.joined([before, new])).folded()
        now = self._documents.change(before, now)
        self._n_changed += len(now.place) - len(self._changed.get(place, _NO_ROWS).place)
        self._changed[place] = now
        (self._empty.discard if (now.amount > 0).any() else self._empty.add)(place)
        if not len(now.place):
            self._forgotten.add(place)
            self.texts[place] = ""

    def _all_rows(self, place: int) -> _Rows:
        if place in self._changed or place >= len(self._ids):
            return self._changed.get(place, _NO_ROWS)
        return self._rows.take(slice(self._offsets[place], self._offsets[place + 1]))

    def _merge(self) -> None:
        """Put what came since among the arrays."""
        if not self._changed and not self._new_ids:
            return
        changed = np.zeros(self.n_places, dtype=bool)
        changed[list(self._changed)] = True
        rows = _Rows.joined([self._rows.take(~changed[self._rows.place]), *self._changed.values()])
        rows = rows.take(np.lexsort((rows.person, rows.document, rows.place)))
        self._ids, self._new_ids = np.append(self._ids, np.array(self._new_ids, np.int64)), []
        self._by_id, self._new_places = _Sorted.of(self._ids), {}
        self._offsets = np.searchsorted(rows.place, np.arange(self.n_places + 1))
        self._documents, self._rows = self._documents.counted(rows)
        self._changed, self._n_changed = {}, 0

    # --- how far questions agree ------------------------------------------------------------------------------------

    def _compare(self, questions: Int64) -> None:
        """Look again which of the documents chosen for a question were chosen for one like it, too.

        Where one and the same person chose for both, that tells nothing.
        """
        at = self.pairs.about(questions)
        if not len(at):
            return
        ids, of = np.unique(np.concatenate([self.pairs.question[at], self.pairs.other[at]]), return_inverse=True)
        known = [-1 if (place := self.place(number)) is None else place for number in ids.tolist()]
        rows = self._gather(known)
        good = rows.good > 0
        documents, number = np.unique(rows.document[good], return_inverse=True)
        person = np.where(rows.person[good] < TAUGHT, TAUGHT, np.maximum(rows.person[good], NOBODY))
        sole = -np.arange(2, len(ids) + 2)  # a number of its own for a question for which several people chose
        first, last = (np.full(len(ids), each) for each in (np.iinfo(np.int64).max, np.iinfo(np.int64).min))
        np.minimum.at(first, rows.place[good], person)
        np.maximum.at(last, rows.place[good], person)
        sole = np.where((first == last) & (first != TAUGHT), first, sole)
        chosen = np.unique(rows.place[good] * len(documents) + number)  # a number for each question and document
        bounds = np.searchsorted(chosen, np.arange(len(ids) + 1) * len(documents))
        counts = np.diff(bounds)
        mine, theirs = of[: len(at)], of[len(at) :]
        asked = np.repeat(mine, counts[theirs]) * len(documents)
        asked += chosen[_ranges(bounds[theirs], counts[theirs])] % max(len(documents), 1)
        both = np.isin(asked, chosen)
        shared = np.bincount(np.repeat(np.arange(len(at)), counts[theirs]), weights=both, minlength=len(at))
        compared = (counts[mine] > 0) & (counts[theirs] > 0) & (sole[mine] != sole[theirs])
        self.pairs.same[at] = np.where(compared, SHARES * shared.astype(np.int64) // np.maximum(counts[theirs], 1), -1)
        self.pairs.sole[at] = sole[mine]
        people = np.bincount(np.unique(rows.place[good] * (1 << 40) + _numbered(person)) >> 40, minlength=len(ids))
        believed = people / (people + 1.0)
        self.pairs.people[at] = believed[mine] * believed[theirs]
        self.n_compared += 1

    def agreement(self, start: Agreement) -> Agreement:
        """Return what all compared questions teach of how often such questions agree."""
        pairs = self.pairs.take(self.pairs.same >= 0)
        alike = pairs.similarity, pairs.cosine, pairs.differ
        likely = 1.0 / (1.0 + np.exp(-start(*alike)))
        weight = weights_of_pairs(pairs.question, pairs.sole, pairs.people, likely, IN_FULL)
        return start.learned(*alike, pairs.same / SHARES, weight)

    def _new_pairs(self, found: Sequence[tuple[int, int, float]]) -> _Pairs:
        """Return questions that are compared, given by their numbers and the similarity of their letters."""
        question, other, similarity = (np.array(each) for each in zip(*found, strict=True))
        places = [[self._place(number) or 0 for number in ids.tolist()] for ids in (question, other)]
        differ = np.not_equal(*(self.marks.rows[place] for place in places))
        cosine = np.full(len(found), np.nan)
        if self.vectors is not None:
            one, two = (self.vectors.rows[place] for place in places)
            known = one.any(axis=1) & two.any(axis=1)
            cosine[known] = np.maximum(np.einsum("ij,ij->i", one[known], two[known]), 0.0)
        nothing = np.full(len(found), -1)
        return _Pairs(question, other, similarity, cosine, differ, nothing, nothing.copy(), np.zeros(len(found)))

    # --- the file ---------------------------------------------------------------------------------------------------

    def write(self, path: str | os.PathLike[str], indexes: State) -> None:
        """Write everything to a folder, with the arrays of indexes of its questions, in place of what is there."""
        self._merge()
        state: dict[str, NDArray[Any]] = {"ids": self._ids, "offsets": self._offsets}
        state |= {
            "empty": np.array(sorted(self._empty), np.int64),
            "forgotten": np.array(sorted(self._forgotten), np.int64),
        }
        state |= {f"row_{name}": values for name, values in self._rows._asdict().items() if name != "place"}
        state |= {f"pair_{name}": values for name, values in self.pairs._asdict().items()}
        state |= dict(zip(("text", "text_ends"), _packed(self.texts), strict=True))
        state |= self._documents.state()
        if self.vectors is not None:
            state["vectors"] = self.vectors.rows
        state["marks"] = self.marks.rows
        meta = {"seq": self.cursor.seq, "mark": self.cursor.mark, "version": _VERSION}
        folder.write(path, KIND, meta, state | nest(index=indexes))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> tuple[Snapshot, State]:
        """Map a folder that `write` wrote; the arrays of indexes come, too."""
        meta, state = folder.read(path, KIND, verify=False)
        if meta.get("version") != _VERSION:
            raise StoreError(f"{path} was written by another version")
        self = cls()
        self.cursor = Cursor(meta["seq"], meta["mark"])
        self.texts = _unpacked(state["text"], state["text_ends"])
        self.vectors = GrowingRows(state["vectors"]) if "vectors" in state else None
        self.pairs = _Pairs(*(np.array(state[f"pair_{name}"]) for name in _Pairs._fields))
        self._ids, self._offsets = state["ids"], state["offsets"]
        self._by_id = _Sorted.of(self._ids)
        self._empty, self._forgotten = set(state["empty"].tolist()), set(state["forgotten"].tolist())
        place = np.repeat(np.arange(self.n_places), np.diff(self._offsets))
        self._rows = _Rows(place, *(state[f"row_{name}"] for name in _Rows._fields[1:]))
        self._documents = _Documents.from_state(state)
        self.marks = GrowingRows(state["marks"])
        return self, unnest(state, "index")


class _Sorted:
    """Finds the last position of numbers."""

    def __init__(self, numbers: Int64, order: Int64) -> None:
        self._numbers, self._order = numbers, order

    @classmethod
    def of(cls, numbers: Int64) -> _Sorted:
        order = np.argsort(numbers, kind="stable")
        return cls(numbers[order], order)

    def find(self, number: int) -> int | None:
        at = int(np.searchsorted(self._numbers, number, "right")) - 1
        return int(self._order[at]) if at >= 0 and self._numbers[at] == number else None


class _Pairs(NamedTuple):
    """Questions that are compared, by their numbers in the ledger."""

    question: Int64
    other: Int64
    similarity: Float64
    """Of their letters."""
    cosine: Float64
    """NaN if one has no vector."""
    differ: NDArray[np.bool_]
    """Whether numbers, symbols or negations differ."""
    same: Int64
    """How much of what was chosen for the other was chosen for the question, in thousandths; -1: one has no choice."""
    sole: Int64
    """Who alone chose for the question; a negative number if that is nobody."""
    people: Float64
    """How far those who chose for both are to be believed."""

    @classmethod
    def none(cls) -> _Pairs:
        whole, real = np.empty(0, np.int64), np.empty(0)
        return cls(whole, whole, real, real, np.empty(0, np.bool_), whole, whole, real)

    def take(self, which: NDArray[np.bool_]) -> _Pairs:
        columns: list[NDArray[Any]] = [values[which] for values in self]
        return _Pairs(*columns)

    def added(self, new: _Pairs) -> _Pairs:
        both: list[NDArray[Any]] = [np.concatenate(each) for each in zip(self, new, strict=True)]
        return _Pairs(*both)

    def without(self, questions: Sequence[int]) -> _Pairs:
        gone = np.array(questions, dtype=np.int64)
        return self.take(~(np.isin(self.question, gone) | np.isin(self.other, gone)))

    def about(self, questions: Int64) -> Int64:
        """Return the positions of pairs of some questions."""
        if len(questions) > 3:
            return np.flatnonzero(np.isin(self.question, questions) | np.isin(self.other, questions))
        found = np.zeros(len(self.question), dtype=bool)
        for number in questions:
            found |= (self.question == number) | (self.other == number)
        return np.flatnonzero(found)


class _Documents:
    """Names of documents, and what all questions say of them.

    A group is what one person says of one document. It has the sum of shares of it in what each question says, in
    thousandths, and the number of questions: whole numbers, so that the order in which votes come does not matter.
    """

    def __init__(self, document: Int64, person: Int64, sums: Int64) -> None:
        # The groups of the arrays are ordered by document and person; those that came since are found by a dictionary.
        self._document, self._person = document, person
        self._sums = _Growing(sums)
        self._new: dict[tuple[int, int], int] = {}
        self._totals: dict[int, tuple[int, int]] = {}
        self.names: dict[int, str] = {}

    @classmethod
    def none(cls) -> _Documents:
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 3), np.int64))

    def total(self, document: int) -> tuple[int, int]:
        return self._totals.get(document, (0, 0))

    def questions(self, groups: Int64) -> Int64:
        """Return for how many questions each person said something of the document."""
        found: Int64 = self._sums.rows[groups, 2]
        return found

    def said(self, document: int, person: int) -> int:
        """Return for how many questions a person said something of a document."""
        found = self._find((document, person))
        return 0 if found is None else int(self._sums.rows[found, 2])

    def counted(self, rows: _Rows) -> tuple[_Documents, _Rows]:
        """Return the same documents with the sums of all votes, and the votes with their groups."""
        document, person, *shares = _shares(rows)
        order = np.lexsort((person, document))
        first = _starts(document[order], person[order])
        group = np.empty(len(order), dtype=np.int64)
        group[order] = np.cumsum(first) - 1
        at = np.flatnonzero(first)
        sums = np.column_stack([np.add.reduceat(each[order], at) if len(at) else each for each in shares])
        found = _Documents(document[order][at], person[order][at], sums)
        begin = np.flatnonzero(_starts(found._document))
        totals = [np.add.reduceat(each, begin).tolist() if len(begin) else [] for each in _capped(*sums.T[:2])]
        found._totals = dict(zip(found._document[begin].tolist(), zip(*totals, strict=True), strict=True))
        found.names = {number: self.names[number] for number in found._totals if number in self.names}
        return found, rows._replace(group=group)

    def change(self, before: _Rows, now: _Rows) -> _Rows:
        """Put the votes of a question in place of earlier ones, and return them with their groups."""
        changes: dict[tuple[int, int], list[int]] = {}
        for sign, rows in ((-1, before), (1, now)):
            for document, person, *shares in zip(*(values.tolist() for values in _shares(rows)), strict=True):
                change = changes.setdefault((document, person), [0, 0, 0])
                for place, share in enumerate(shares):
                    change[place] += sign * share
        groups = {key: self._group(key) for key in changes}
        for key, change in changes.items():
            sums = self._sums.rows[groups[key]]
            old = _capped_one(*sums.tolist()[:2])
            sums += change
            new = _capped_one(*sums.tolist()[:2])
            total = self.total(key[0])
            self._totals[key[0]] = total[0] + new[0] - old[0], total[1] + new[1] - old[1]
        keys = zip(now.document.tolist(), np.maximum(now.person, NOBODY).tolist(), strict=True)
        return now._replace(group=np.array([groups[key] for key in keys], dtype=np.int64))

    def _find(self, key: tuple[int, int]) -> int | None:
        found = self._new.get(key)
        if found is not None:
            return found
        low, high = np.searchsorted(self._document, key[0], "left"), np.searchsorted(self._document, key[0], "right")
        at = int(low + np.searchsorted(self._person[low:high], key[1]))
        return at if at < high and self._person[at] == key[1] else None

    def _group(self, key: tuple[int, int]) -> int:
        found = self._find(key)
        if found is None:
            found = self._new[key] = self._sums.add()
        return found

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays, where nothing came since."""
        names, ends = _packed(list(self.names.values()))
        return {
            "document_ids": np.array(list(self.names), dtype=np.int64),
            "document_names": names,
            "document_ends": ends,
            "total_ids": np.array(list(self._totals), dtype=np.int64),
            "totals": np.array(list(self._totals.values()), dtype=np.int64).reshape(-1, 2),
            "group_document": self._document,
            "group_person": self._person,
            "group_sums": self._sums.rows,
        }

    @classmethod
    def from_state(cls, state: dict[str, NDArray[Any]]) -> _Documents:
        self = cls(state["group_document"], state["group_person"], state["group_sums"])
        names = _unpacked(state["document_names"], state["document_ends"])
        self.names = dict(zip(state["document_ids"].tolist(), names, strict=True))
        self._totals = dict(zip(state["total_ids"].tolist(), map(tuple, state["totals"].tolist()), strict=True))
        return self


class _Growing:
    """Rows of three numbers that can be changed, and to which others are added."""

    def __init__(self, rows: Int64) -> None:
        self._memory, self._n = np.array(rows), len(rows)

    @property
    def rows(self) -> Int64:
        return self._memory[: self._n]

    def add(self) -> int:
        """Add a row of zeros, and return its position."""
        if self._n == len(self._memory):
            self._memory = np.concatenate([self._memory, np.zeros((self._n // 8 + 64, 3), dtype=np.int64)])
        self._n += 1
        return self._n - 1


def _shares(rows: _Rows) -> tuple[Int64, Int64, Int64, Int64, Int64]:
    """Return document, person, amount, good and number of questions of rows.

    Together, those of a question are one whole at most.
    """
    first = _starts(rows.place, rows.document)
    cell = np.cumsum(first) - 1
    amount = np.bincount(cell, weights=rows.amount).astype(np.int64) if len(first) else rows.amount
    most = np.maximum(amount[cell], WHOLE)
    person = np.maximum(rows.person, NOBODY)
    # Several rows without a name are one person for one question: the first of them is counted.
    counts = (rows.amount > 0) & _starts(rows.place, rows.document, person)
    shares = SHARES * rows.amount // most, SHARES * rows.good // most
    return rows.document, person, *shares, counts.astype(np.int64)


def _capped(amount: Int64, good: Int64) -> tuple[Int64, Int64]:
    """Return what a person says of a document: one whole at most."""
    return np.minimum(amount, SHARES), SHARES * good // np.maximum(amount, SHARES)


def _capped_one(amount: int, good: int) -> tuple[int, int]:
    return min(amount, SHARES), SHARES * good // max(amount, SHARES)


def _starts(*values: Int64) -> NDArray[np.bool_]:
    """Return where runs of equal rows start."""
    first = np.ones(len(values[0]), dtype=bool)
    if len(first) > 1:
        first[1:] = np.any([np.diff(each) != 0 for each in values], axis=0)
    return first


def _numbered(values: Int64) -> Int64:
    """Return a small number for each different value."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _summed(kin: Int64, document: Int64, amount: Int64, good: Int64, weight: Float64) -> Cells:
    order = np.lexsort((document, kin))
    kin, document = kin[order], document[order]
    first = _starts(kin, document)
    cell = np.cumsum(first) - 1
    sums: list[Float64] = [
        np.bincount(cell, weights=values[order] * weight[order]).astype(np.float64) for values in (amount, good)
    ]
    return Cells(kin[first], document[first], sums[0], sums[1])


def _ranges(starts: Int64, counts: Int64) -> Int64:
    """Return the positions of ranges, one after the other."""
    ends = np.cumsum(counts)
    positions: Int64 = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)
    return positions


def _packed(texts: Sequence[str]) -> tuple[NDArray[np.uint8], Int64]:
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return np.frombuffer("".join(texts).encode(), dtype=np.uint8), ends


def _unpacked(text: NDArray[np.uint8], ends: Int64) -> list[str]:
    whole, start, texts = text.tobytes().decode(), 0, []
    for end in ends.tolist():
        texts.append(whole[start:end])
        start = end
    return texts
