"""The ledger in a SQLite file, which several processes of one machine can share."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kinrank.errors import ForeignFolderError, StoreError
from kinrank.memory.ledger._base import Execute, Ledger, folder_of

_SECONDS = 10.0  # to wait for another writer


class SqliteLedger(Ledger):
    """Votes in a file, or in main memory if the path is ``":memory:"``.

    The file must be on a disk of this machine: SQLite's locks do not work on network file systems.
    """

    types = {"bytes": "BLOB"}  # noqa: RUF012

    def __init__(self, path: str, folder: str | os.PathLike[str] | None) -> None:
        in_file = path != ":memory:"
        super().__init__(path, folder_of(f"{path}-kept" if folder is None and in_file else folder))
        self._read_lock = threading.RLock()
        self._write_lock = threading.RLock() if in_file else self._read_lock
        try:
            self._reader = _connected(path)
            tables = {name for (name,) in self._reader.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables and "memory_setting" not in tables:
                raise ForeignFolderError(f"{path} is a database of something else: pass another file")
            # An open file is not written to, so that this does not wait for another process that writes.
            if not self._prepare(lambda *given: _rows(self._reader, *given), bool(tables)):
                with suppress(sqlite3.OperationalError):  # another process is just setting it, or it is in main memory
                    self._reader.execute("PRAGMA journal_mode = WAL")
                self._reader.execute("BEGIN IMMEDIATE")
                self._migrate(lambda *given: _rows(self._reader, *given))
                self._reader.execute("COMMIT")
            self._writer = _connected(path) if in_file else self._reader
            self._writer.execute("PRAGMA synchronous = FULL")  # an acknowledged vote survives a loss of power
            self._writer.execute("PRAGMA secure_delete = ON")
        except sqlite3.Error as error:
            raise StoreError(
                f"{path} cannot be opened as a memory ({error}): pass a path that can be written"
            ) from error
        if in_file:
            self.recover()

    @contextmanager
    def reading(self) -> Iterator[Execute]:
        """Run statements on one state of the file, which never waits for those who write."""
        with self._read_lock, self._transaction(self._reader, "BEGIN"):
            yield lambda *given: _rows(self._reader, *given)

    @contextmanager
    def writing(self) -> Iterator[Execute]:
        """Run statements, all or none; they are on the disk at the end."""
        with self._write_lock, self._transaction(self._writer, "BEGIN IMMEDIATE"):
            yield lambda *given: _rows(self._writer, *given)

    def version(self) -> object:
        """Return a value that changes with the file."""
        try:
            with self._read_lock:
                return self._reader.execute("PRAGMA data_version").fetchone()[0], self._reader.total_changes
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def iterate(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement, which may be many, inside of `reading`."""
        return iter(self._reader.execute(statement, values))

    def size(self) -> int:
        """Return the number of bytes of the file."""
        with self.reading() as execute:
            [(pages,)], [(size,)] = execute("PRAGMA page_count"), execute("PRAGMA page_size")
        return int(pages * size)

    def cleaned(self) -> None:
        """Remove what was deleted from the write-ahead log, too."""
        with suppress(sqlite3.Error), self._write_lock:
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the file, after the calls that are under way in other threads."""
        with self._read_lock, self._write_lock:
            self._writer.close()
            self._reader.close()

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection, begin: str) -> Iterator[None]:
        try:
            connection.execute(begin)
            try:
                yield
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error) from error


def _connected(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_SECONDS, isolation_level=None, check_same_thread=False)


def _rows(connection: sqlite3.Connection, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    return connection.execute(statement, values).fetchall()
