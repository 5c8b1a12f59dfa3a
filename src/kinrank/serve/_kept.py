"""A copy of the last rules and judgments on this machine, for a start while their database is away."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from kinrank.serve._judgments import Changes, JudgmentRow
from kinrank.serve._rules import Action, Rule

_TABLES = (
    "CREATE TABLE IF NOT EXISTS rules (place INTEGER PRIMARY KEY, rules TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS models (model TEXT PRIMARY KEY, since INTEGER NOT NULL, revision INTEGER NOT NULL, "
    "mark TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS judgments (model TEXT NOT NULL, query TEXT NOT NULL, source TEXT NOT NULL, "
    "record TEXT, place INTEGER NOT NULL, through INTEGER NOT NULL, PRIMARY KEY (model, query, source))",
)
_BUSY_SECONDS = 2.0
T = TypeVar("T")


class KeptCopy:
    """Rules and judgments of one database in a SQLite file, which the processes of a machine share.

    Whatever happens to the file, the service goes on; without a folder, nothing is kept.

    `on_error` is called when the file cannot be used, once until it can.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None, address: str | None, on_error: Callable[[Exception], None]
    ) -> None:
        own = hashlib.sha256((address or "").encode()).hexdigest()[:12]
        self._file = None if folder is None or address is None else Path(folder) / f"kept-{own}.db"
        self._on_error = on_error
        self._lock = threading.Lock()
        self._failed = False

    def keep_rules(self, rules: Sequence[Rule]) -> None:
        """Write all rules that hold."""
        text = json.dumps([asdict(rule) for rule in rules])
        self._run(lambda connection: connection.execute("INSERT OR REPLACE INTO rules VALUES (0, ?)", (text,)))

    def rules(self) -> list[Rule] | None:
        """Return the rules that were kept last; None if none ever were."""

        def read(connection: sqlite3.Connection) -> list[Rule] | None:
            found = connection.execute("SELECT rules FROM rules").fetchone()
            rules = [] if found is None else json.loads(found[0])
            return None if found is None else [Rule(**{**rule, "action": Action(rule["action"])}) for rule in rules]

        return self._run(read, create=False)

    def keep_judgments(self, model: str, since: int, changes: Changes) -> None:
        """Add changed judgments of a model after a revision."""

        def write(connection: sqlite3.Connection) -> None:
            known = connection.execute("SELECT revision FROM models WHERE model = ?", (model,)).fetchone()
            if known is None or known[0] < since:  # what was changed between is not known
                _forget(connection, model)
                connection.execute("INSERT INTO models VALUES (?, ?, ?, '')", (model, since, since))
            rows = [
                (model, *row, place, changes.through)
                for rows in changes.queries.values()
                for place, row in enumerate(rows)
            ]
            connection.executemany(
                "INSERT INTO judgments VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET record = excluded.record, "
                "place = excluded.place, through = excluded.through WHERE excluded.through >= judgments.through",
                rows,
            )
            connection.execute(
                "UPDATE models SET revision = ?, mark = ? WHERE model = ? AND revision <= ?",
                (changes.through, changes.mark, model, changes.through),
            )

        self._run(write)

    def judgments(self, model: str, since: int) -> Changes | None:
        """Return the judgments of a model that were changed after a revision; None if that is not known."""

        def read(connection: sqlite3.Connection) -> Changes | None:
            wanted = "SELECT revision, mark FROM models WHERE model = ? AND since <= ? AND revision >= ?"
            found = connection.execute(wanted, (model, since, since)).fetchone()
            if found is None:
                return None
            changed = connection.execute(
                "SELECT query, source, record FROM judgments WHERE model = ? AND query IN (SELECT query FROM judgments "
                "WHERE model = ? AND through > ?) ORDER BY query, place",
                (model, model, since),
            )
            queries: dict[str, list[JudgmentRow]] = {}
            for row in changed:
                queries.setdefault(row[0], []).append(JudgmentRow(*row))
            return Changes(queries, found[0], found[0], found[1])

        return self._run(read, create=False)

    def forget_judgments(self, model: str) -> None:
        """Delete the judgments of a model, because those of the database have another history."""
        self._run(lambda connection: _forget(connection, model), create=False)

    def _run(self, action: Callable[[sqlite3.Connection], T], *, create: bool = True) -> T | None:
        """Return the result of an action in a transaction; None if there is no file, or it cannot be used."""
        if self._file is None or not (create or self._file.exists()):
            return None
        with self._lock:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(self._file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
                with closing(sqlite3.connect(self._file, timeout=_BUSY_SECONDS)) as connection, connection:
                    for table in _TABLES:
                        connection.execute(table)
                    result = action(connection)
            except (sqlite3.Error, OSError, ValueError, TypeError, KeyError) as error:
                if not self._failed:
                    self._on_error(error)
                self._failed = True
                return None
            self._failed = False
            return result


def _forget(connection: sqlite3.Connection, model: str) -> None:
    for table in ("judgments", "models"):
        connection.execute(f"DELETE FROM {table} WHERE model = ?", (model,))  # noqa: S608
