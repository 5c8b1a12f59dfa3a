"""Judgments for a model in use: kept in a journal and learned without refitting."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.serve.messages import CandidateSet, JudgedQuery, to_query_set


@dataclass(frozen=True)
class Entry:
    """A judged query in the journal.

    Attributes
    ----------
    base : str
        Version of the model in use when the query was judged.
    judged : JudgedQuery
        The query.
    """

    base: str
    judged: JudgedQuery

    def dump(self) -> str:
        """Return the entry as a line of JSON."""
        candidates = self.judged.candidates
        record = {
            "base": self.base,
            "qid": self.judged.qid,
            "ids": candidates.ids,
            "feature_names": candidates.feature_names,
            # JSON has no NaN: a missing value is null.
            "features": [[None if value != value else value for value in row] for row in candidates.features.tolist()],
            "grades": self.judged.grades,
            "vector": None if candidates.vector is None else candidates.vector.tolist(),
            "columns": dict(candidates.columns),
            "text": candidates.text,
        }
        return json.dumps(record, allow_nan=False, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Entry:
        """Read an entry written by `dump`."""
        record = json.loads(text)
        vector = record["vector"]
        candidates = CandidateSet(
            record["ids"],
            np.array(record["features"], dtype=np.float32),
            tuple(record["feature_names"]),
            None if vector is None else np.array(vector, dtype=np.float32),
            record["columns"],
            record.get("text"),
        )
        return cls(record["base"], JudgedQuery(record["qid"], candidates, record["grades"]))


def make_entries(ranker: Any, version: str, queries: Sequence[JudgedQuery]) -> list[Entry]:
    """Return journal entries for judged queries. Raise `DataError` if one of them does not fit the model."""
    names = ranker.feature_names_
    entries = []
    for query in queries:
        checked = _to_judged_set(query, names, ranker.qid_)
        ranker.predict_with_novelty(checked)  # a query that cannot be ranked cannot be learned from
        given = query.candidates
        named = CandidateSet(given.ids, checked.X, names, given.vector, given.columns, given.text)
        entries.append(Entry(version, JudgedQuery(query.qid, named, query.grades)))
    return entries


def learn(ranker: Any, entries: Iterable[Entry], version: str, base_qid: NDArray[Any]) -> tuple[Any, int]:
    """Return a copy of a ranker that has learned from the journal, and the number of entries that were skipped.

    The latest entry of a query counts. An entry written for an older model does not replace a query that this model
    was fitted on, because the model is newer.

    Parameters
    ----------
    ranker
        An adaptive ranker; it is not changed.
    entries
        Entries in the order of the journal.
    version, base_qid
        Version of the fitted model, and the queries it was fitted on.
    """
    fitted = set(base_qid.tolist())
    latest: dict[str | int, tuple[Entry, QuerySet]] = {}
    skipped = 0
    for entry in entries:
        try:
            qid = _convert_qid(entry.judged.qid, base_qid)
            if entry.base != version and qid in fitted:
                continue
            latest[qid] = entry, _to_judged_set(entry.judged, ranker.feature_names_, base_qid)
        except DataError:  # written for a model with other features or ids
            skipped += 1
    groups: dict[tuple[object, ...], list[QuerySet]] = {}
    for entry, queries in latest.values():
        groups.setdefault(entry.judged.candidates.batch_key, []).append(queries)
    for group in groups.values():
        try:
            ranker = _extend(ranker, group)
        except DataError:  # skip only the queries that do not fit
            for queries in group:
                try:
                    ranker = _extend(ranker, [queries])
                except DataError:
                    skipped += 1
    return ranker, skipped


def _extend(ranker: Any, group: Sequence[QuerySet]) -> Any:
    """Return a copy of a ranker with further queries; queries that it has already are replaced."""
    queries = QuerySet.concat(group)
    extended = ranker.copy()
    known = queries.qid[np.isin(queries.qid, extended.qid_)]
    if len(known):
        extended.remove(known)
    return extended.add(queries)


def _to_judged_set(query: JudgedQuery, names: tuple[str, ...], model_qid: NDArray[Any]) -> QuerySet:
    """Return a judged query as a QuerySet with the model's features and type of query ids."""
    queries = to_query_set([query.candidates], [query.candidates.align(names)], names)
    dtype = model_qid.dtype if model_qid.dtype.kind == "u" else None
    qid = np.array([_convert_qid(query.qid, model_qid)], dtype=dtype)
    return queries.replace(y=np.array(query.grades, dtype=np.float32), qid=qid)


def _convert_qid(qid: str, model_qid: NDArray[Any]) -> str | int:
    """Return a query id in the type of the model's query ids."""
    if model_qid.dtype.kind == "U":
        if qid.endswith("\0"):  # NumPy drops it, so two ids would become one
            raise DataError(f"query ids must not end in a NUL character, got {qid!r}")
        return qid
    try:
        number = int(qid)
    except ValueError:
        raise DataError(f"the model's query ids are integers, got {qid[:100]!r}") from None
    bounds = np.iinfo(model_qid.dtype if model_qid.dtype.kind == "u" else np.int64)
    if str(number) != qid or not bounds.min <= number <= bounds.max:
        raise DataError(
            f"the model's query ids are integers from {bounds.min} to {bounds.max}, written without plus sign, spaces "
            f"or leading zeros, got {qid[:100]!r}"
        )
    return number
