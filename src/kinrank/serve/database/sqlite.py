"""A SQLite file, for the processes of one machine."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kinrank.data.filesystems import redact_passwords
from kinrank.errors import ParameterError
from kinrank.serve.database.base import Database, Execute
from kinrank.serve.database.schema import is_current, migrate

_BUSY_SECONDS = 10.0  # to wait for another writer
_GUARDS = [
    f"CREATE TRIGGER IF NOT EXISTS kinrank_audit_{change} BEFORE {change} ON kinrank_audit BEGIN "
    "SELECT RAISE(ABORT, 'kinrank_audit is only added to'); END"
    for change in ("update", "delete")
]


class SqliteDatabase(Database):
    """A SQLite file with a write-ahead log.

    The file must be on a disk of this machine: SQLite's locks do not work on network file systems.

    Parameters
    ----------
    address
        ``sqlite:///relative/path`` or ``sqlite:////absolute/path``.
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
            migrate(execute, _GUARDS)
        execute("COMMIT", ())
