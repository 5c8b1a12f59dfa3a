"""Live judgments in a database that all replicas share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kinrank.errors import DataError
from kinrank.serve.audit import record
from kinrank.serve.database import Database, Execute, open_database
from kinrank.serve.database.revisions import (
    check_history,
    end_of_page,
    mark_of,
    next_revision,
    revision_of,
    undo_revision,
)
from kinrank.serve.database.rows import placeholders

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


class JudgmentStore:
    """Judgments of several models, one row for each query and source.

    The judgments of a model are a stream of changes; see `kinrank.serve.database.revisions`.

    Parameters
    ----------
    database
        Where they are.

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
        with self.database.writing() as execute:
            revision = next_revision(execute, model)
            parts = [rows[start : start + _PAGE] for start in range(0, len(rows), _PAGE)]
            changed = sum(_put(execute, model, part, revision, merge) for part in parts)
            if not changed:
                return undo_revision(execute, model, revision)
            record(execute, "judged", model, f"revision {revision}: {_named(rows)}")
            return revision

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
        with self.database.reading() as execute:
            revision = check_history(execute, model, since, mark, f"the judgments of {model!r}")
            if since == revision:
                return Changes({}, revision, revision, mark_of(execute, model, since))
            compacted = revision_of(execute, model)[1]
            if 0 < since < compacted:
                raise DataError(
                    f"judgments of {model!r} were withdrawn and compacted at revision {compacted}, and this model was "
                    f"fitted at revision {since}: fit it again"
                )
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

    def revision(self, model: str) -> int:
        """Return the latest revision of a model's judgments."""
        return self.position(model)[0]

    def position(self, model: str) -> tuple[int, str]:
        """Return the latest revision of a model's judgments and its mark."""
        with self.database.reading() as execute:
            revision = revision_of(execute, model)[0]
            return revision, mark_of(execute, model, revision)

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
        with self.database.writing() as execute:
            revision = next_revision(execute, model)
            found = execute(
                "UPDATE kinrank_judgments SET record = NULL, revision = ? WHERE model = ? AND record IS NOT NULL "  # noqa: S608 - column names of our own
                f"AND {condition} RETURNING query",
                (revision, model, *wanted.values()),
            )
            if not found:
                return 0, undo_revision(execute, model, revision)
            what = ", ".join(f"{column} {value!r}" for column, value in wanted.items())
            record(execute, "withdrew", model, f"revision {revision}: {what}, {len(found)} in all")
            return len(found), revision

    def compact(self, model: str, through: int) -> int:
        """Remove the marks of judgments withdrawn up to a revision, and return how many there were.

        Models that were fitted before that revision are refused afterwards: they may contain such judgments.
        """
        with self.database.writing() as execute:
            revision, compacted = revision_of(execute, model)
            if not 0 <= through <= revision:
                raise DataError(f"the judgments of {model!r} are at revision {revision}, got {through}")
            removed = execute(
                "DELETE FROM kinrank_judgments WHERE model = ? AND record IS NULL AND revision <= ? RETURNING query",
                (model, through),
            )
            if removed:
                execute("UPDATE kinrank_revisions SET compacted = ? WHERE model = ?", (max(through, compacted), model))
                record(execute, "compacted", model, f"{len(removed)} marks up to revision {through}")
            return len(removed)


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


def _named(rows: Sequence[JudgmentRow]) -> str:
    """Return which queries were judged and by whom, in words."""
    sources = sorted({row.source for row in rows})
    by = f" by {', '.join(map(repr, sources))}" if any(sources) else ""
    first = ", ".join(repr(row.query[:50]) for row in rows[:5])
    return f"{first}{f' and {len(rows) - 5} more' if len(rows) > 5 else ''}{by}"


def open_store(address: str) -> JudgmentStore:
    """Return the judgments in the database at an address; see `kinrank.serve.database.open_database`."""
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
