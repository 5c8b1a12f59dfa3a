"""Live judgments: in a database that all replicas share, learned by models without refitting, and as files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.serve._database import (
    Database,
    Execute,
    check_history,
    end_of_page,
    mark_of,
    next_revision,
    open_database,
    placeholders,
    revision_of,
    undo_revision,
)
from kinrank.serve.messages import CandidateSet, JudgedQuery, to_query_set

_PAGE = 2_000  # changed rows that are read at a time


class JudgmentRow(NamedTuple):
    """The judgments of one query by one source."""

    query: str
    source: str
    """Who judged which query."""
    record: str | None
    """The judgments as text; None marks judgments that were withdrawn."""


@dataclass(frozen=True)
class Changes:
    """What changed after a revision."""

    queries: dict[str, list[JudgmentRow]]
    """For each changed query, its rows of all sources, the latest last. All of them have no record if the query was
    withdrawn.
    """
    through: int
    """The revision up to which these are all changes."""
    revision: int
    """The latest revision of the store; read again from `through` on until it is reached."""
    mark: str = ""
    """Identifies the history up to `through`; empty if nothing was changed yet."""


class JudgmentStore:
    """Judgments of several models, one row for each query and source.

    The judgments of a model are a stream of changes; see `kinrank.serve._database`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(f"sqlite:///{folder}/judgments.db")
    ...     first = store.append("movies", [JudgmentRow("q1", "", "good")])
    ...     again = store.append("movies", [JudgmentRow("q1", "", "good")])
    ...     deleted = store.delete("movies", query="q1")
    ...     changes = store.read("movies", since=1)
    ...     store.close()
    >>> first, again, deleted, changes.queries
    (1, 1, (1, 2), {'q1': [JudgmentRow(query='q1', source='', record=None)]})
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    def close(self) -> None:
        """Close the connection."""
        self.database.close()

    def append(
        self, model: str, rows: Sequence[JudgmentRow], merge: Callable[[str, str], str] = lambda _, new: new
    ) -> int:
        """Store all rows or none, and return the revision that has them; they are durable then.

        `merge` returns the record to keep, given the one that is stored for the same query and source and the
        new one. If nothing changes, there is no new revision: storing the same rows again has no effect.
        `NotStoredError` means that the database did not confirm them; storing them again is safe.
        """
        for row in rows:
            if "\0" in row.query + row.source:
                raise DataError(f"query ids and sources must not contain NUL characters, got {row.query[:100]!r}")
        with self.database.writing() as execute:
            revision = next_revision(execute, model)
            parts = [rows[start : start + _PAGE] for start in range(0, len(rows), _PAGE)]
            changed = sum(_put(execute, model, part, revision, merge) for part in parts)
            if not changed:
                return undo_revision(execute, model, revision)
            return revision

    def read(self, model: str, since: int = 0, limit: int = _PAGE, *, mark: str = "") -> Changes:
        """Return the changes after a revision, about `limit` of them. `mark` is that of the revision, if known.

        Raises
        ------
        StoreUnavailableError
            The database cannot be reached.
        OtherHistoryError
            The store has not reached this revision, or with other changes.
        """
        with self.database.reading() as execute:
            revision = check_history(execute, model, since, mark, f"the judgments of {model!r}")
            if since == revision:
                return Changes({}, revision, revision, mark_of(execute, model, since))
            through = end_of_page(execute, "kinrank_judgments", model, since, revision, limit)
            rows = execute(
                "SELECT revision, query, source, record FROM kinrank_judgments WHERE model = ? AND query IN "
                "(SELECT query FROM kinrank_judgments WHERE model = ? AND revision > ? AND revision <= ?)",
                (model, model, since, through),
            )
            reached = mark_of(execute, model, through)
        queries: dict[str, list[JudgmentRow]] = {}
        # Sorted here: to sort by revision, SQLite would walk through all revisions instead of the changed queries.
        for _, *row in sorted(rows, key=lambda row: row[:3]):
            queries.setdefault(row[0], []).append(JudgmentRow(*row))
        return Changes(queries, through, revision, reached)

    def pages(self, model: str, since: int = 0, mark: str = "") -> Iterator[Changes]:
        """Yield all changes after a revision, about 2,000 at a time; see `read`."""
        while True:
            changes = self.read(model, since, mark=mark)
            yield changes
            since, mark = changes.through, changes.mark
            if since == changes.revision:
                return

    def position(self, model: str) -> tuple[int, str]:
        """Return the latest revision of a model's judgments and its mark."""
        with self.database.reading() as execute:
            revision = revision_of(execute, model)
            return revision, mark_of(execute, model, revision)

    def delete(self, model: str, *, query: str | None = None, source: str | None = None) -> tuple[int, int]:
        """Withdraw the judgments of a query, of a source, or of a query by a source.

        Return the number of rows withdrawn, and the revision without them.
        """
        if query is None and source is None:
            raise DataError("name the query or the source whose judgments are withdrawn")
        named = {"query": query, "source": source}
        wanted = {column: value for column, value in named.items() if value is not None}
        condition = " AND ".join(f"{column} = ?" for column in wanted)
        with self.database.writing() as execute:
            revision = next_revision(execute, model)
            found = execute(
                "UPDATE kinrank_judgments SET record = NULL, revision = ? WHERE model = ? AND record IS NOT NULL "  # noqa: S608 - column names of our own
                f"AND {condition} RETURNING query",
                (revision, model, *wanted.values()),
            )
            if not found:
                return 0, undo_revision(execute, model, revision)
            return len(found), revision


def _put(
    execute: Execute, model: str, rows: Sequence[JudgmentRow], revision: int, merge: Callable[[str, str], str]
) -> int:
    """Store rows and return how many of them changed anything."""
    stored = execute(
        f"SELECT query, source, record FROM kinrank_judgments WHERE model = ? AND query IN ({placeholders(rows)})",  # noqa: S608
        (model, *(row.query for row in rows)),
    )
    kept = {(query, source): record for query, source, record in stored}
    changed: dict[tuple[str, str], str | None] = {}
    for row in rows:
        key = (row.query, row.source)
        old = changed.get(key, kept.get(key))
        changed[key] = row.record if old is None or row.record is None else merge(old, row.record)
    changed = {key: record for key, record in changed.items() if record != kept.get(key)}
    if changed:
        values = ", ".join(["(?, ?, ?, ?, ?)"] * len(changed))
        execute(
            f"INSERT INTO kinrank_judgments (model, query, source, revision, record) VALUES {values} "  # noqa: S608
            "ON CONFLICT (model, query, source) DO UPDATE SET revision = excluded.revision, record = excluded.record",
            tuple(value for key, record in changed.items() for value in (model, *key, revision, record)),
        )
    return len(changed)


def open_store(address: str) -> JudgmentStore:
    """Return the judgments in the database at an address; see `kinrank.serve._database.open_database`."""
    return JudgmentStore(open_database(address))


def checkpoint_folder(address: str, model: str | os.PathLike[str]) -> str | None:
    """Return where models with the judgments of a store are kept by default; None without a lasting place.

    Examples
    --------
    >>> checkpoint_folder("sqlite:///judgments.db", "model"), checkpoint_folder("postgresql://db/kinrank", "model")
    ('judgments.db.checkpoints', 'model.checkpoints')
    >>> checkpoint_folder("postgresql://db/kinrank", "s3://bucket/models")
    """
    prefix = "sqlite:///"
    if address.startswith(prefix):
        return f"{address.removeprefix(prefix)}.checkpoints"
    folder = os.path.normpath(model)
    local = "://" not in os.fspath(model) and os.access(os.path.dirname(os.path.abspath(folder)), os.W_OK)
    return f"{folder}.checkpoints" if local else None


# --- judgments for a model in use: how they are stored, and how a model learns them without refitting -----------------


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
            record["text"],
            record["keys"],
        )
        return cls(record["base"], JudgedQuery(record["qid"], candidates, record["grades"]))


def merge_records(old: str, new: str) -> str:
    """Return a stored record with the judgments of a new one: a document judged again is replaced, others stay.

    The new record replaces the old one altogether if they have different features. A query keeps its latest 1,000
    documents.
    """
    before, after = json.loads(old), json.loads(new)
    if any(list(before[what]) != list(after[what]) for what in ("feature_names", "keys")):
        return new
    rows: dict[str, list[Any]] = {}
    for doc_id, *row in [*_rows(before), *_rows(after)]:
        rows.pop(doc_id, None)  # a document judged again is among the latest
        rows[doc_id] = row
    kept = dict(list(rows.items())[-MOST_DOCUMENTS:])
    features, grades, *keys = zip(*kept.values(), strict=True)
    keyed = dict(zip(after["keys"], keys, strict=True))
    return _dump({**after, "ids": list(kept), "features": features, "grades": grades, "keys": keyed})


def _rows(record: dict[str, Any]) -> Iterable[tuple[Any, ...]]:
    return zip(record["ids"], record["features"], record["grades"], *record["keys"].values(), strict=True)


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

    `base` is the model as it was fitted, of a `version`. If it does not say which judgments it was fitted on
    (`judgments_through_`), it is taken to be newer than the judgments of other versions for the queries it has.
    Raise `DataError` if all of its judged queries were withdrawn.
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


def exported_queries(store: JudgmentStore, model: str) -> tuple[QuerySet, int]:
    """Return the judgments of a model as judged queries, and the revision that they are at.

    Queries whose features, vectors, texts or columns differ from those of the latest one are left out.
    """
    latest: dict[str, Entry] = {}
    revision = 0
    for changes in store.pages(model):
        for query, rows in changes.queries.items():
            latest.pop(query, None)
            records = [row.record for row in rows if row.record is not None]
            if records:
                latest[query] = Entry.parse(reduce(merge_records, records))
        revision = changes.through
    if not latest:
        raise DataError(f"there are no judgments of {model!r}: name another model with --model")
    judged = [entry.judged for entry in latest.values()]
    last = judged[-1].candidates
    alike = [
        query
        for query in judged
        if query.candidates.feature_names == last.feature_names and query.candidates.batch_key == last.batch_key
    ]
    candidates = [query.candidates for query in alike]
    queries = to_query_set(candidates, [each.features for each in candidates], last.feature_names or ())
    return (
        queries.replace(
            y=np.concatenate([np.array(query.grades, dtype=np.float32) for query in alike]),
            qid=np.array([query.qid for query in alike]),
            doc_id=np.array([doc_id for each in candidates for doc_id in each.ids]),
        ),
        revision,
    )
