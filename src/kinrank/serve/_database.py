"""Where live judgments, and what goes with them, are kept: SQLite on one machine, PostgreSQL for several.

All processes that open the same address share one truth. See `revisions` for how they learn of changes, and `schema`
for the tables.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache, partial
from typing import Any, TypeVar

from kinrank.data.files import redact_passwords
from kinrank.errors import NotStoredError, OtherHistoryError, ParameterError, StoreUnavailableError
from kinrank.registry import Registry, import_extra

# --- what the parts of the service that keep something share: a database, SQLite or PostgreSQL, in SQL common to both -


Execute = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]
"""Runs one statement with ``?`` for each argument, and returns its rows."""


class Database(ABC):
    """A database that several processes open; see `kinrank.serve._database` for its tables.

    An object may be used by several threads; one transaction runs at a time. A lost connection is opened again by the
    next one.
    """

    is_local = False
    """Whether it is on this machine, so that it has the same clock."""

    def __init__(self, address: str) -> None:
        self.address = address
        """Where it is, with its password; see `__str__`."""
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return redact_passwords(self.address)

    @contextmanager
    def reading(self) -> Iterator[Execute]:
        """Run statements on one state of the database. Raise `StoreUnavailableError` if it cannot be reached."""
        with self._reported(StoreUnavailableError), self._transaction(write=False) as execute:
            yield execute

    @contextmanager
    def writing(self) -> Iterator[Execute]:
        """Run statements, all or none; they are durable at the end.

        Raise `NotStoredError` if the database did not confirm them: it may have them or not.
        """
        with self._reported(NotStoredError), self._transaction(write=True) as execute:
            yield execute

    def now(self) -> float:
        """Return the seconds since 1970 by the clock of the database; that of this machine if it is a file."""
        return time.time()

    @abstractmethod
    def _transaction(self, *, write: bool) -> AbstractContextManager[Execute]:
        """Return a context manager that commits at its end and rolls back on an error."""

    @property
    def exists(self) -> bool:
        """Whether there is a database already, as far as that is known before connecting to it."""
        return True

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @property
    @abstractmethod
    def failures(self) -> tuple[type[Exception], ...]:
        """The exceptions by which the database reports that it cannot be used."""

    def is_full(self, error: Exception) -> bool:
        """Return whether the database has no room left on its disk."""
        return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)

    @contextmanager
    def _reported(self, kind: type[NotStoredError] | type[StoreUnavailableError]) -> Iterator[None]:
        """Raise failures of the database as an exception of ours, and let one thread in at a time."""
        with self._lock:
            try:
                yield
            except self.failures as error:
                if self.is_full(error):
                    raise kind(f"the disk of the judgment store is full ({_first_line(error)}): make room") from error
                raise kind(f"the judgment store cannot be used ({_first_line(error)}): try again") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


# --- statements with many values --------------------------------------------------------------------------------------


T = TypeVar("T")
_ROWS = 2_000  # of one statement: SQLite takes 32,766 values, and PostgreSQL 65,535
_INSERTED = 100  # by one statement: a small one is used again, and so prepared only once


def placeholders(values: Sized) -> str:
    """Return a question mark for each value."""
    return ", ".join("?" * len(values))


def row_placeholders(rows: Sequence[Sized]) -> str:
    """Return a question mark for each value of each row.

    Examples
    --------
    >>> row_placeholders([(1, 2), (3, 4)])
    '(?, ?), (?, ?)'
    """
    return ", ".join([f"({placeholders(rows[0])})"] * len(rows)) if rows else ""


def among(columns: str, rows: Sequence[Sequence[Any]]) -> tuple[str, tuple[Any, ...]]:
    """Return a condition that columns have the values of one of the rows, and what it is about.

    The first column is also compared alone: SQLite does not look up rows in an index, and would read the whole table.

    Examples
    --------
    >>> among("query, day", [(7, 1), (7, 2)])
    ('query IN (?) AND (query, day) IN (VALUES (?, ?), (?, ?))', (7, 7, 1, 7, 2))
    """
    first = sorted({row[0] for row in rows})
    condition = (
        f"{columns.partition(',')[0]} IN ({placeholders(first)}) AND ({columns}) IN (VALUES {row_placeholders(rows)})"
    )
    return condition, (*first, *flat(rows))


def flat(rows: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """Return the values of all rows."""
    return tuple(value for row in rows for value in row)


def parts(rows: Sequence[T], most: int = _ROWS) -> Iterator[Sequence[T]]:
    """Yield as many rows as one statement takes."""
    for start in range(0, len(rows), most):
        yield rows[start : start + most]


def insert(execute: Execute, table: str, rows: Sequence[Sequence[Any]], conflict: str = "") -> None:
    """Insert rows; `conflict` is what follows ``ON CONFLICT``."""
    tail = f" ON CONFLICT {conflict}" if conflict else ""
    for some in parts(rows, _INSERTED):
        execute(f"INSERT INTO {table} VALUES {row_placeholders(some)}{tail}", flat(some))  # noqa: S608


# --- revisions and marks, by which processes find out what others have changed ----------------------------------------
#
# A *stream* is a sequence of changes, such as the judgments of a model. Every change gets the next revision of its
# stream. A change is one transaction that locks the revision until it is committed, so revisions become visible in
# order and without gaps: a reader at revision r has seen every change up to r, and no later commit can add one below
# it. Every change also gets a random mark, by which a reader finds out that an older copy of the database was restored.


def revision_of(execute: Execute, stream: str) -> int:
    """Return the latest revision of a stream; 0 before the first change."""
    found = execute("SELECT revision FROM kinrank_revisions WHERE model = ?", (stream,))
    return int(found[0][0]) if found else 0


def mark_of(execute: Execute, stream: str, revision: int) -> str:
    """Return the mark of a revision; empty for 0, and for one whose mark was deleted."""
    found = execute("SELECT mark FROM kinrank_marks WHERE model = ? AND revision = ?", (stream, revision))
    return str(found[0][0]) if found else ""


def next_revision(execute: Execute, stream: str) -> int:
    """Count up the revision. Its row stays locked until the transaction ends, so changes commit in this order."""
    execute("INSERT INTO kinrank_revisions VALUES (?, 0) ON CONFLICT (model) DO NOTHING", (stream,))
    counted = execute(
        "UPDATE kinrank_revisions SET revision = revision + 1 WHERE model = ? RETURNING revision", (stream,)
    )
    revision = int(counted[0][0])
    execute("INSERT INTO kinrank_marks VALUES (?, ?, ?)", (stream, revision, secrets.token_hex(4)))
    return revision


def undo_revision(execute: Execute, stream: str, revision: int) -> int:
    """Take back the revision of this transaction, because nothing changed, and return the one before."""
    execute("DELETE FROM kinrank_marks WHERE model = ? AND revision = ?", (stream, revision))
    execute("UPDATE kinrank_revisions SET revision = ? WHERE model = ?", (revision - 1, stream))
    return revision - 1


def check_history(execute: Execute, stream: str, since: int, mark: str, what: str) -> int:
    """Return the latest revision. Raise `OtherHistoryError` if `since` with this mark is not in its history."""
    revision = revision_of(execute, stream)
    if since > revision or (since and mark and mark_of(execute, stream, since) != mark):
        raise OtherHistoryError(
            f"{what} are at revision {revision}, but others up to {since} were learned before: this is another "
            "database, or an older copy of it"
        )
    return revision


def end_of_page(execute: Execute, table: str, model: str, since: int, revision: int, rows: int) -> int:
    """Return up to which revision the next rows of a model reach, about as many as given; at most `revision`."""
    last = execute(
        f"SELECT revision FROM {table} WHERE model = ? AND revision > ? ORDER BY revision LIMIT 1 OFFSET ?",  # noqa: S608
        (model, since, rows - 1),
    )
    return int(last[0][0]) if last else revision


# --- the tables of the database, and how those of earlier versions are brought up to date -----------------------------


MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE IF NOT EXISTS kinrank_revisions (model TEXT PRIMARY KEY, revision BIGINT NOT NULL)",
        # Which change a revision was: after restoring a copy, other changes get the same numbers.
        "CREATE TABLE IF NOT EXISTS kinrank_marks (model TEXT NOT NULL, revision BIGINT NOT NULL, mark TEXT NOT NULL, "
        "PRIMARY KEY (model, revision))",
        "CREATE TABLE IF NOT EXISTS kinrank_judgments (model TEXT NOT NULL, query TEXT NOT NULL, source TEXT NOT NULL, "
        "revision BIGINT NOT NULL, record TEXT, PRIMARY KEY (model, query, source))",
        "CREATE INDEX IF NOT EXISTS kinrank_judgments_by_revision ON kinrank_judgments (model, revision)",
        # What people were shown and what they clicked, those of it that wait to be counted, and the lists whose order
        # was a draw; see `kinrank.serve._events`.
        "CREATE TABLE IF NOT EXISTS kinrank_lists (list TEXT PRIMARY KEY, model TEXT NOT NULL, query BIGINT NOT NULL, "
        "day BIGINT NOT NULL, client BIGINT NOT NULL, documents TEXT NOT NULL)",
        "CREATE INDEX IF NOT EXISTS kinrank_lists_by_client ON kinrank_lists (client, day)",
        "CREATE TABLE IF NOT EXISTS kinrank_clicks (event TEXT PRIMARY KEY, list TEXT NOT NULL, document TEXT "
        "NOT NULL, value DOUBLE PRECISION NOT NULL, day BIGINT NOT NULL)",
        "CREATE INDEX IF NOT EXISTS kinrank_clicks_by_list ON kinrank_clicks (list)",
        "CREATE TABLE IF NOT EXISTS kinrank_news (list TEXT NOT NULL)",
        "CREATE TABLE IF NOT EXISTS kinrank_pending (model TEXT NOT NULL, query BIGINT NOT NULL, list TEXT NOT NULL)",
        "CREATE INDEX IF NOT EXISTS kinrank_pending_by_query ON kinrank_pending (model, query, list)",
        "CREATE TABLE IF NOT EXISTS kinrank_explored (list TEXT PRIMARY KEY, share DOUBLE PRECISION NOT NULL, "
        "day BIGINT NOT NULL)",
        "CREATE TABLE IF NOT EXISTS kinrank_client_keys (period BIGINT PRIMARY KEY, secret TEXT NOT NULL)",
        # The counts of it; see `kinrank.serve._events.counting`.
        "CREATE TABLE IF NOT EXISTS kinrank_votes (client BIGINT NOT NULL, day BIGINT NOT NULL, model TEXT NOT NULL, "
        "query BIGINT NOT NULL, votes TEXT NOT NULL, PRIMARY KEY (client, day, model, query))",
        "CREATE TABLE IF NOT EXISTS kinrank_counts (model TEXT NOT NULL, query BIGINT NOT NULL, day BIGINT NOT NULL, "
        "cells TEXT NOT NULL, revision BIGINT NOT NULL, PRIMARY KEY (model, query, day))",
        "CREATE INDEX IF NOT EXISTS kinrank_counts_by_revision ON kinrank_counts (model, revision)",
        "CREATE TABLE IF NOT EXISTS kinrank_people (model TEXT NOT NULL, query BIGINT NOT NULL, people TEXT NOT NULL, "
        "asked BIGINT NOT NULL, states TEXT NOT NULL, oldest BIGINT NOT NULL, PRIMARY KEY (model, query))",
        "CREATE INDEX IF NOT EXISTS kinrank_people_by_day ON kinrank_people (oldest)",
        "CREATE TABLE IF NOT EXISTS kinrank_texts (model TEXT NOT NULL, query BIGINT NOT NULL, text TEXT NOT NULL, "
        "PRIMARY KEY (model, query))",
        *(
            f"CREATE INDEX IF NOT EXISTS kinrank_{table}_by_day ON kinrank_{table} (day)"
            for table in ("lists", "clicks", "explored", "votes", "counts")
        ),
    ),
)
"""The statements that lead from one version of the schema to the next. Append only, and nothing that stops processes
of an earlier version of kinrank from working: they share the database while a fleet is upgraded.
"""
_TABLE = "CREATE TABLE IF NOT EXISTS kinrank_schema (name TEXT PRIMARY KEY, version BIGINT NOT NULL)"


def is_current(execute: Execute, *, exists: bool) -> bool:
    """Return whether the database has all tables; then no right to create any is needed."""
    return exists and _version(execute) >= len(MIGRATIONS)  # a later version of kinrank may have been here


def migrate(execute: Execute) -> None:
    """Run the statements that the database lacks. The caller keeps other processes out meanwhile."""
    execute(_TABLE, ())
    for statements in MIGRATIONS[_version(execute) :]:
        for statement in statements:
            execute(statement, ())
    execute(
        "INSERT INTO kinrank_schema VALUES ('kinrank', ?) ON CONFLICT (name) DO UPDATE SET version = excluded.version",
        (len(MIGRATIONS),),
    )


def _version(execute: Execute) -> int:
    stored = execute("SELECT version FROM kinrank_schema WHERE name = 'kinrank'", ())
    return int(stored[0][0]) if stored else 0


_BUSY_SECONDS = 10.0  # to wait for another writer


class SqliteDatabase(Database):
    """A SQLite file with a write-ahead log.

    The file must be on a disk of this machine: SQLite's locks do not work on network file systems.

    The address is ``sqlite:///relative/path`` or ``sqlite:////absolute/path``.
    """

    failures = (sqlite3.Error, OSError)
    is_local = True

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.path = address.removeprefix("sqlite:///")
        if self.path == address or not self.path:
            raise ParameterError(f"a SQLite file is written sqlite:///PATH, got {redact_passwords(address)!r}")
        self._connection: sqlite3.Connection | None = None
        self._pid = 0

    @property
    def exists(self) -> bool:
        """Whether there is such a file; the first connection creates it."""
        return os.path.exists(self.path)

    def is_full(self, error: Exception) -> bool:
        """Return whether there is no room left on the disk."""
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL or super().is_full(error)

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Execute]:
        connection = self._connect()
        connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield lambda statement, arguments: connection.execute(statement, arguments).fetchall()
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _connect(self) -> sqlite3.Connection:
        # A connection must not be used in a forked process.
        if self._connection is None or self._pid != os.getpid():
            created = not self.exists
            os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
            if created:
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            connection: Any = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")  # an acknowledged judgment survives a loss of power
                _migrate(lambda *given: connection.execute(*given).fetchall())
            except BaseException:
                connection.close()
                raise
            self._connection, self._pid = connection, os.getpid()
        return self._connection

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None


def _migrate(execute: Execute) -> None:
    def current() -> bool:
        exists = execute("SELECT 1 FROM sqlite_master WHERE name = 'kinrank_schema'", ())
        return is_current(execute, exists=bool(exists))

    if not current():
        execute("BEGIN IMMEDIATE", ())
        if not current():  # another process may have been faster
            migrate(execute)
        execute("COMMIT", ())


# --- PostgreSQL, for the replicas of a fleet. Needs ``pip install '.[postgres]'`` -------------------------------


SECONDS = 5.0
"""The longest that connecting, or one transaction, may take."""
_PASSWORD = re.compile(r"[a-z]+://[^:/@]*:(.*)@", re.DOTALL)
_SCHEMA_LOCK = 7_271_946  # any number that others are unlikely to use


class PostgresDatabase(Database):
    """A PostgreSQL database. All tables are named ``kinrank_...``.

    The address is as psycopg takes it: ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full``. Leave
    out the password and set ``PGPASSWORD`` or ``PGPASSFILE`` to keep it off the command line. Connecting, or one
    transaction, takes some `seconds` at most. That the server knows, too: it ends the session of a process that was
    stopped, or whose machine is gone, in the middle of a transaction, so that its locks hold up nobody.
    """

    def __init__(self, address: str, seconds: float = SECONDS) -> None:
        super().__init__(address)
        # Such a password is cut at the wrong place, and messages of the database show the rest as a host or a port.
        given = _PASSWORD.match(address)
        if given and (re.search(r"[/?#@\s]", given[1]) or re.search(r"%(?![0-9A-Fa-f]{2})", given[1])):
            raise ParameterError(
                f"{self}: percent-encode special characters in the password (%2F for /, %25 for %), or set PGPASSWORD"
            )
        self._seconds = seconds
        self._psycopg = import_extra("psycopg", "postgres")
        self._connection: Any = None
        self._pid = 0

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """The exceptions by which the database reports that it cannot be used."""
        return (self._psycopg.Error, OSError)

    def now(self) -> float:
        """Return the seconds since 1970 by the clock of the server."""
        with self.reading() as execute:
            return float(execute("SELECT extract(epoch FROM clock_timestamp())", ())[0][0])

    def is_full(self, error: Exception) -> bool:
        """Return whether the server has no room left on its disk."""
        return getattr(error, "sqlstate", None) == "53100" or super().is_full(error)

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Execute]:
        connection = self._connect()
        # The commit of a write waits for the disk even if the database's default says otherwise.
        first = "SET LOCAL synchronous_commit = on" if write else "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
        try:
            with self._bounded(connection), connection.transaction():
                connection.execute(first)
                yield partial(_execute, connection)
        except self._psycopg.Error:
            self._drop()
            raise

    def _connect(self) -> Any:
        # A connection must not be used in a forked process.
        if self._connection is None or self._connection.closed or self._pid != os.getpid():
            wait = max(2, round(self._seconds))
            limit = max(1, round(1000 * self._seconds))
            connection = self._psycopg.connect(
                self.address,
                autocommit=True,
                connect_timeout=wait,
                application_name="kinrank",
                keepalives=1,
                keepalives_idle=wait,
                keepalives_interval=1,
                keepalives_count=wait,
                tcp_user_timeout=1000 * wait,
                cursor_factory=self._psycopg.RawCursor,  # parsing the placeholders of many rows takes long
            )
            try:
                with self._bounded(connection):
                    for name in ("idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout"):
                        connection.execute(f"SET {name} = {limit}")
                self._migrate(connection)
            except BaseException:
                connection.close()
                raise
            self._connection, self._pid = connection, os.getpid()
        return self._connection

    def _migrate(self, connection: Any) -> None:
        execute = partial(_execute, connection)
        with self._bounded(connection), connection.transaction():
            # Two replicas that start at once must not create the tables at once.
            execute("SELECT pg_advisory_xact_lock(?)", (_SCHEMA_LOCK,))
            [(exists,)] = execute("SELECT to_regclass('kinrank_schema') IS NOT NULL", ())
            if not is_current(execute, exists=exists):
                migrate(execute)

    @contextmanager
    def _bounded(self, connection: Any) -> Iterator[None]:
        """Cut the connection if the block takes too long, as when the network drops packets without a word."""
        with socket.socket(fileno=os.dup(connection.fileno())) as wire:
            timer = threading.Timer(self._seconds, _cut, (wire,))
            timer.daemon = True
            timer.start()
            try:
                yield
            finally:
                timer.cancel()

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(self._psycopg.Error, OSError):
                self._connection.close()
        self._connection = None

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._pid == os.getpid():
                self._drop()


def _execute(connection: Any, statement: str, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    cursor = connection.execute(_numbered(statement), arguments)
    rows: list[tuple[Any, ...]] = [] if cursor.description is None else cursor.fetchall()
    return rows


@lru_cache(512)
def _numbered(statement: str) -> str:
    """Return a statement with PostgreSQL's own placeholders.

    Examples
    --------
    >>> _numbered("SELECT ? + ?")
    'SELECT $1 + $2'
    """
    first, *others = statement.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(others, start=1))


def _cut(wire: socket.socket) -> None:
    with suppress(OSError):
        wire.shutdown(socket.SHUT_RDWR)


DATABASES = Registry(
    "judgment store",
    {
        "sqlite": "kinrank.serve._database:SqliteDatabase",
        "postgresql": "kinrank.serve._database:PostgresDatabase",
    },
)


def open_database(address: str) -> Database:
    """Return the database at an address, ``sqlite:///PATH`` or ``postgresql://USER@HOST/DATABASE``.

    Nothing is connected yet: the database may be away when the service starts.

    Examples
    --------
    >>> open_database("judgments.log")
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: judgments must be sqlite:///PATH or postgresql://..., got 'judgments.log'
    """
    scheme, separator, _ = address.partition("://")
    if not separator or scheme not in DATABASES:
        raise ParameterError(f"judgments must be sqlite:///PATH or postgresql://..., got {redact_passwords(address)!r}")
    database: Database = DATABASES[scheme](address)
    return database
