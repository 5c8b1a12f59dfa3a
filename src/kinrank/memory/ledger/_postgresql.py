"""The ledger in a PostgreSQL database, for the replicas of a fleet. Needs ``pip install 'kinrank[postgres]'``."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, ClassVar

from kinrank.data.files import redact_passwords
from kinrank.errors import StoreError
from kinrank.memory.ledger._base import Execute, Ledger, folder_of
from kinrank.registry import import_extra

_SECONDS = 5  # that connecting may take, and until a silent connection is given up
_STATEMENT_SECONDS = 15  # that one statement may take
_LOCK_SECONDS = 10  # to wait for others who write
_IDLE_SECONDS = 5  # after which the server ends a transaction whose client was stopped, so that others get their turn
_MIGRATION_LOCK = 7_271_947  # any number that others are unlikely to use


class PostgresLedger(Ledger):
    """Votes in a PostgreSQL database; all tables are named ``memory_...``.

    All objects of one address share two connections in a process; see `shared`. The address is as psycopg takes it,
    such as ``postgresql://USER@HOST:PORT/DATABASE?sslmode=verify-full``; set ``PGPASSWORD`` or ``PGPASSFILE``.
    """

    types = {"bytes": "BYTEA"}  # noqa: RUF012
    polls = True
    _shared: ClassVar[dict[tuple[int, str, str], PostgresLedger]] = {}
    _opening: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def shared(cls, address: str, folder: str | os.PathLike[str] | None) -> PostgresLedger:
        """Return the object of an address in this process. It closes when all who asked for it have closed it."""
        name = os.getpid(), address, "" if folder is None else os.fspath(folder)
        with cls._opening:
            found = cls._shared.get(name)
            if found is None:
                found = cls._shared[name] = cls(address, folder)
            found._users += 1
            return found

    def __init__(self, address: str, folder: str | os.PathLike[str] | None) -> None:
        super().__init__(address, folder_of(folder))
        self._users = 0
        self._psycopg = import_extra("psycopg", "postgres")
        self._reader, self._writer = _Connection(self), _Connection(self)
        try:
            self._open()
        except BaseException:
            self._drop()
            raise

    def _open(self) -> None:
        with self._transaction(self._writer) as connection:
            # Two processes that start at once must not create the tables at once. They take what time they take.
            connection.execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")
            execute = _executes(connection)
            execute("SELECT pg_advisory_xact_lock(?)", _MIGRATION_LOCK)
            [(exists,)] = execute("SELECT to_regclass('memory_setting') IS NOT NULL")
            if not self._prepare(execute, exists):
                self._migrate(execute)
        self.recover()

    @contextmanager
    def reading(self) -> Iterator[Execute]:
        """Run statements on one state of the database, which never waits for those who write."""
        with self._transaction(self._reader) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield _executes(connection)

    @contextmanager
    def writing(self) -> Iterator[Execute]:
        """Run statements, all or none; they are on the disk of the server at the end."""
        with self._transaction(self._writer) as connection:
            yield _executes(connection)

    def version(self) -> object:
        """Return a value that differs each time: it takes a request to know more."""
        return object()

    def iterate(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement, which may be many, inside of `reading`: by a cursor of the server."""
        with self._reader.connection.cursor(name="kinrank", binary=True) as cursor:
            cursor.itersize = 20_000
            cursor.execute(statement.replace("?", "%s"), values)
            yield from cursor

    def size(self) -> int:
        """Return the number of bytes of the tables with their indexes."""
        with self.reading() as execute:
            [(size,)] = execute(
                "SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class "
                "WHERE relkind = 'r' AND starts_with(relname, 'memory_')"
            )
        return int(size)

    def close(self) -> None:
        """Close both connections if nobody else in this process uses them."""
        with self._opening:
            self._users -= 1
            if self._users > 0:
                return
            for name in [name for name, ledger in self._shared.items() if ledger is self]:
                del self._shared[name]
        self._drop()

    def _drop(self) -> None:
        for each in (self._reader, self._writer):
            with each.lock:
                each.drop()
                each.closed = True

    @contextmanager
    def _transaction(self, slot: _Connection) -> Iterator[Any]:
        try:
            with slot.lock, ExitStack() as transaction:
                try:
                    try:
                        transaction.enter_context(slot.connected().transaction())
                    except self._psycopg.OperationalError:  # it was lost since the last time: nothing has happened yet
                        slot.drop()
                        transaction.enter_context(slot.connected().transaction())
                    yield slot.connection
                    transaction.close()
                except (self._psycopg.OperationalError, OSError):
                    slot.drop()
                    raise
        except (self._psycopg.Error, OSError) as error:
            raise self._failed(error) from error

    def __str__(self) -> str:
        return redact_passwords(self.address)


class _Connection:
    """A connection that is made again if it was lost."""

    def __init__(self, ledger: PostgresLedger) -> None:
        self._ledger = ledger
        self.lock = threading.RLock()
        self.connection: Any = None
        self.closed = False

    def connected(self) -> Any:
        """Return the connection, which may have been lost since it was used."""
        if self.closed:
            raise StoreError(f"{self._ledger}: this memory is closed: open it again")
        if self.connection is None:
            self.connection = self._connect()
        return self.connection

    def _connect(self) -> Any:
        connection = self._ledger._psycopg.connect(
            self._ledger.address,
            autocommit=True,
            connect_timeout=_SECONDS,
            application_name="kinrank",
            keepalives=1,
            keepalives_idle=_SECONDS,
            keepalives_interval=1,
            keepalives_count=_SECONDS,
            tcp_user_timeout=1000 * _SECONDS,
        )
        for name, value in (
            ("statement_timeout", f"{_STATEMENT_SECONDS}s"),
            ("lock_timeout", f"{_LOCK_SECONDS}s"),
            ("idle_in_transaction_session_timeout", f"{_IDLE_SECONDS}s"),
            ("synchronous_commit", "on"),
        ):
            connection.execute(f"SET {name} = '{value}'")
        return connection

    def drop(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            with suppress(self._ledger._psycopg.Error, OSError):
                self.connection.close()
        self.connection = None


def _executes(connection: Any) -> Execute:
    def execute(statement: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = connection.execute(statement.replace("?", "%s"), values or None)
        rows: list[tuple[Any, ...]] = [] if cursor.description is None else cursor.fetchall()
        return rows

    return execute
