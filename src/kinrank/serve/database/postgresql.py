"""PostgreSQL, for the replicas of a fleet. Needs ``pip install 'kinrank[postgres]'``."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import Any

from kinrank.errors import ParameterError
from kinrank.registry import import_extra
from kinrank.serve.database.base import Database, Execute
from kinrank.serve.database.schema import is_current, migrate

SECONDS = 5.0
"""The longest that connecting, or one transaction, may take."""
_GUARDS = (
    "CREATE OR REPLACE FUNCTION kinrank_audit_guard() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN RAISE EXCEPTION ''kinrank_audit is only added to''; END'",
    "DROP TRIGGER IF EXISTS kinrank_audit_guard ON kinrank_audit",
    "CREATE TRIGGER kinrank_audit_guard BEFORE UPDATE OR DELETE OR TRUNCATE ON kinrank_audit FOR EACH STATEMENT "
    "EXECUTE FUNCTION kinrank_audit_guard()",
)
_PASSWORD = re.compile(r"[a-z]+://[^:/@]*:(.*)@", re.DOTALL)
_SCHEMA_LOCK = 7_271_946  # any number that others are unlikely to use


class PostgresDatabase(Database):
    """A PostgreSQL database. All tables are named ``kinrank_...``.

    Parameters
    ----------
    address
        As psycopg takes it: ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full``. Leave out the
        password and set ``PGPASSWORD`` or ``PGPASSFILE`` to keep it off the command line.
    seconds
        The longest that connecting, or one transaction, may take.
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
            connection = self._psycopg.connect(
                self.address,
                autocommit=True,
                connect_timeout=wait,
                application_name="kinrank",
                cursor_factory=self._psycopg.RawCursor,  # parsing the placeholders of many rows takes long
            )
            try:
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
                migrate(execute, _GUARDS)

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
