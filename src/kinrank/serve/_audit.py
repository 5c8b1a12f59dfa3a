"""What changed what is ranked, when, and who did it: a table that is only ever added to."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import astuple, dataclass
from uuid import uuid4

from kinrank.errors import UnsupportedByModelError
from kinrank.serve._database import Database, Execute, insert, open_database

ACTOR: ContextVar[str] = ContextVar("actor", default="")
"""Who acts: the name of the key of a request, or of the user of a command."""
ENDED = "none"
"""The detail of an entry that says that something is there no more."""
_LONGEST = 500  # characters of a detail


@dataclass(frozen=True)
class AuditEntry:
    """Something that changed what is ranked.

    Attributes
    ----------
    time : float
        When, in seconds since 1970.
    actor : str
        The name of the key, or of the user of a command; for models and keys, the machine that noticed.
    action : str
        What was done: ``judged``, ``withdrew``, ``added rule``, ``removed rule``, ``reloaded``,
        ``forgot``; or what changed: ``model``, ``key``.
    subject : str
        What it was done to: the name of a model or of a key, or the number of a rule.
    detail : str
        More, in words; for a model its version, for a key its role, or ``none``.
    """

    time: float
    actor: str
    action: str
    subject: str
    detail: str


def record(execute: Execute, action: str, subject: str, detail: str) -> None:
    """Add an entry, in the transaction of the change that it reports."""
    now = round(time.time(), 6)  # as a date shows it, so that it can be asked for
    entry = AuditEntry(now, ACTOR.get(), action, subject, detail[:_LONGEST])
    insert(execute, "kinrank_audit", [(uuid4().hex, *astuple(entry))])


class AuditLog:
    """The entries in the database of the judgments. Without an address, nothing is recorded.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = AuditLog(f"sqlite:///{folder}/judgments.db")
    ...     log.follow("key", {"web": "query", "ops": "admin"})
    ...     log.follow("key", {"web": "query"})
    ...     found = log.read()
    ...     log.close()
    >>> [(entry.subject, entry.detail) for entry in found]
    [('ops', 'none'), ('ops', 'admin'), ('web', 'query')]
    """

    def __init__(self, address: str | None) -> None:
        self._database = None if address is None else open_database(address)
        self._followed: dict[str, dict[str, str]] = {}
        self.watched: dict[str, Callable[[], Mapping[str, str]]] = {}
        """Functions that return what is in use, by what it is: the models by name, the keys by name."""

    @property
    def database(self) -> Database:
        """Where the entries are. Raise `UnsupportedByModelError` without a database."""
        if self._database is None:
            raise UnsupportedByModelError("this service has no audit log: start it with --judgments")
        return self._database

    def read(self, *, limit: int = 100, before: float | None = None) -> list[AuditEntry]:
        """Return the latest entries, or the latest before a time, the newest first."""
        condition, arguments = ("", ()) if before is None else (" WHERE time < ?", (before,))
        with self.database.reading() as execute:
            rows = execute(
                f"SELECT time, actor, action, subject, detail FROM kinrank_audit{condition} "  # noqa: S608
                "ORDER BY time DESC, entry DESC LIMIT ?",
                (*arguments, limit),
            )
        return [AuditEntry(*row) for row in rows]

    def record(self, action: str, subject: str, detail: str) -> None:
        """Add an entry by itself; nothing without a database."""
        if self._database is not None:
            with self._database.writing() as execute:
                record(execute, action, subject, detail)

    def check(self) -> None:
        """Record what changed of everything that is watched."""
        for action, state in self.watched.items():
            self.follow(action, state())

    def follow(self, action: str, state: Mapping[str, str]) -> None:
        """Record how a state differs from the recorded one, such as the version of each model by name.

        Replicas that find the same change record it once.
        """
        now = dict(state)
        if self._followed.get(action) == now:
            return
        known = self.latest(action)
        ended = {subject: ENDED for subject, detail in known.items() if detail != ENDED and subject not in now}
        actor = ACTOR.set(ACTOR.get() or socket.gethostname())
        try:
            for subject, detail in (now | ended).items():
                if known.get(subject) != detail:
                    self.record(action, subject, detail)
        finally:
            ACTOR.reset(actor)
        self._followed[action] = now

    def latest(self, action: str) -> dict[str, str]:
        """Return the latest detail of each subject of an action, such as the version of each model in use."""
        with self.database.reading() as execute:
            rows = execute(
                "SELECT subject, detail FROM kinrank_audit WHERE action = ? ORDER BY time, entry",
                (action,),
            )
        return dict(rows)

    def close(self) -> None:
        """Close the connection."""
        if self._database is not None:
            self._database.close()
