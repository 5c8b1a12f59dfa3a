"""New judgments for a model in use: kept in a journal, learned without fitting again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.serve.messages import Candidates, Judged, as_query_set


@runtime_checkable
class Extensible(Protocol):
    """A ranker that learns from single queries, and forgets them, without fitting again."""

    qid_: NDArray[Any]

    def add(self, X: QuerySet) -> Self:
        """Learn from further judged queries."""

    def remove(self, qid: ArrayLike) -> Self:
        """Forget judged queries."""


def learns(ranker: Any) -> TypeGuard[Extensible]:
    """Whether a ranker learns from single queries.

    One with cells does not: it cannot tell a query that is judged again from a new one, and would count it twice.
    """
    return isinstance(ranker, Extensible) and getattr(ranker, "cells", None) is None


@dataclass(frozen=True)
class Entry:
    """A judged query of the journal.

    Attributes
    ----------
    base : str
        The version of the model that was in use when it came.
    judged : Judged
        The query.
    """

    base: str
    judged: Judged

    def dump(self) -> str:
        """As a line of JSON."""
        asked = self.judged.candidates
        record = {
            "base": self.base,
            "qid": self.judged.qid,
            "ids": asked.ids,
            "feature_names": asked.feature_names,
            # JSON has no NaN: a missing value is null.
            "features": [[None if value != value else value for value in row] for row in asked.features.tolist()],
            "grades": self.judged.grades,
            "vector": None if asked.vector is None else asked.vector.tolist(),
            "columns": dict(asked.columns),
        }
        return json.dumps(record, allow_nan=False, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Entry:
        """What `dump` wrote."""
        record = json.loads(text)
        vector = record["vector"]
        asked = Candidates(
            record["ids"],
            np.array(record["features"], dtype=np.float32),
            tuple(record["feature_names"]),
            None if vector is None else np.array(vector, dtype=np.float32),
            record["columns"],
        )
        return cls(record["base"], Judged(record["qid"], asked, record["grades"]))


def entries_of(ranker: Any, version: str, some: Sequence[Judged]) -> list[Entry]:
    """What the journal keeps of judged queries; a `DataError` where one of them does not fit the model."""
    names = ranker.feature_names_
    entries = []
    for judged in some:
        queries = judged_set([judged], names, ranker.qid_)
        ranker.scored(queries)  # what cannot be ranked cannot be learned from
        asked = judged.candidates
        named = Candidates(asked.ids, queries.X, names, asked.vector, asked.columns)
        entries.append(Entry(version, Judged(judged.qid, named, judged.grades)))
    return entries


def learn(ranker: Any, entries: Iterable[Entry], version: str, base_qid: NDArray[Any]) -> tuple[Any, int]:
    """A ranker that has also learned from the journal, and how many of its entries did not fit.

    The later entry of a query counts. An entry that an older model was given does not replace a query that this model
    was fitted on: it is the model that is newer.

    Parameters
    ----------
    ranker
        An `Extensible` ranker; it is not changed.
    entries
        In the order of the journal.
    version, base_qid
        The model as it was fitted, and the queries it was fitted on.
    """
    fitted = set(base_qid.tolist())
    latest: dict[str | int, tuple[Entry, QuerySet]] = {}
    unfit = 0
    for entry in entries:
        try:
            qid = as_qid(entry.judged.qid, base_qid)
            if entry.base != version and qid in fitted:
                continue
            latest[qid] = entry, judged_set([entry.judged], ranker.feature_names_, base_qid)
        except DataError:  # of a model with other features or ids
            unfit += 1
    groups: dict[tuple[object, ...], list[QuerySet]] = {}
    for entry, queries in latest.values():
        groups.setdefault(entry.judged.candidates.kind, []).append(queries)
    taught = ranker
    for group in groups.values():
        try:
            taught = _extended(taught, group)
        except DataError:  # one of them is to blame; the others are learned
            for queries in group:
                try:
                    taught = _extended(taught, [queries])
                except DataError:
                    unfit += 1
    return taught, unfit


def _extended(ranker: Any, group: Sequence[QuerySet]) -> Any:
    """A copy of a ranker that has learned from further queries of one kind; those it knows are replaced."""
    queries = QuerySet.concat(group)
    pupil = ranker.copy()
    known = queries.qid[np.isin(queries.qid, pupil.qid_)]
    if len(known):
        pupil.remove(known)
    return pupil.add(queries)


def judged_set(some: Sequence[Judged], names: tuple[str, ...], like: NDArray[Any]) -> QuerySet:
    """Judged queries of one kind with the features of a model, their ids of the model's type."""
    rows: list[Float32] = [each.candidates.aligned(names) for each in some]
    queries = as_query_set([each.candidates for each in some], rows, names)
    grades = np.array([grade for each in some for grade in each.grades], dtype=np.float32)
    qid = np.array([as_qid(each.qid, like) for each in some], dtype=like.dtype if like.dtype.kind == "u" else None)
    return queries.replace(y=grades, qid=qid)


def as_qid(qid: str, like: NDArray[Any]) -> str | int:
    """The id of a query in the type that a model's own have."""
    if like.dtype.kind == "U":
        if qid.endswith("\0"):  # arrays of text drop it: two ids would become one
            raise DataError(f"a query id does not end in a NUL character, got {qid!r}")
        return qid
    try:
        number = int(qid)
    except ValueError:
        raise DataError(f"the model has numbers for query ids, got {qid[:100]!r}") from None
    bounds = np.iinfo(like.dtype if like.dtype.kind == "u" else np.int64)
    if str(number) != qid or not bounds.min <= number <= bounds.max:
        raise DataError(
            f"the model has numbers from {bounds.min} to {bounds.max} for query ids, written without signs, spaces or "
            f"zeros that say nothing, got {qid[:100]!r}"
        )
    return number
