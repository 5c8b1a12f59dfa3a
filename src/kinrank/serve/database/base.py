"""What the parts of the service that keep something share: a database, SQLite or PostgreSQL, in SQL common to both."""

from __future__ import annotations

import errno
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from kinrank.data.filesystems import redact_passwords
from kinrank.errors import NotStoredError, StoreUnavailableError

Execute = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]
"""Runs one statement with ``?`` for each argument, and returns its rows."""


class Database(ABC):
    """A database that several processes open; see `kinrank.serve.database.schema` for its tables.

    An object may be used by several threads; one transaction runs at a time. A lost connection is opened again by the
    next one.

    Parameters
    ----------
    address
        Where the database is; see `kinrank.serve.database.open_database`.
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
