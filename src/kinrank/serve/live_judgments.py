"""Judgments for a model in use: how they are stored, and how a model learns them without refitting."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.serve.judgment_store import Changes
from kinrank.serve.messages import CandidateSet, JudgedQuery, to_query_set

MOST_DOCUMENTS = 1_000
"""Judged documents that are kept of one query by one source."""


@dataclass(frozen=True)
class Entry:
    """A judged query as it is stored."""

    base: str
    """Version of the model in use when the query was judged."""
    judged: JudgedQuery
    """The query."""

    def dump(self) -> str:
        """Return the entry as JSON."""
        judged = {"qid": self.judged.qid, "grades": self.judged.grades}
        return _dump({"base": self.base, **judged, **self.judged.candidates.to_record()})

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
            record.get("keys", {}),
        )
        return cls(record["base"], JudgedQuery(record["qid"], candidates, record["grades"]))


def merge_records(old: str, new: str) -> str:
    """Return a stored record with the judgments of a new one: a document judged again is replaced, others stay.

    The new record replaces the old one altogether if they have different features. A query keeps its latest 1,000
    documents.
    """
    before, after = json.loads(old), json.loads(new)
    if any(_names(before, what) != _names(after, what) for what in ("feature_names", "keys")):
        return new
    rows: dict[str, list[Any]] = {}
    for doc_id, *row in [*_rows(before), *_rows(after)]:
        rows.pop(doc_id, None)  # a document judged again is among the latest
        rows[doc_id] = row
    kept = dict(list(rows.items())[-MOST_DOCUMENTS:])
    features, grades, *keys = zip(*kept.values(), strict=True)
    keyed = {"keys": dict(zip(after["keys"], keys, strict=True))} if keys else {}
    return _dump({**after, "ids": list(kept), "features": features, "grades": grades, **keyed})


def _names(record: dict[str, Any], what: str) -> list[str]:
    return list(record.get(what, ()))


def _rows(record: dict[str, Any]) -> Iterable[tuple[Any, ...]]:
    return zip(record["ids"], record["features"], record["grades"], *record.get("keys", {}).values(), strict=True)


def _dump(record: dict[str, Any]) -> str:
    return json.dumps(record, allow_nan=False, separators=(",", ":"))


def make_entries(ranker: Any, base: Any, version: str, queries: Sequence[JudgedQuery]) -> list[Entry]:
    """Return entries for judged queries. Raise `DataError` if one of them does not fit the model.

    See `learn` for `base` and `version`.
    """
    names, dtype = ranker.feature_names_, base.qid_.dtype
    entries = []
    for query in queries:
        checked = _to_judged_set(query, names, dtype)
        ranker.check_learnable(checked)
        given = query.candidates
        named = CandidateSet(given.ids, checked.X, names, given.vector, given.columns, given.text, given.keys)
        entries.append(Entry(version, JudgedQuery(query.qid, named, query.grades)))
    return entries


class Learned(NamedTuple):
    """A ranker that has learned changed judgments."""

    ranker: Any
    """The ranker."""
    revision: int
    """The revision that it has learned."""
    mark: str
    """The mark of the revision; see `Changes`."""
    learned: int
    skipped: int
    """The number of queries that it has learned, and that it could not learn."""


def learn(ranker: Any, pages: Iterable[Changes], base: Any, version: str) -> Learned:
    """Return a copy of a ranker that has learned changed queries. A query without a record is forgotten.

    Parameters
    ----------
    ranker
        An adaptive ranker; it is not changed.
    pages
        The changed queries; at least one page.
    base, version
        The model as it was fitted, and its version. If the model does not say which judgments it was fitted on
        (`judgments_through_`), it is taken to be newer than the judgments of other versions for the queries it has.

    Raises
    ------
    DataError
        All of its judged queries were withdrawn.
    """
    revision, mark, learned, skipped = 0, "", 0, 0
    withdrawn: set[str | int] = set()
    dtype = base.qid_.dtype
    for page in pages:
        groups: dict[tuple[object, ...], list[QuerySet]] = {}
        for query, rows in page.queries.items():
            try:
                qid = _convert_qid(query, dtype)
                records = [row.record for row in rows if row.record is not None]
                if not records:
                    withdrawn.add(qid)
                    continue
                withdrawn.discard(qid)
                entry = Entry.parse(reduce(merge_records, records))
                if base.judgments_through_ is None and entry.base != version and base.has_judged([qid])[0]:
                    continue
                queries = _to_judged_set(entry.judged, ranker.feature_names_, dtype)
                groups.setdefault(entry.judged.candidates.batch_key, []).append(queries)
            except DataError:  # stored for a model with other features or ids
                skipped += 1
        for group in groups.values():
            ranker, count = _extend(ranker, group)
            learned, skipped = learned + count, skipped + len(group) - count
        revision, mark = page.through, page.mark
    return Learned(_forget(ranker, withdrawn), revision, mark, learned, skipped)


def _extend(ranker: Any, group: list[QuerySet]) -> tuple[Any, int]:
    """Return a copy of a ranker with further queries, in place of those that it has already, and their number.

    If they cannot be learned together, those that cannot be learned alone are left out.
    """
    queries = QuerySet.concat(group)
    extended = ranker.copy()
    known = queries.qid[extended.has_judged(queries.qid)]
    try:
        if len(known):
            extended.remove(known)
        return extended.add(queries), len(group)
    except DataError:
        if len(group) == 1:
            return ranker, 0
    learned = 0
    for each in group:
        ranker, count = _extend(ranker, [each])
        learned += count
    return ranker, learned


def _forget(ranker: Any, qids: Iterable[str | int]) -> Any:
    """Return a copy of a ranker without queries, as far as it has them."""
    known = [qid for qid in qids if ranker.has_judged([qid])[0]]
    if 0 < len(known) == ranker.n_judged_:
        raise DataError(
            "all of its judged queries were withdrawn, and a model needs one: judge another query, or replace the model"
        )
    return ranker.copy().remove(known) if known else ranker


def _to_judged_set(query: JudgedQuery, names: tuple[str, ...], dtype: np.dtype[Any]) -> QuerySet:
    """Return a judged query as a QuerySet with the model's features and type of query ids."""
    queries = to_query_set([query.candidates], [query.candidates.align(names)], names)
    kept = dtype if dtype.kind == "u" else None
    qid = np.array([_convert_qid(query.qid, dtype)], dtype=kept)
    return queries.replace(y=np.array(query.grades, dtype=np.float32), qid=qid)


def _convert_qid(qid: str, dtype: np.dtype[Any]) -> str | int:
    """Return a query id in the type of the model's query ids."""
    if dtype.kind == "U":
        if qid.endswith("\0"):  # NumPy drops it, so two ids would become one
            raise DataError(f"query ids must not end in a NUL character, got {qid!r}")
        return qid
    try:
        number = int(qid)
    except ValueError:
        raise DataError(f"the model's query ids are integers, got {qid[:100]!r}") from None
    bounds = np.iinfo(dtype if dtype.kind == "u" else np.int64)
    if str(number) != qid or not bounds.min <= number <= bounds.max:
        raise DataError(
            f"the model's query ids are integers from {bounds.min} to {bounds.max}, written without plus sign, spaces "
            f"or leading zeros, got {qid[:100]!r}"
        )
    return number
