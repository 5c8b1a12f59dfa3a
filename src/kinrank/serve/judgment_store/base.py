"""What every store of judgments does, in SQL that SQLite and PostgreSQL share."""

from __future__ import annotations

import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from kinrank.errors import DataError, NotStoredError, OtherHistoryError, StoreUnavailableError

Execute = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]
"""Runs one statement with ``?`` for each argument, and returns its rows."""

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS kinrank_revisions (model TEXT PRIMARY KEY, revision BIGINT NOT NULL, "
    "compacted BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS kinrank_judgments (model TEXT NOT NULL, query TEXT NOT NULL, source TEXT NOT NULL, "
    "revision BIGINT NOT NULL, record TEXT, PRIMARY KEY (model, query, source))",
    "CREATE INDEX IF NOT EXISTS kinrank_judgments_by_revision ON kinrank_judgments (model, revision)",
    # Which change a revision was: after restoring a copy, other changes get the same numbers.
    "CREATE TABLE IF NOT EXISTS kinrank_marks (model TEXT NOT NULL, revision BIGINT NOT NULL, mark TEXT NOT NULL, "
    "PRIMARY KEY (model, revision))",
)
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
    """Identifies the history up to `through`; empty if an earlier version of kinrank wrote it."""


class JudgmentStore(ABC):
    """Judgments of several models, one row for each query and source.

    Every change of a model's judgments gets the next revision of that model. A change is one transaction that locks
    the model's revision until it is committed, so revisions become visible in order and without gaps: a reader at
    revision r has seen every change up to r, and no later commit can add one below it. Every change also gets a random
    mark, by which a reader finds out that an older copy of the database was restored.

    An object may be used by several threads; one call runs at a time. A lost connection is opened again by the next
    call.

    Parameters
    ----------
    address
        Where the store is; see `kinrank.serve.judgment_store.open_store`.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._lock = threading.Lock()

    @abstractmethod
    def _transaction(self, *, write: bool) -> Any:
        """Return a context manager that yields an `Execute`, commits at its end and rolls back on an error."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @property
    @abstractmethod
    def failures(self) -> tuple[type[Exception], ...]:
        """The exceptions by which the database reports that it cannot be used."""

    def append(
        self, model: str, rows: Sequence[JudgmentRow], merge: Callable[[str, str], str] = lambda _, new: new
    ) -> int:
        """Store all rows or none, and return the revision that has them; they are durable then.

        Parameters
        ----------
        model
            The name of the model.
        rows
            One row for each query and source.
        merge
            Returns the record to keep, given the one that is stored for the same query and source and the new one. If
            nothing changes, there is no new revision: storing the same rows again has no effect.

        Raises
        ------
        NotStoredError
            The database did not confirm them. Store them again: that is safe, whether or not it has them.
        """
        for row in rows:
            if "\0" in row.query + row.source:
                raise DataError(f"query ids and sources must not contain NUL characters, got {row.query[:100]!r}")
        with self._reported(NotStoredError), self._transaction(write=True) as execute:
            revision = _next_revision(execute, model)
            parts = [rows[start : start + _PAGE] for start in range(0, len(rows), _PAGE)]
            changed = sum(_put(execute, model, part, revision, merge) for part in parts)
            return revision if changed else _undo_revision(execute, model, revision)

    def read(self, model: str, since: int = 0, limit: int = _PAGE, *, mark: str = "") -> Changes:
        """Return the changes after a revision, about `limit` of them. `mark` is that of the revision, if known.

        Raises
        ------
        StoreUnavailableError
            The database cannot be reached.
        OtherHistoryError
            The store has not reached this revision, or with other changes.
        DataError
            Withdrawals after this revision were compacted.
        """
        with self._reported(StoreUnavailableError), self._transaction(write=False) as execute:
            revision, compacted = _revision_of(execute, model)
            known = _mark_of(execute, model, since)
            if since > revision or (since and mark and known != mark):
                raise OtherHistoryError(
                    f"the judgments of {model!r} are at revision {revision}, but others up to {since} were learned "
                    "before: this is another database, or an older copy of it"
                )
            if since == revision:
                return Changes({}, revision, revision, known)
            if 0 < since < compacted:
                raise DataError(
                    f"judgments of {model!r} were withdrawn and compacted at revision {compacted}, and this model was "
                    f"fitted at revision {since}: fit it again"
                )
            last = execute(
                "SELECT revision FROM kinrank_judgments WHERE model = ? AND revision > ? ORDER BY revision "
                "LIMIT 1 OFFSET ?",
                (model, since, limit - 1),
            )
            through = int(last[0][0]) if last else revision
            rows = execute(
                "SELECT revision, query, source, record FROM kinrank_judgments WHERE model = ? AND query IN "
                "(SELECT query FROM kinrank_judgments WHERE model = ? AND revision > ? AND revision <= ?)",
                (model, model, since, through),
            )
            reached = _mark_of(execute, model, through)
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

    def revision(self, model: str) -> int:
        """Return the latest revision of a model's judgments."""
        return self.position(model)[0]

    def position(self, model: str) -> tuple[int, str]:
        """Return the latest revision of a model's judgments and its mark."""
        with self._reported(StoreUnavailableError), self._transaction(write=False) as execute:
            revision = _revision_of(execute, model)[0]
            return revision, _mark_of(execute, model, revision)

    def delete(self, model: str, *, query: str | None = None, source: str | None = None) -> tuple[int, int]:
        """Withdraw the judgments of a query, of a source, or of a query by a source.

        Returns
        -------
        tuple of int
            The number of rows withdrawn, and the revision without them.
        """
        if query is None and source is None:
            raise DataError("name the query or the source whose judgments are withdrawn")
        named = {"query": query, "source": source}
        wanted = {column: value for column, value in named.items() if value is not None}
        condition = " AND ".join(f"{column} = ?" for column in wanted)
        with self._reported(NotStoredError), self._transaction(write=True) as execute:
            revision = _next_revision(execute, model)
            found = execute(
                "UPDATE kinrank_judgments SET record = NULL, revision = ? WHERE model = ? AND record IS NOT NULL "  # noqa: S608 - column names of our own
                f"AND {condition} RETURNING query",
                (revision, model, *wanted.values()),
            )
            return len(found), revision if found else _undo_revision(execute, model, revision)

    def compact(self, model: str, through: int) -> int:
        """Remove the marks of judgments withdrawn up to a revision, and return how many there were.

        Models that were fitted before that revision are refused afterwards: they may contain such judgments.
        """
        with self._reported(NotStoredError), self._transaction(write=True) as execute:
            revision, compacted = _revision_of(execute, model)
            if not 0 <= through <= revision:
                raise DataError(f"the judgments of {model!r} are at revision {revision}, got {through}")
            removed = execute(
                "DELETE FROM kinrank_judgments WHERE model = ? AND record IS NULL AND revision <= ? RETURNING query",
                (model, through),
            )
            if removed:
                execute("UPDATE kinrank_revisions SET compacted = ? WHERE model = ?", (max(through, compacted), model))
            return len(removed)

    @contextmanager
    def _reported(self, kind: type[NotStoredError] | type[StoreUnavailableError]) -> Iterator[None]:
        """Raise failures of the database as an exception of ours, and let one thread in at a time."""
        with self._lock:
            try:
                yield
            except self.failures as error:
                raise kind(f"the judgment store cannot be used ({_first_line(error)}): try again") from error


def _revision_of(execute: Execute, model: str) -> tuple[int, int]:
    found = execute("SELECT revision, compacted FROM kinrank_revisions WHERE model = ?", (model,))
    return (int(found[0][0]), int(found[0][1])) if found else (0, 0)


def _mark_of(execute: Execute, model: str, revision: int) -> str:
    found = execute("SELECT mark FROM kinrank_marks WHERE model = ? AND revision = ?", (model, revision))
    return str(found[0][0]) if found else ""


def _next_revision(execute: Execute, model: str) -> int:
    """Count up the revision. Its row stays locked until the transaction ends, so changes commit in this order."""
    execute("INSERT INTO kinrank_revisions VALUES (?, 0, 0) ON CONFLICT (model) DO NOTHING", (model,))
    counted = execute(
        "UPDATE kinrank_revisions SET revision = revision + 1 WHERE model = ? RETURNING revision", (model,)
    )
    revision = int(counted[0][0])
    execute("INSERT INTO kinrank_marks VALUES (?, ?, ?)", (model, revision, secrets.token_hex(4)))
    return revision


def _undo_revision(execute: Execute, model: str, revision: int) -> int:
    execute("DELETE FROM kinrank_marks WHERE model = ? AND revision = ?", (model, revision))
    execute("UPDATE kinrank_revisions SET revision = ? WHERE model = ?", (revision - 1, model))
    return revision - 1


def _put(
    execute: Execute, model: str, rows: Sequence[JudgmentRow], revision: int, merge: Callable[[str, str], str]
) -> int:
    """Store rows and return how many of them changed anything."""
    stored = execute(
        f"SELECT query, source, record FROM kinrank_judgments WHERE model = ? AND query IN ({_marks(rows)})",  # noqa: S608
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


def _marks(rows: Sequence[object]) -> str:
    return ", ".join("?" * len(rows))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
