"""Evidence: how often people looked at a document of a query, and how often they chose it, by day.

A folder of evidence has one *cell* for each query, document and day: its looks (impressions, each as likely as its rank
is examined) and its choices (clicks). Queries and documents are hashes of their texts. Cells are sorted, so that two
folders are merged in one pass, and the cells of a query's candidates are found by bisection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank import folder
from kinrank.arrays import Float64, Int64, State
from kinrank.data.files import PathLike
from kinrank.data.hashes import NO_TEXTS, IdHashes, TextTable, hash_texts, hashes_of, keys_of, lower_bound, query_keys
from kinrank.data.queryset import GrowingArray, QuerySet
from kinrank.errors import DataError, ParameterError

KIND = "evidence"
NO_DAY, JUDGED = -1, -2
"""The days of evidence that does not age: of logs without times, and of human judgments."""
JUDGMENT_LOOKS = 1_000.0
"""How many looks a human grade counts as by default: enough to outweigh what people chose."""
CELLS = ("document", "day", "looks", "choices", "few")
NAMES = ("query", "offsets", *CELLS)
TYPES: dict[str, Any] = dict(
    zip(NAMES, (np.uint64, np.int64, np.uint64, np.int32, np.float32, np.float32, np.bool_), strict=True)
)
_PREFIX = "id_"


@dataclass(frozen=True, eq=False)
class Totals:
    """The looks and choices of each candidate; unpacks into these two."""

    looks: Float64
    choices: Float64
    few: Totals | None = None
    """The part of both that may lower a candidate but not lift it, because too few clients chose it; None: nothing."""

    def __iter__(self) -> Iterator[Float64]:
        return iter((self.looks, self.choices))

    @classmethod
    def zeros(cls, n: int) -> Totals:
        """Return no looks at a number of candidates."""
        return cls(np.zeros(n), np.zeros(n))

    @classmethod
    def sum(cls, parts: Sequence[Totals]) -> Totals:
        """Return the sum of several, at least one.

        Examples
        --------
        >>> one = Totals(np.array([3.0]), np.array([2.0]))
        >>> Totals.sum([one, one.held_back(one)])
        Totals(looks=array([6.]), choices=array([4.]), few=Totals(looks=array([3.]), choices=array([2.]), few=None))
        """
        if len(parts) == 1:
            return parts[0]
        few = [part.few for part in parts if part.few is not None]
        looks, choices = np.sum([tuple(part) for part in parts], axis=0)
        return cls(looks, choices, cls.sum(few) if few else None)

    def held_back(self, few: Totals | None) -> Totals:
        """Return the same, a part of which is by too few clients."""
        return replace(self, few=few)

    def take(self, rows: NDArray[Any]) -> Totals:
        """Return those of some candidates."""
        few = None if self.few is None else self.few.take(rows)
        return Totals(self.looks[rows], self.choices[rows], few)

    def surplus(self, p: Float64) -> Float64:
        """Return the choices beyond those predicted, C - L p; those of too few clients do not raise it.

        Examples
        --------
        >>> own = Totals(np.array([10.0, 10.0]), np.array([4.0, 1.0]))
        >>> own.surplus(np.array([0.2, 0.2])).tolist(), own.held_back(own).surplus(np.array([0.2, 0.2])).tolist()
        ([2.0, -1.0], [0.0, -1.0])
        """
        surplus: Float64 = self.choices - self.looks * p
        if self.few is not None:
            surplus -= np.maximum(self.few.choices - self.few.looks * p, 0.0)
        return surplus


class Evidence:
    """Looks and choices by query, document and day.

    Build one with `from_cells` or `of_judgments`, or from a click log with `kinrank.clicks.write_evidence`; `open`
    reads a folder.

    Parameters
    ----------
    arrays
        The sorted arrays of a folder: query (hashes), offsets (query ``i`` owns cells ``offsets[i]:offsets[i + 1]``),
        and document, day, looks and choices of each cell, and whether too few clients chose the document, so that the
        cell may lower it but not lift it. Folders of an earlier version have no such array.
    meta
        What the folder says about its source.
    ids
        The ids of documents that were chosen, by their hashes; by default those among `arrays`.

    Examples
    --------
    >>> evidence = Evidence.from_cells(["alien", "alien"], ["d7", "d9"], [3, 1], [2, 0], day=[0, 0])
    >>> asked = {"qid": [1, 1], "doc_id": ["d9", "d7"], "query_columns": {"text": ["Alien"]}}
    >>> evidence.totals(QuerySet.from_arrays([[1.0], [2.0]], **asked)).looks.tolist()
    [1.0, 3.0]
    """

    def __init__(
        self, arrays: Mapping[str, NDArray[Any]], meta: dict[str, Any] | None = None, ids: TextTable | None = None
    ) -> None:
        # Plain arrays: a compiled function takes far longer to recognize a subclass.
        known = {"few": np.zeros(len(arrays["document"]), dtype=np.bool_), **arrays}
        self._arrays: tuple[NDArray[Any], ...] = tuple(np.asarray(known[name], dtype=TYPES[name]) for name in NAMES)
        self.meta = meta or {}
        self.ids = table_in(arrays) if ids is None else ids

    @classmethod
    def from_cells(
        cls, query: ArrayLike, document: ArrayLike, looks: ArrayLike, choices: ArrayLike, day: ArrayLike = NO_DAY
    ) -> Evidence:
        """Build from one value per cell, in any order. Equal cells add up.

        Parameters
        ----------
        query, document
            The texts of queries and the ids of documents.
        looks, choices
            How often people looked at the document, and how often they chose it.
        day
            Days since 1970; `NO_DAY` for evidence that does not age.
        """
        keys, documents = query_keys(np.asarray(query)), np.asarray(document)
        found = cls.from_hashes(keys, hash_texts(documents), looks, choices, day)
        return cls(found.get_state(), ids=chosen_ids(documents, choices))

    @classmethod
    def from_hashes(
        cls,
        query: IdHashes,
        document: IdHashes,
        looks: ArrayLike,
        choices: ArrayLike,
        day: ArrayLike = NO_DAY,
        few: ArrayLike = False,
    ) -> Evidence:
        """Build from cells whose queries and documents are hashes; see `from_cells`, and the class for `few`."""
        days = np.broadcast_to(np.asarray(day, dtype=np.int32), query.shape)
        order = np.lexsort((days, document, query))
        keys = query[order], document[order], days[order]
        first = np.r_[True, np.any([part[1:] != part[:-1] for part in keys], axis=0)][: len(query)]
        starts = np.flatnonzero(first)
        sums = [
            np.add.reduceat(np.asarray(values, dtype=np.float64)[order], starts) if len(starts) else np.empty(0)
            for values in (looks, choices)
        ]
        doubted = np.broadcast_to(np.asarray(few, dtype=np.bool_), query.shape)[order]
        sums.append(np.logical_and.reduceat(doubted, starts) if len(starts) else doubted)
        own, counts = np.unique(keys[0][starts], return_counts=True)
        offsets = np.r_[0, np.cumsum(counts)]
        return cls(dict(zip(NAMES, (own, offsets, keys[1][starts], keys[2][starts], *sums), strict=True)))

    @classmethod
    def of_judgments(cls, queries: QuerySet, looks: float = JUDGMENT_LOOKS, *, best: float | None = None) -> Evidence:
        """Take human grades as evidence, which does not age.

        Parameters
        ----------
        queries
            Judged queries with texts and document ids. Rows without a grade are no evidence.
        looks
            How many looks a grade counts as.
        best
            The grade at which every look is a choice; a lower one counts as its share. None: the highest grade.

        Examples
        --------
        >>> asked = {"qid": [1, 1], "doc_id": ["d7", "d9"], "query_columns": {"text": ["alien"]}}
        >>> queries = QuerySet.from_arrays([[1.0], [2.0]], [3, 0], **asked)
        >>> Evidence.of_judgments(queries, 50).totals(queries).choices.tolist()
        [50.0, 0.0]
        """
        if not looks > 0:
            raise ParameterError(f"looks must be above 0, got {looks}")
        queried = keys_of(queries)
        if queries.doc_id is None or queried is None:
            what = "texts: pass them as the query column text" if queried is None else "document ids: pass doc_id="
            raise DataError(f"the judged queries have no {what}")
        rows = np.flatnonzero(queries.judged)
        grades = queries.grades[rows].astype(np.float64)
        top = float(grades.max(initial=0.0)) if best is None else best
        share = np.clip(grades / top, 0.0, 1.0) if top > 0 else np.zeros(len(rows))
        keys, documents = queried[queries.query_of_row[rows]], hash_texts(queries.doc_id[rows])
        found = cls.from_hashes(keys, documents, np.full(len(rows), looks), looks * share, JUDGED)
        return cls(found.get_state(), ids=chosen_ids(queries.doc_id[rows], share))

    @classmethod
    def open(cls, path: PathLike, *, verify: bool = False) -> Evidence:
        """Open a folder. It is memory-mapped: values are read when they are used.

        Parameters
        ----------
        path
            The folder.
        verify
            Also compare every file with its SHA-256, which reads all of it.
        """
        return cls(*folder.read(path, KIND, verify=verify)[::-1])

    def save(self, path: PathLike) -> None:
        """Write to a folder that `open` memory-maps."""
        folder.write(path, KIND, self.meta | {"days": self.days}, self.get_state())

    def get_state(self) -> State:
        """Return the arrays by name."""
        return dict(zip(NAMES, self._arrays, strict=True)) | arrays_of(self.ids)

    @property
    def n_queries(self) -> int:
        """The number of queries."""
        return len(self._arrays[0])

    @property
    def n_cells(self) -> int:
        """The number of cells: documents of a query on one day."""
        return len(self._arrays[2])

    @cached_property
    def days(self) -> tuple[int, int] | None:
        """The first and the last day, in days since 1970; None if no evidence has a day.

        Days after tomorrow are errors of whoever dated them, and do not count.
        """
        stored = self.meta.get("days", ())
        if stored is None or (stored and stored[1] <= latest_day()):  # so that opening a large folder reads nothing
            return None if stored is None else (stored[0], stored[1])
        return first_and_last(self._arrays[3])

    @cached_property
    def looks_by_day(self) -> Float64:
        """The looks of each day from the first to the last."""
        first, last = self.days or (0, -1)
        day, looks = self._arrays[3], self._arrays[4]
        own = (day >= first) & (day <= last)
        return np.bincount(day[own] - first, looks[own], last - first + 1).astype(np.float64)

    def __repr__(self) -> str:
        return f"Evidence({self.n_queries:,} queries, {self.n_cells:,} cells)"

    def totals(
        self,
        queries: QuerySet,
        *,
        half_life: float | None = None,
        days: tuple[int, int] | None = None,
        until: int | None = None,
        before: int | None = None,
        hashes: tuple[IdHashes, IdHashes] | None = None,
    ) -> Totals:
        """Return the looks and choices of each candidate; 0 without evidence.

        Parameters
        ----------
        queries
            Queries with texts and document ids. Without them there is no evidence.
        half_life
            Days after which evidence counts half. None: it does not age.
        days
            Count the evidence of these days only, from the first to the last, and none without a day.
        until
            The day from which on evidence ages; None: the last one.
        before
            The first day that does not count; None: all count.
        hashes
            What `hashes_of` returns for the queries, if it is known.
        """
        known = hashes or hashes_of(queries)
        if known is None or not self.n_cells:
            return Totals.zeros(queries.n_rows)
        total = np.zeros((4, queries.n_rows))
        weights = self._day_weights(half_life, days, until, before)
        few = add_totals(*self._arrays, known[0], queries.offsets, known[1], *weights, total)
        return Totals(total[0], total[1], Totals(total[2], total[3]) if few else None)

    def of_query(self, key: np.uint64, **counted: Any) -> tuple[IdHashes, Totals]:
        """Return the documents of a query, given by its hash, and their looks and choices, as `totals` counts them."""
        query, offsets, document, day, looks, choices, few = self._arrays
        place = int(np.searchsorted(query, key))
        if place == len(query) or query[place] != key:
            return np.empty(0, dtype=np.uint64), Totals(np.empty(0), np.empty(0))
        own = slice(offsets[place], offsets[place + 1])
        first, weight = self._day_weights(*(counted.get(name) for name in ("half_life", "days", "until", "before")))
        number = np.where(day[own] < 0, len(weight) - 1, day[own] - first)
        counts = (number >= 0) & (number < len(weight) - (day[own] >= 0))
        factor = np.where(counts, weight[np.where(counts, number, 0)], 0.0)
        documents, cells = np.unique(document[own], return_inverse=True)

        def sums(weights: Float64) -> Totals:
            looked, chosen = (np.bincount(cells, weights=weights * values[own]) for values in (looks, choices))
            return Totals(looked.astype(np.float64), chosen.astype(np.float64))

        return documents, sums(factor).held_back(sums(factor * few[own]) if few[own].any() else None)

    def _day_weights(
        self, half_life: float | None, days: tuple[int, int] | None, until: int | None, before: int | None
    ) -> tuple[int, Float64]:
        """Return the first day that counts, and the weight of each day from it; the last weight is for `NO_DAY`."""
        if half_life is not None and not half_life > 0:
            raise ParameterError(f"half_life must be above 0, got {half_life}")
        known = self._known_weights.get((half_life, days, until, before))
        if known is None:
            first, last = days or self.days or (0, -1)
            weight = np.ones(last - first + 2)
            if half_life is not None:
                age = (last if until is None else until) - last
                weight[:-1] = 0.5 ** (np.arange(age + last - first, age - 1, -1) / half_life)
            if days is not None:
                weight[-1] = 0.0
            if before is not None:
                weight[max(before - first, 0) : -1] = 0.0
            known = self._known_weights[half_life, days, until, before] = first, weight
        return known

    @cached_property
    def _known_weights(self) -> dict[tuple[Any, ...], tuple[int, Float64]]:
        return {}

    def merged(self, other: Evidence) -> Evidence:
        """Return the sum of both, in memory.

        Examples
        --------
        >>> one = Evidence.from_cells(["alien"], ["d7"], [3], [2])
        >>> one.merged(one), one.merged(one).get_state()["looks"].tolist()
        (Evidence(1 queries, 1 cells), [6.0])
        """
        return Evidence(self._merge(other, _in_memory), _merged_meta(self, other), self.ids.joined(other.ids))

    def updated(self, other: Evidence) -> Evidence:
        """Return this evidence with the cells of another one in place of equal ones, in memory.

        Examples
        --------
        >>> one = Evidence.from_cells(["alien", "heat"], ["d7", "d7"], [3, 1], [2, 1])
        >>> one.updated(Evidence.from_cells(["heat"], ["d7"], [5], [4])).get_state()["looks"].tolist()
        [3.0, 5.0]
        """
        meta = self.meta | {"days": joined_days(self.days, other.days)}
        return Evidence(self._merge(other, _in_memory, replace=True), meta, self.ids.joined(other.ids))

    def with_judgments(self, judgments: Evidence) -> Evidence:
        """Return this evidence with the judgments of `of_judgments` in place of the judgments that it has."""
        return self._of_cells(self._arrays[3] != JUDGED).merged(judgments)

    def since(self, day: int) -> Evidence:
        """Return the evidence from a day on, and what has no day, in memory."""
        days = self._arrays[3]
        return self._of_cells((days >= day) | (days < 0))

    def _of_cells(self, kept: NDArray[np.bool_]) -> Evidence:
        """Return the evidence of some cells."""
        query, offsets, *cells = self._arrays
        bounds = np.r_[0, np.cumsum(kept)][offsets]
        known = np.diff(bounds) > 0
        arrays = query[known], np.r_[0, bounds[1:][known]], *(values[kept] for values in cells)
        meta = {name: value for name, value in self.meta.items() if name != "days"}
        return Evidence(dict(zip(NAMES, arrays, strict=True)), meta, self.ids)

    def save_merged(self, other: Evidence, path: PathLike) -> None:
        """Write the sum of both to a folder; neither needs to fit in memory, but for the ids of documents."""
        with folder.atomic_folder(path, KIND) as staging:

            def allocate(name: str, size: int) -> NDArray[Any]:
                file = staging / folder.file_name(name)
                if not size:  # cannot be mapped
                    np.save(file, np.empty(0, dtype=TYPES[name]))
                    return np.empty(0, dtype=TYPES[name])
                return np.lib.format.open_memmap(file, mode="w+", dtype=TYPES[name], shape=(size,))

            for array in self._merge(other, allocate).values():
                if isinstance(array, np.memmap):
                    array.flush()
            named = write_ids(staging, self.ids.joined(other.ids))
            folder.write_manifest(staging, KIND, _merged_meta(self, other), [*NAMES, *named])

    def _merge(self, other: Evidence, allocate: Callable[[str, int], NDArray[Any]], *, replace: bool = False) -> State:
        nothing = tuple(np.empty(0, dtype=TYPES[name]) for name in NAMES)
        n_cells, n_queries = merge_cells(self._arrays, other._arrays, nothing, replace)
        sizes = {"query": n_queries, "offsets": n_queries + 1}
        out = {name: allocate(name, sizes.get(name, n_cells)) for name in NAMES}
        if n_queries:
            merge_cells(self._arrays, other._arrays, tuple(np.asarray(array) for array in out.values()), replace)
        else:
            out["offsets"][:] = 0
        return out


def _in_memory(name: str, size: int) -> NDArray[Any]:
    return np.empty(size, dtype=TYPES[name])


def _merged_meta(one: Evidence, other: Evidence) -> dict[str, Any]:
    logs = [*one.meta.get("logs", []), *other.meta.get("logs", [])]
    return one.meta | other.meta | {"days": joined_days(one.days, other.days), "logs": logs}


def evidence_before(evidence: Evidence, queries: QuerySet, day: int) -> Evidence:
    """Return the evidence of queries before a day, in memory, without judgments and what has no day.

    Parameters
    ----------
    evidence
        All evidence; only the cells of these queries are read.
    queries
        The queries, with texts.
    day
        The first day that is left out, in days since 1970.

    Examples
    --------
    >>> cells = ["alien", "alien", "heat"], ["d7", "d7", "d7"], [3, 4, 5], [2, 0, 1]
    >>> evidence = Evidence.from_cells(*cells, day=[10, 11, 10])
    >>> asked = {"qid": [1], "doc_id": ["d7"], "query_columns": {"text": ["Alien"]}}
    >>> early = evidence_before(evidence, QuerySet.from_arrays([[1.0]], **asked), 11)
    >>> early, early.get_state()["looks"].tolist()
    (Evidence(1 queries, 1 cells), [3.0])
    """
    places, cells = _cells_of(evidence, queries)
    state = evidence.get_state()
    dated = (state["day"][cells] >= 0) & (state["day"][cells] < day)
    query, cells = state["query"][places[dated]], cells[dated]
    document, days, looks, choices, few = (state[name][cells] for name in CELLS)
    early = Evidence.from_hashes(query, document, looks, choices, days, few)
    meta = {name: value for name, value in evidence.meta.items() if name != "days"}
    return Evidence(early.get_state(), meta)


def judged_in(evidence: Evidence, queries: QuerySet) -> NDArray[np.bool_]:
    """Return which queries have human judgments among their evidence.

    Examples
    --------
    >>> asked = {"qid": [1, 2], "doc_id": ["d7", "d9"], "query_columns": {"text": ["alien", "heat"]}}
    >>> queries = QuerySet.from_arrays([[1.0], [2.0]], [3, 0], **asked)
    >>> judged_in(Evidence.of_judgments(queries[:1]), queries).tolist()
    [True, False]
    """
    keys = keys_of(queries)
    if keys is None:
        return np.zeros(len(queries), dtype=np.bool_)
    places, cells = _cells_of(evidence, queries)
    state = evidence.get_state()
    return np.isin(keys, state["query"][places[state["day"][cells] == JUDGED]])


def _cells_of(evidence: Evidence, queries: QuerySet) -> tuple[Int64, Int64]:
    """Return the cells of queries, and the position of the query of each in the evidence."""
    state, keys = evidence.get_state(), keys_of(queries)
    if keys is None:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    keys = np.unique(keys)
    found = np.searchsorted(state["query"], keys)
    found = found[found < evidence.n_queries]
    places = found[np.isin(state["query"][found], keys)]
    starts, sizes = state["offsets"][places], np.diff(state["offsets"])[places]
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(places, sizes), np.repeat(starts, sizes) + within


def write_sorted_cells(
    path: PathLike,
    batches: Iterable[Sequence[NDArray[Any]]],
    meta: dict[str, Any],
    ids: Callable[[], TextTable] = lambda: NO_TEXTS,
) -> Evidence:
    """Write a folder from a stream of cells, and open it.

    Parameters
    ----------
    path
        The folder. An existing folder of evidence is replaced; anything else raises.
    batches
        The arrays query (hashes), document (hashes), day, looks, choices and, if there are any, which are of too few
        clients, of each batch, sorted by the first three over all batches. Equal cells must be adjacent in one batch or
        at the borders of two; they add up.
    meta
        What to say about the source.
    ids
        Returns the ids of documents by their hashes, once all batches are read.
    """
    days: tuple[int, int] | None = None
    previous: np.uint64 | None = None
    with folder.atomic_folder(path, KIND) as staging:
        with ExitStack() as stack:
            files = {name: stack.enter_context(GrowingArray(staging, name)) for name in NAMES}
            for name, file in files.items():
                file.append(np.empty(0, dtype=TYPES[name]))
            for query, *cells in _summed(batches):
                new = np.flatnonzero(np.r_[query[0] != previous, query[1:] != query[:-1]])
                previous = query[-1]
                files["query"].append(query[new])
                files["offsets"].append(new + files["day"].length)
                for name, values in zip(CELLS, cells, strict=True):
                    files[name].append(values.astype(TYPES[name]))
                days = joined_days(days, first_and_last(cells[1]))
            files["offsets"].append(np.array([files["day"].length]))
        folder.write_manifest(staging, KIND, meta | {"days": days}, [*NAMES, *write_ids(staging, ids())])
    return Evidence.open(path)


def _summed(batches: Iterable[Sequence[NDArray[Any]]]) -> Iterator[list[NDArray[Any]]]:
    """Yield batches of sorted cells with equal ones added up; the last cell waits for the next batch."""
    waiting: list[NDArray[Any]] | None = None
    for batch in batches:
        if not len(batch[0]):
            continue
        joined = [*batch, np.zeros(len(batch[0]), dtype=np.bool_)][: 1 + len(CELLS)]
        if waiting is not None and all(a[0] == b[0] for a, b in zip(waiting[:3], batch[:3], strict=True)):
            joined = [np.r_[a, b] for a, b in zip(waiting, joined, strict=True)]
        elif waiting is not None:
            yield waiting
        same = np.all([part[1:] == part[:-1] for part in joined[:3]], axis=0)
        if same.any():
            starts = np.flatnonzero(np.r_[True, ~same])
            sums = [np.add.reduceat(part, starts) for part in joined[3:5]]
            joined = [*(part[starts] for part in joined[:3]), *sums, np.logical_and.reduceat(joined[5], starts)]
        waiting = [part[-1:] for part in joined]
        if len(joined[0]) > 1:
            yield [part[:-1] for part in joined]
    if waiting is not None:
        yield waiting


def latest_day() -> int:
    """Return tomorrow, in days since 1970: evidence of a later day is dated wrongly."""
    return int(time.time() // 86_400) + 1


def first_and_last(day: NDArray[Any]) -> tuple[int, int] | None:
    """Return the first and the last of some days, but for those to come; None if none is dated."""
    dated = day[(day >= 0) & (day <= latest_day())]
    return (int(dated.min()), int(dated.max())) if len(dated) else None


def joined_days(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the days from the first to the last of both."""
    return a or b if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def chosen_ids(documents: NDArray[Any], choices: ArrayLike) -> TextTable:
    """Return the ids of the documents that were chosen.

    Examples
    --------
    >>> chosen_ids(np.array(["d7", "d9", "d7"]), [0, 0, 2]).find_hashes(hash_texts(np.array(["d7", "d9"])))
    ['d7', None]
    """
    chosen = np.broadcast_to(np.asarray(choices), documents.shape) > 0
    ids = np.unique(documents[chosen].astype(np.str_))
    return TextTable.of_hashes(hash_texts(ids), ids.tolist())


def arrays_of(ids: TextTable) -> State:
    """Return the arrays of ids, as a folder of evidence names them."""
    return {f"{_PREFIX}{name}": array for name, array in ids.get_state().items()}


def table_in(arrays: Mapping[str, NDArray[Any]]) -> TextTable:
    """Return the ids among the arrays of a folder; a folder of an earlier version has none."""
    found = {name: array for name, array in arrays.items() if name.startswith(_PREFIX)}
    return TextTable.from_state({name.removeprefix(_PREFIX): array for name, array in found.items()})


def write_ids(staging: Path, ids: TextTable) -> list[str]:
    """Write ids into a folder, and return the names of their arrays."""
    named = arrays_of(ids)
    for name, array in named.items():
        np.save(staging / folder.file_name(name), array)
    return list(named)


@numba.njit(cache=True, nogil=True)
def add_totals(query, offsets, document, day, looks, choices, few, keys, rows, documents, first_day, weight, total):  # type: ignore[no-untyped-def]
    """Add the weighted looks and choices of the candidates of each query to the first two rows of `total`.

    Those of too few clients are also added to the last two rows, and whether there are any is returned.
    The weight of a day is ``weight[day - first_day]``; days outside count 0, and the last weight is for cells without
    a day.
    """
    any_few = False
    for i in range(len(keys)):
        place = lower_bound(query, keys[i], 0, len(query))
        if place == len(query) or query[place] != keys[i]:
            continue
        start, stop = offsets[place], offsets[place + 1]
        for row in range(rows[i], rows[i + 1]):
            cell = lower_bound(document, documents[row], start, stop)
            while cell < stop and document[cell] == documents[row]:
                number, end = day[cell] - first_day, len(weight) - 1
                if day[cell] < 0:
                    number, end = len(weight) - 1, len(weight)
                if 0 <= number < end:
                    total[0, row] += weight[number] * looks[cell]
                    total[1, row] += weight[number] * choices[cell]
                    if few[cell]:
                        any_few = True
                        total[2, row] += weight[number] * looks[cell]
                        total[3, row] += weight[number] * choices[cell]
                cell += 1
    return any_few


@numba.njit(cache=True, nogil=True)
def merge_cells(a, b, out, replace):  # type: ignore[no-untyped-def]
    """Merge two sorted sets of cells, and return the numbers of cells and of queries.

    Equal cells add up or, if `replace`, those of `b` count. A sum is of too few clients if both are.

    `a` and `b` are tuples of the arrays of an `Evidence`, `out` of the same for the result. With an empty `out`, only
    count.
    """
    write = len(out[0]) > 0
    n_cells, n_queries, i, j = 0, 0, 0, 0
    while i < len(a[0]) or j < len(b[0]):
        first = j == len(b[0]) or (i < len(a[0]) and a[0][i] <= b[0][j])
        second = i == len(a[0]) or (j < len(b[0]) and b[0][j] <= a[0][i])
        key = a[0][i] if first else b[0][j]
        x, x_end = (a[1][i], a[1][i + 1]) if first else (0, 0)
        y, y_end = (b[1][j], b[1][j + 1]) if second else (0, 0)
        if write:
            out[0][n_queries] = key
            out[1][n_queries] = n_cells
        while x < x_end or y < y_end:
            left = y == y_end
            right = x == x_end
            if not left and not right:
                left = a[2][x] < b[2][y] or (a[2][x] == b[2][y] and a[3][x] <= b[3][y])
                right = b[2][y] < a[2][x] or (a[2][x] == b[2][y] and b[3][y] <= a[3][x])
            if write:
                out[2][n_cells] = a[2][x] if left else b[2][y]
                out[3][n_cells] = a[3][x] if left else b[3][y]
                first_counts = left and not (replace and right)
                out[4][n_cells] = (a[4][x] if first_counts else 0.0) + (b[4][y] if right else 0.0)
                out[5][n_cells] = (a[5][x] if first_counts else 0.0) + (b[5][y] if right else 0.0)
                out[6][n_cells] = (not first_counts or a[6][x]) and (not right or b[6][y])
            x += left
            y += right
            n_cells += 1
        i += first
        j += second
        n_queries += 1
    if write:
        out[1][n_queries] = n_cells
    return n_cells, n_queries
