"""What known queries say of the candidates of others, where some of them must not count: found block by block.

The columns of a training query come from queries of other folds, or of earlier periods. Known queries may be in several
blocks, each with an index of its own. Each gives `Answers`, which join, in the order of the blocks, to those of all.
So no process needs all known queries to find the kin of some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kinrank.arrays import Float32, Float64, Int64, State, gather
from kinrank.data.hashes import IdHashes, lower_bound
from kinrank.kin.known import NEIGHBORS, Near
from kinrank.kin.letters import Terms
from kinrank.kin.vectors import unit_vectors
from kinrank.memory._tables import (
    DOCUMENT,
    Cells,
    ChosenFor,
    Everyone,
    Levels,
    Means,
    Sums,
    rows_that_chose,
    weighted_words,
)
from kinrank.store import nest, unnest

_SMOOTHING = np.float32(0.05)  # amount of nothing in the rate of kin
_KIN = slice(3, 8)  # the columns of kin among those of a target


@dataclass(frozen=True, eq=False)
class Asked:
    """Queries whose candidates are looked up."""

    key: IdHashes
    terms: Terms
    words: Terms
    vectors: Float32 | None
    offsets: Int64
    targets: dict[str, IdHashes]

    def take(self, places: Int64) -> Asked:
        """Return some of them."""
        offsets, rows = gather(self.offsets, places)
        vectors = None if self.vectors is None else self.vectors[places]
        targets = {name: target[rows] for name, target in self.targets.items()}
        return Asked(self.key[places], self.terms.take(places), self.words.take(places), vectors, offsets, targets)


class Round(NamedTuple):
    """Known queries in parts: folds, or periods. Some are asked about, each of them by the parts that count for it."""

    part: Int64
    """The part of each known query, from 0."""
    asked: NDArray[np.bool_]
    """The known queries that are asked about."""
    in_time: bool = False
    """Whether only earlier parts count for a query; else all others."""

    @property
    def n_parts(self) -> int:
        """The number of parts."""
        return int(self.part.max(initial=0)) + 1

    @property
    def parts_asked(self) -> list[int]:
        """The parts of those that are asked about."""
        parts: list[int] = np.unique(self.part[self.asked]).tolist()
        return parts

    def counts(self, part: NDArray[Any], own: int) -> NDArray[np.bool_]:
        """Return which parts count for a query of its own part."""
        counted: NDArray[np.bool_] = part < own if self.in_time else part != own
        return counted

    def of_part(self, own: int) -> Int64:
        """Return which of those that are asked about are of a part."""
        return np.flatnonzero(self.part[self.asked] == own)


@dataclass(frozen=True, eq=False)
class Kin:
    """The nearest known queries of each query, and what they say of its candidates."""

    near: Near
    """Their places among all known queries, and their similarities."""
    cells: dict[str, Cells]
    """Those of the j-th neighbor of query i at ``i * NEIGHBORS + j``."""

    @classmethod
    def of(cls, near: Near, first: int, cells: dict[str, Cells], asked: Asked) -> Kin:
        """Take the cells of some neighbors, whose places are counted from `first` on."""
        found = {}
        for name, table in cells.items():
            offsets, rows = _matching(table.offsets, table.target, near[0], asked.offsets, asked.targets[name])
            found[name] = Cells(offsets, table.target[rows], table.amount[rows], table.good[rows])
        return cls((np.where(near[0] < 0, near[0], near[0] + np.int32(first)), near[1]), found)

    def joined(self, other: Kin) -> Kin:
        """Return the nearest of both; of equally similar ones the first."""
        places, similarities = (np.hstack(pair) for pair in zip(self.near, other.near, strict=True))
        order = np.lexsort((places, -similarities), axis=-1)[:, :NEIGHBORS]
        query = np.arange(len(order))[:, None]
        later = order >= NEIGHBORS
        entry = query * NEIGHBORS + np.where(later, order - NEIGHBORS + len(order) * NEIGHBORS, order)
        cells = {name: Cells.concat([table, other.cells[name]]) for name, table in self.cells.items()}
        near = np.take_along_axis(places, order, -1), np.take_along_axis(similarities, order, -1)
        return Kin(near, {name: table.take(entry.ravel()) for name, table in cells.items()})

    def of_queries(self, queries: Int64) -> tuple[Near, dict[str, Cells]]:
        """Return the places of the neighbors of some queries among the cells, their similarities, and the cells."""
        entry = (queries[:, None] * NEIGHBORS + np.arange(NEIGHBORS)).astype(np.int32)
        places, similarities = self.near[0][queries], self.near[1][queries]
        return (np.where(places < 0, np.int32(-1), entry), similarities), self.cells

    def get_state(self) -> State:
        """Return all arrays."""
        cells = {f"cells{number}": table._asdict() for number, table in enumerate(self.cells.values())}
        return nest(**cells) | {"places": self.near[0], "similarities": self.near[1]}

    @classmethod
    def from_state(cls, state: State, names: Sequence[str]) -> Kin:
        """Restore what `get_state` returned."""
        cells = {name: Cells(**unnest(state, f"cells{number}")) for number, name in enumerate(names)}
        return cls((state["places"], state["similarities"]), cells)


@dataclass(frozen=True, eq=False)
class PartSums:
    """What each part of the known queries says of some targets together.

    A *code* is the place of a target times the number of parts, plus a part.
    """

    targets: dict[str, IdHashes]
    """The targets of each name, ascending."""
    n_parts: int
    everyone: dict[str, tuple[Int64, Float64, Float64]]
    """Codes, ascending, amounts and good parts."""
    words: tuple[Int64, NDArray[np.int32], Float64]
    """The words of queries that chose a document: code of the document, word, weight."""
    vectors: tuple[Int64, Float32] | None
    """The sum of the vectors of these queries."""

    @classmethod
    def of(
        cls,
        targets: dict[str, IdHashes],
        part: Int64,
        n_parts: int,
        cells: dict[str, Cells],
        words: Terms,
        vectors: Float32 | None,
    ) -> PartSums:
        """Add up what known queries say of some targets."""
        everyone = {}
        for name, table in cells.items():
            rows, codes = _codes(table, targets[name], part, n_parts)
            everyone[name] = _added(codes, table.amount[rows], table.good[rows])
            if name != DOCUMENT:
                continue
            chose = table.good[rows] > 0
            rows, codes = rows[chose], codes[chose]
            own = rows_that_chose(table, rows, words)[1]
            chosen = _added_words(*weighted_words(codes, own, table.good[rows]))
            sums = None if vectors is None else _added_vectors(codes, vectors, table.known[rows], table.good[rows])
        return cls(targets, n_parts, everyone, chosen, sums)

    def joined(self, other: PartSums) -> PartSums:
        """Return what both say."""
        everyone = {name: _added(*_both(mine, other.everyone[name])) for name, mine in self.everyone.items()}
        vectors = None
        if self.vectors is not None and other.vectors is not None:
            codes, sums = _both(self.vectors, other.vectors)
            vectors = _added_vectors(codes, sums, np.arange(len(sums)), np.ones(len(sums), dtype=np.float32))
        words = _added_words(*_both(self.words, other.words))
        return replace(self, everyone=everyone, words=words, vectors=vectors)

    def of_counted(self, counted: NDArray[np.bool_]) -> Sums:
        """Return what some parts say together."""
        everyone = {}
        for name, (codes, amount, good) in self.everyone.items():
            kept = counted[codes % self.n_parts]
            place, amount, good = _added(codes[kept] // self.n_parts, amount[kept], good[kept])
            sums = amount.astype(np.float32), good.astype(np.float32)
            everyone[name] = Everyone(self.targets[name][place], *sums)
        codes, term, weight = self.words
        kept = counted[codes % self.n_parts]
        place, number = np.unique(codes[kept] // self.n_parts, return_inverse=True)
        chosen = ChosenFor.added_up(self.targets[DOCUMENT][place], number, term[kept], weight[kept])
        means = None
        if self.vectors is not None:
            codes, rows = self.vectors
            some = np.flatnonzero(counted[codes % self.n_parts])
            once = np.ones(len(some), dtype=np.float32)
            place, added = _added_vectors(codes[some] // self.n_parts, rows, some, once)
            means = Means(self.targets[DOCUMENT][place], unit_vectors(added, rows.shape[1]))
        return Sums(everyone, chosen, means)

    def get_state(self) -> State:
        """Return all arrays but the targets."""
        everyone = {
            f"everyone{number}": dict(zip(("code", "amount", "good"), arrays, strict=True))
            for number, arrays in enumerate(self.everyone.values())
        }
        words: State = dict(zip(("code", "term", "weight"), self.words, strict=True))
        vectors: State = {} if self.vectors is None else {"code": self.vectors[0], "sum": self.vectors[1]}
        return nest(words=words, vectors=vectors, **everyone)

    @classmethod
    def from_state(cls, state: State, targets: dict[str, IdHashes], n_parts: int) -> PartSums:
        """Restore what `get_state` returned."""
        everyone = {}
        for number, name in enumerate(targets):
            arrays = unnest(state, f"everyone{number}")
            everyone[name] = arrays["code"], arrays["amount"], arrays["good"]
        words, vectors = unnest(state, "words"), unnest(state, "vectors")
        sums = (vectors["code"], vectors["sum"]) if vectors else None
        return cls(targets, n_parts, everyone, (words["code"], words["term"], words["weight"]), sums)


@dataclass(frozen=True, eq=False)
class Answers:
    """What some known queries say of the candidates of those that are asked about in a round."""

    kin: Kin
    meaning: Kin | None
    """The kin by letters, and by vectors."""
    same: dict[str, Float64]
    """What queries of the same text say: amount and good part, a row for each candidate."""
    sums: PartSums

    def joined(self, other: Answers) -> Answers:
        """Return the answers of both, of which `other` has the later known queries."""
        meaning = None
        if self.meaning is not None and other.meaning is not None:
            meaning = self.meaning.joined(other.meaning)
        same = {name: mine + other.same[name] for name, mine in self.same.items()}
        return Answers(self.kin.joined(other.kin), meaning, same, self.sums.joined(other.sums))

    def columns(self, asked: Asked, order: Round) -> Float32:
        """Return the columns of the candidates, given the queries that are asked about."""
        parts, rows = [], []
        for own in order.parts_asked:
            places = order.of_part(own)
            rows.append(gather(asked.offsets, places)[1])
            sums = Levels([self.sums.of_counted(order.counts(np.arange(order.n_parts), own))])
            same = {name: of_rows[rows[-1]] for name, of_rows in self.same.items()}
            by_meaning = None if self.meaning is None else self.meaning.of_queries(places)
            parts.append(columns_of(asked.take(places), sums, self.kin.of_queries(places), by_meaning, same))
        columns = np.concatenate(parts)
        found = np.empty_like(columns)
        found[np.concatenate(rows)] = columns
        return found

    def get_state(self) -> State:
        """Return all arrays but the targets."""
        meaning = {} if self.meaning is None else self.meaning.get_state()
        same = {f"same{number}": sums for number, sums in enumerate(self.same.values())}
        return nest(kin=self.kin.get_state(), meaning=meaning, sums=self.sums.get_state()) | same

    @classmethod
    def from_state(cls, state: State, targets: dict[str, IdHashes], n_parts: int) -> Answers:
        """Restore what `get_state` returned, given the targets that are asked about."""
        names, meaning = list(targets), unnest(state, "meaning")
        return cls(
            Kin.from_state(unnest(state, "kin"), names),
            Kin.from_state(meaning, names) if meaning else None,
            {name: state[f"same{number}"] for number, name in enumerate(names)},
            PartSums.from_state(unnest(state, "sums"), targets, n_parts),
        )


def columns_of(
    asked: Asked,
    sums: Levels,
    by_letters: tuple[Near, dict[str, Cells]],
    by_meaning: tuple[Near, dict[str, Cells]] | None,
    same: dict[str, Float64],
) -> Float32:
    """Return the columns of candidates, given their kin with what these say, and what queries of the same text say."""
    n_rows = int(asked.offsets[-1])
    columns, part = [], {}
    near, cells = by_letters
    for name, target in asked.targets.items():
        found = np.zeros((n_rows, 9), dtype=np.float32)
        part[name] = sums.add_everyone(name, target, found)
        _add_kin(*cells[name], *near, asked.offsets, target, found)
        found[:, 7:] = same[name]
        columns.append(_with_rates(found))
    chosen = np.zeros((n_rows, 2), dtype=np.float32)
    document = asked.targets[DOCUMENT]
    for number, each in enumerate(sums):
        _add_chosen(*each.chosen, *asked.words, asked.offsets, document, part[DOCUMENT], number, chosen)
    meant = [] if by_meaning is None else _columns_of_meaning(asked, sums, part[DOCUMENT], *by_meaning)
    return np.hstack([columns[0], chosen, *columns[1:], *meant])


def _columns_of_meaning(asked: Asked, sums: Levels, part: Int64, near: Near, cells: dict[str, Cells]) -> list[Float32]:
    """Return the columns of kin by vectors, and *chosen for* after those of documents."""
    if asked.vectors is None:
        return []
    n_rows, columns = int(asked.offsets[-1]), []
    for name, target in asked.targets.items():
        found = np.zeros((n_rows, 9), dtype=np.float32)
        _add_kin(*cells[name], *near, asked.offsets, target, found)
        columns.append(_with_rates(found)[:, _KIN])
    chosen, document = np.zeros(n_rows, dtype=np.float32), asked.targets[DOCUMENT]
    for number, each in enumerate(sums):
        if each.means is not None:
            _add_meant(*each.means, asked.vectors, asked.offsets, document, part, number, chosen)
    return [columns[0], chosen[:, None], *columns[1:]]


def add_same(cells: Cells, places: NDArray[np.int32], asked: Asked, name: str, found: Float64) -> None:
    """Add what known queries of the same text say of targets."""
    if places.shape[1]:
        _add_same(*cells, places, asked.offsets, asked.targets[name], found)


def _with_rates(found: Float32) -> Float32:
    """Return the columns of a target from its sums, in the order of `PARTS`."""
    asked, good, kin_good, kin_asked, count, nearest_good, nearest_bad, same_asked, same_good = found.T
    rate = good / (asked + 1), kin_good / (kin_asked + _SMOOTHING)
    return np.column_stack(
        [asked, good, rate[0], kin_good, rate[1], count, nearest_good, nearest_bad, same_asked, same_good]
    )


def _both(one: tuple[NDArray[Any], ...], two: tuple[NDArray[Any], ...]) -> list[NDArray[Any]]:
    """Return the arrays of both, one after the other."""
    return [np.concatenate(pair) for pair in zip(one, two, strict=True)]


def _codes(table: Cells, targets: IdHashes, part: Int64, n_parts: int) -> tuple[Int64, Int64]:
    """Return the cells of some targets, and their codes."""
    place = np.minimum(np.searchsorted(targets, table.target), max(len(targets) - 1, 0))
    rows = np.flatnonzero(targets[place] == table.target) if len(targets) else np.empty(0, dtype=np.int64)
    return rows, place[rows] * n_parts + part[table.known[rows]]


def _added(codes: Int64, amount: NDArray[Any], good: NDArray[Any]) -> tuple[Int64, Float64, Float64]:
    """Return different codes, ascending, and the sums of their amounts and good parts."""
    found, number = np.unique(codes, return_inverse=True)
    sums = [np.bincount(number, weights=each, minlength=len(found)).astype(np.float64) for each in (amount, good)]
    return found, sums[0], sums[1]


def _added_words(codes: Int64, term: NDArray[np.int32], weight: Float64) -> tuple[Int64, NDArray[np.int32], Float64]:
    """Return different pairs of a code and a word, ascending, and the sums of their weights."""
    order = np.lexsort((term, codes))
    codes, term = codes[order], term[order]
    starts = np.flatnonzero(np.r_[True, (codes[1:] != codes[:-1]) | (term[1:] != term[:-1])][: len(codes)])
    sums = np.add.reduceat(weight[order], starts) if len(starts) else weight
    return codes[starts], term[starts], sums


def _added_vectors(codes: Int64, vectors: Float32, rows: Int64, times: Float32) -> tuple[Int64, Float32]:
    """Return different codes, ascending, and the sum of the vectors of each, so many times."""
    found, number = np.unique(codes, return_inverse=True)
    chose = sparse.csr_array((times, (number, rows)), shape=(len(found), len(vectors)))
    return found, np.asarray(chose @ vectors, dtype=np.float32)


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
def _matching(offsets, known, places, rows, target):  # type: ignore[no-untyped-def]
    """Return where the cells of each neighbor end that speak of a candidate of its query, and these cells."""
    longest, most = 0, 0
    for i in range(len(places)):
        longest = max(longest, rows[i + 1] - rows[i])
    wanted, number = np.empty(longest, dtype=np.uint64), np.empty(longest, dtype=np.int64)
    ends = np.zeros(places.size + 1, dtype=np.int64)
    found = np.empty(1024, dtype=np.int64)
    for i in range(len(places)):
        n = _unique(target, rows[i], rows[i + 1], wanted, number)
        for j in range(places.shape[1]):
            if places[i, j] >= 0:
                for cell in range(offsets[places[i, j]], offsets[places[i, j] + 1]):
                    place = lower_bound(wanted, known[cell], 0, n)
                    if place < n and wanted[place] == known[cell]:
                        if most == len(found):
                            found = np.append(found, np.empty_like(found))
                        found[most] = cell
                        most += 1
            ends[i * places.shape[1] + j + 1] = most
    return ends, found[:most].copy()


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
                    found[row, 0] += amount[cell]
                    found[row, 1] += good[cell]


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
