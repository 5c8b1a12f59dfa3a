"""What known queries say of documents and keys: one by one in `Cells`, and added up in `Sums`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kinrank.arrays import Float32, Float64, GrowingTable, Int64, gather
from kinrank.data.hashes import IdHashes, lower_bound
from kinrank.kin.letters import Terms
from kinrank.kin.vectors import unit_vectors

DOCUMENT = "document"
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

    @classmethod
    def concat(cls, tables: Sequence[Cells]) -> Cells:
        """Join the cells of the queries of several tables."""
        ends = np.cumsum([0, *(table.offsets[-1] for table in tables)])
        offsets = [table.offsets[1:] + end for table, end in zip(tables, ends[:-1], strict=True)]
        target, amount, good = (np.concatenate([table[field] for table in tables]) for field in (1, 2, 3))
        return cls(np.concatenate([np.zeros(1, dtype=np.int64), *offsets]), target, amount, good)

    def take(self, places: Int64) -> Cells:
        """Return the cells of some known queries."""
        offsets, rows = gather(self.offsets, places)
        return Cells(offsets, self.target[rows], self.amount[rows], self.good[rows])

    def of_targets(self, targets: IdHashes, counted: NDArray[np.bool_] | None) -> tuple[Int64, Cells]:
        """Return the counted known queries with cells of some targets, which are ascending, and these cells."""
        rows = rows_of_targets(self.target, targets)
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
        rows, own = rows_that_chose(cells, np.arange(len(cells.good))[counted], words)
        target, number = np.unique(cells.target[rows], return_inverse=True)
        return cls.added_up(target, *weighted_words(number, own, cells.good[rows]))

    @classmethod
    def added_up(cls, target: IdHashes, document: Int64, term: NDArray[np.int32], weight: Float64) -> ChosenFor:
        """Add up words of documents, which are given by their places among the targets, in any order.

        Sums of numbers of 32 bits are exact in 64 bits, so that they are the same for words of several blocks.
        """
        order = np.lexsort((term, document))
        document, term, weight = document[order], term[order], weight[order]
        first = np.r_[True, (document[1:] != document[:-1]) | (term[1:] != term[:-1])][: len(term)]
        starts = np.flatnonzero(first)
        sums = np.add.reduceat(weight, starts) if len(starts) else weight
        counts = np.bincount(document[starts], minlength=len(target))
        length = np.sqrt(np.bincount(document[starts], weights=sums**2, minlength=len(target)))
        return cls(
            target, np.r_[0, np.cumsum(counts)], term[starts], sums.astype(np.float32), length.astype(np.float32)
        )


def rows_that_chose(cells: Cells, rows: Int64, words: Terms) -> tuple[Int64, Terms]:
    """Return those of some cells whose query chose the document, and the words of the query of each."""
    rows = rows[cells.good[rows] > 0]
    return rows, words.take(cells.known[rows])


def weighted_words(number: Int64, words: Terms, good: Float32) -> tuple[Int64, NDArray[np.int32], Float64]:
    """Return a number for each word of some cells, the word, and its weight as often as it was chosen."""
    sizes = np.diff(words.offsets)
    return np.repeat(number, sizes), words.term, (words.weight * np.repeat(good, sizes)).astype(np.float64)


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
            add_everyone(*self[number].everyone[name], target, part, number, found)
        return part


@numba.njit(cache=True, nogil=True)
def rows_of_targets(target, wanted):  # type: ignore[no-untyped-def]
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
def add_everyone(known, amount, good, target, part, number, found):  # type: ignore[no-untyped-def]
    for row in range(len(target)):
        if part[row] >= 0:
            continue
        place = lower_bound(known, target[row], 0, len(known))
        if place < len(known) and known[place] == target[row]:
            part[row] = number
            found[row, 0] += amount[place]
            found[row, 1] += good[place]
