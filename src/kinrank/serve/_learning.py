"""Keep a model up to date with the judgments in a store, or in a copy of them on this machine while it is away."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from kinrank.errors import DataError, OtherHistoryError
from kinrank.rankers.base import Ranker
from kinrank.rankers.capabilities import can_adapt
from kinrank.serve._judgments import Changes, JudgmentRow, JudgmentStore, Learned, learn, make_entries, merge_records
from kinrank.serve._served_model import Follower, ServedModel, warm_up
from kinrank.serve._sources import Checkpoints
from kinrank.serve.messages import JudgedQuery, Observer

# --- a copy of the last judgments, for a start while their database is away -------------------------------------------


_TABLES = (
    "CREATE TABLE IF NOT EXISTS models (model TEXT PRIMARY KEY, since INTEGER NOT NULL, revision INTEGER NOT NULL, "
    "mark TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS judgments (model TEXT NOT NULL, query TEXT NOT NULL, source TEXT NOT NULL, "
    "record TEXT, place INTEGER NOT NULL, through INTEGER NOT NULL, PRIMARY KEY (model, query, source))",
)
_BUSY_SECONDS = 2.0
T = TypeVar("T")


class KeptCopy:
    """Judgments of one database in a SQLite file, which the processes of a machine share.

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
            except (sqlite3.Error, OSError) as error:
                if not self._failed:
                    self._on_error(error)
                self._failed = True
                return None
            self._failed = False
            return result


def _forget(connection: sqlite3.Connection, model: str) -> None:
    for table in ("judgments", "models"):
        connection.execute(f"DELETE FROM {table} WHERE model = ?", (model,))  # noqa: S608


# --- the judgments of one model ---------------------------------------------------------------------------------------


CHECKPOINT_QUERIES, CHECKPOINT_SHARE = 10_000, 0.05
"""A checkpoint is written when so many queries, and this share of all, were learned since the last one."""


class JudgmentLearner(Follower):
    """Learns the judgments of one model from a store that other processes write to as well.

    It learns from a copy on this machine while the store is away.
    """

    what = "judgments"

    def __init__(
        self,
        name: str,
        store: JudgmentStore,
        observer: Observer,
        checkpoints: Checkpoints,
        kept: KeptCopy | None = None,
    ) -> None:
        super().__init__(name, observer)
        self._kept = kept
        self.known = False
        """Whether the judgments were read, from the store, a checkpoint or the copy."""
        self._store = store
        self._checkpoints = checkpoints
        self._writer: threading.Thread | None = None
        self._consolidated_at = 0

    def store(self, served: ServedModel, queries: Sequence[JudgedQuery], source: str) -> int:
        """Store judged queries durably, all or none, and return the revision that has them."""
        entries = make_entries(served.ranker, served.base, served.fitted, queries)
        rows = [JudgmentRow(entry.judged.qid, source, entry.dump()) for entry in entries]
        return self._store.append(self._name, rows, merge_records)

    def withdraw(self, qid: str | None, source: str | None) -> tuple[int, int]:
        """Withdraw judgments; see `JudgmentStore.delete`."""
        return self._store.delete(self._name, query=qid, source=source)

    def starting_revision(self, base: Ranker) -> int | None:
        """Return the revision that a model, as it was fitted, has learned; None if it cannot learn."""
        return (base.judgments_through_ or 0) if can_adapt(base) else None

    def update(self, served: ServedModel) -> ServedModel:
        """Return the model with all judgments in the store, or unchanged if that fails; the next call retries."""
        if served.revision is None:
            self.known = True
            return served
        resumed = served
        try:
            resumed = self._resumed(served)
            try:
                updated = self._learn(resumed)
            except OtherHistoryError as error:
                updated = self._relearn(served, error)
            if served.ranker is served.base and updated.ranker is not served.base:
                warm_up(updated.ranker, None)  # code differs for arrays that were read and arrays that grew
        except Exception as error:  # a store that is away, or checkpoints of others, must not stop a good model
            self._report(served, error)
            self.known = self.known or resumed is not served
            return self._from_copy(max(served, resumed, key=lambda model: model.revision or 0))
        self.failure, self.known = None, True
        self._consolidate(updated)
        return updated

    def _from_copy(self, served: ServedModel) -> ServedModel:
        """Return a model with the judgments of the copy, as far as it has not learned them."""
        known = served.revision or 0
        changes = None if self._kept is None else self._kept.judgments(self._name, known)
        if changes is None:
            return served
        try:
            if changes.through > known:
                served = self._with(served, learn(served.ranker, [changes], served.base, served.fitted))
        except DataError as error:
            self._observer.error("kept", error)
            return served
        self.known = True
        return served

    def _resumed(self, served: ServedModel) -> ServedModel:
        """Return the model as of the latest checkpoint, if it has yet to learn anything, or one has just been written.

        Its judgments are in memory-mapped arrays that all processes share, and its points are indexed.
        """
        fresh = served.judgments == 0
        written = self._writer is not None and not self._writer.is_alive()
        if not (fresh or written):
            return served
        since = served if fresh else replace(served, revision=self._consolidated_at)
        resumed = self._checkpoints.latest(self._name, since) or served
        self._writer, self._consolidated_at = None, 0 if resumed is served else (resumed.revision or 0)
        return resumed

    def _consolidate(self, served: ServedModel) -> None:
        """Start to write a checkpoint if enough was learned since the last one; `_resumed` takes it up."""
        enough = max(CHECKPOINT_QUERIES, CHECKPOINT_SHARE * (served.judged_queries or 0))
        if self._writer is not None or served.judgments - served.consolidated < enough:
            return
        self._writer = threading.Thread(target=self._write, args=(served,), name="checkpoint", daemon=True)
        self._writer.start()

    def _write(self, served: ServedModel) -> None:
        try:
            self._checkpoints.write(self._name, served)
        except Exception as error:  # a full disk must not stop learning
            self._observer.error("checkpoint", error)

    def _relearn(self, served: ServedModel, error: OtherHistoryError) -> ServedModel:
        """Return the fitted model with the judgments that the store has now."""
        fitted = replace(
            served,
            ranker=served.base,
            revision=self.starting_revision(served.base),
            mark="",
            judgments=0,
            consolidated=0,
        )
        if self._kept is not None:
            self._kept.forget_judgments(self._name)
        updated = self._learn(fitted)
        self._checkpoints.discard(self._name)
        self._writer, self._consolidated_at = None, 0
        self._observer.model(self._name, served.fitted, "relearned", f"{error}; all were learned anew")
        return updated

    def _learn(self, served: ServedModel) -> ServedModel:
        known = served.revision or 0
        if (known, served.mark) == self._store.position(self._name):
            return served
        pages = self._copied(self._store.pages(self._name, known, served.mark), known)
        return self._with(served, learn(served.ranker, pages, served.base, served.fitted))

    def _copied(self, pages: Iterable[Changes], since: int) -> Iterator[Changes]:
        """Yield changes, and keep a copy of them."""
        for page in pages:
            if self._kept is not None:
                self._kept.keep_judgments(self._name, since, page)
            since = page.through
            yield page

    def _with(self, served: ServedModel, result: Learned) -> ServedModel:
        """Return a model with what was learned, and report that."""
        if result.learned or result.skipped:
            detail = f"{result.learned} judged queries" + (f", {result.skipped} skipped" if result.skipped else "")
            self._observer.model(self._name, served.fitted, "learned", detail)
        judgments = served.judgments + result.learned
        return replace(served, ranker=result.ranker, revision=result.revision, mark=result.mark, judgments=judgments)
