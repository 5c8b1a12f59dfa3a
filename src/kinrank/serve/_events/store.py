"""Lists and clicks in the database, and the counts of them."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from kinrank.memory._votes import RankCurve
from kinrank.serve._database import (
    Database,
    Execute,
    check_history,
    end_of_page,
    insert,
    mark_of,
    next_revision,
    parts,
    placeholders,
    undo_revision,
)
from kinrank.serve._events.counting import UNIT, People, Tally, VoteKey, take, take_of


class ListRecord(NamedTuple):
    """A list that someone was shown. Queries and clients are hashes."""

    list: str
    """The UBI ``query_id``."""
    model: str
    query: int
    day: int
    """Days since 1970."""
    client: int
    documents: str
    """JSON array of document ids, best first."""


class ClickRecord(NamedTuple):
    """A document that someone chose from a list."""

    event: str
    """Identifies the event among those of all clients: the same one again is not stored."""
    list: str
    document: str
    value: float
    day: int
    """When it was received."""


STREAM = "/evidence"
"""The stream of revisions; no model has such a name."""
PERIOD = 30
"""Days that the clients are hashed by the same key."""
_LISTS = 2_000  # that are counted in one transaction, at most
_SHARE = 200  # of them of one query, if others wait
_SECONDS = 0.25  # that a transaction should take
_ALONE = 10  # queries that are counted one by one in a step, because one of them may be the cause of a failure
_RETRY = 1.0, 300.0  # seconds until a query that was set aside is tried again, first and last
_PAGE = 5_000  # changed queries and days that are read at a time
_MARKS = 10_000  # that are kept; a reader that is further behind reads everything
_DELETED = 2_000  # rows that expire in one transaction
_COUNTED = 100_000  # lists that wait are counted up to this number


class CellRow(NamedTuple):
    """The evidence of a query, a document and a day."""

    query: int
    document: str
    day: int
    looks: float
    choices: float
    few: bool
    """Whether too few clients chose the document of the query, so that it may fall but not be lifted."""


class _CellChanges(NamedTuple):
    """Changed cells, with their new values; see `kinrank.serve._judgments.Changes` for the other fields."""

    cells: list[CellRow]
    through: int
    revision: int
    mark: str


class _SetAside(NamedTuple):
    """A query whose lists cannot be counted for now."""

    error: Exception
    pause: float
    """Seconds until it is tried again."""
    until: float
    """When that is, by `time.monotonic`."""


class EventStore:
    """Lists, clicks and counts of several models.

    Lists and clicks are stored as they come in, each once, and wait to be counted. `count` counts a bounded number of
    them in one transaction. What a client said of a query on a day is computed from its own lists, and replaces what it
    had said before, so nothing can count twice, in whatever order and how often events arrive.
    """

    def __init__(self, database: Database, min_clients: int) -> None:
        self.database = database
        self.min_clients = min_clients
        self.aside: dict[tuple[str, int], _SetAside] = {}
        """Models and queries that cannot be counted for now."""
        self.unknown = 0
        """Lists that were clicked, but were not known when their clicks were to be counted."""
        self._most = _SHARE  # as many as there is time for, once that is known
        self._places: dict[str, int | None] = {}
        self._doubtful: dict[tuple[str, int], None] = {}

    def add(
        self,
        lists: Sequence[ListRecord],
        clicks: Sequence[ClickRecord],
        explored: Sequence[tuple[str, float, int]] = (),
    ) -> None:
        """Store lists and clicks, all or none, but for those that are stored already; they are durable then.

        `explored` are the lists that explored, the share of lists that do, and their day.
        """
        with self.database.writing() as execute:
            # In one order, so that two processes do not wait for each other.
            insert(execute, "kinrank_lists", sorted(lists), "(list) DO NOTHING")
            insert(execute, "kinrank_explored", sorted(explored), "(list) DO NOTHING")
            insert(execute, "kinrank_clicks", sorted(clicks), "(event) DO NOTHING")
            waiting = {row.list: (row.model, row.query, row.list) for row in lists}
            clicked = sorted({row.list for row in clicks} - set(waiting))
            waiting |= _known_lists(execute, clicked)
            insert(execute, "kinrank_pending", sorted(waiting.values()))
            # The list may be stored by another transaction that is not visible yet.
            insert(execute, "kinrank_news", [(name,) for name in clicked if name not in waiting])

    # --- counting -------------------------------------------------------------------------------------------------

    def count(self, curves: Mapping[str, RankCurve], recent: Sequence[tuple[str, int]] = ()) -> bool:
        """Count some lists that wait, of some models, and return whether there may be more.

        A query whose lists cannot be counted is set aside, and tried again later, so that others go on.

        Some lists of `recent` models and queries, which were just asked, are counted before those that wait for
        longer.
        """
        self._resolve()
        more = False
        for model, curve in curves.items():
            with self.database.reading() as execute:
                waits = bool(execute("SELECT 1 FROM kinrank_pending WHERE model = ? LIMIT 1", (model,)))
            if waits:
                more = self._count_some(model, curve, [query for name, query in recent if name == model]) or more
                due = [key for key, each in self.aside.items() if time.monotonic() > each.until]
                for key in [key for key in (*self._doubtful, *due) if key[0] == model][:_ALONE]:
                    self._count_alone(*key, curve)
        return more

    def waiting(self) -> int:
        """Return how many lists wait to be counted; no more than 100,000 are counted."""
        with self.database.reading() as execute:
            tables = ("kinrank_pending", "kinrank_news")
            found = [
                execute(f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT {_COUNTED}) AS first", ())[0][0]  # noqa: S608
                for table in tables
            ]
        return int(sum(found))

    def _resolve(self) -> None:
        """Look up the queries of lists that were not known when they were clicked."""
        with self.database.reading() as execute:
            if not execute("SELECT 1 FROM kinrank_news LIMIT 1", ()):
                return
        with self.database.writing() as execute:
            names = execute(
                "DELETE FROM kinrank_news WHERE list IN (SELECT list FROM kinrank_news LIMIT ?) RETURNING list",
                (_LISTS,),
            )
            clicked = sorted({row[0] for row in names})
            known = _known_lists(execute, clicked)
            insert(execute, "kinrank_pending", sorted(known.values()))
        self.unknown += len(clicked) - len(known)

    def _count_some(self, model: str, curve: RankCurve, recent: Sequence[int]) -> bool:
        skipped = {query for name, query in (*self._doubtful, *self.aside) if name == model}
        most, before, queries = self._most, self._places.get(model), set[int]()
        start = time.monotonic()
        try:
            with self.database.writing() as execute:
                revision = next_revision(execute, STREAM)  # one process counts at a time
                first = [
                    (query, name)
                    for query in recent
                    if query not in skipped
                    for name in take_of(execute, model, query, max(most // 10, 1))
                ]
                taken, place = take(execute, model, before, most, skipped, _SHARE)
                taken += first
                queries.update(query for query, _ in taken)
                self._tally(execute, model, revision, [name for _, name in taken], curve)
        except Exception:
            self._most = max(most // 2, 1)  # a busy database may count fewer in time
            if not queries:
                raise
            self._doubtful |= dict.fromkeys((model, query) for query in sorted(queries))
            return True
        seconds = time.monotonic() - start
        self._places[model] = place
        if seconds > 2 * _SECONDS:
            self._most = max(most // 2, 1)
        elif seconds < _SECONDS:
            self._most = min(2 * most, _LISTS)
        return bool(taken) or before is not None

    def _count_alone(self, model: str, query: int, curve: RankCurve) -> None:
        """Count some lists of a query that may be the cause of a failure."""
        self._doubtful.pop((model, query), None)
        try:
            with self.database.writing() as execute:
                revision = next_revision(execute, STREAM)
                names = take_of(execute, model, query, min(self._most, _SHARE))
                self._tally(execute, model, revision, names, curve)
        except Exception as error:
            self._set_aside((model, query), error)
        else:
            self.aside.pop((model, query), None)

    def _set_aside(self, key: tuple[str, int], error: Exception) -> None:
        first, last = _RETRY
        before = self.aside.get(key)
        pause = first if before is None else min(2 * before.pause, last)
        self.aside[key] = _SetAside(error, pause, time.monotonic() + pause)

    def _tally(self, execute: Execute, model: str, revision: int, names: Sequence[str], curve: RankCurve) -> None:
        if not (names and Tally(execute, model, revision, self.min_clients).count(sorted(set(names)), curve)):
            undo_revision(execute, STREAM, revision)
        execute("DELETE FROM kinrank_marks WHERE model = ? AND revision <= ?", (STREAM, revision - _MARKS))

    def read(self, model: str, since: int = 0, *, mark: str = "") -> _CellChanges:
        """Return the cells of queries and days that changed after a revision. `mark` is that of the revision, if known.

        Cells of too few clients have no looks. Raise `OtherHistoryError` if the store has not reached the revision, or
        with other changes.
        """
        with self.database.reading() as execute:
            revision = check_history(execute, STREAM, since, mark, "the choices")
            if since == revision:
                return _CellChanges([], revision, revision, mark_of(execute, STREAM, revision))
            through = end_of_page(execute, "kinrank_counts", model, since, revision, _PAGE)
            rows = execute(
                "SELECT c.query, c.day, c.cells, p.states FROM kinrank_counts AS c LEFT JOIN kinrank_people AS p ON "
                "p.model = c.model AND p.query = c.query WHERE c.model = ? AND c.revision > ? AND c.revision <= ?",
                (model, since, through),
            )
            reached = mark_of(execute, STREAM, through)
        cells = []
        for query, day, stored, known in rows:
            states = {} if known is None else json.loads(known)
            for document, (looks, choices) in json.loads(stored).items():
                state = states.get(document)
                unit = UNIT if state else math.inf
                cells.append(CellRow(query, document, day, looks / unit, choices / unit, few=state != 2))
        return _CellChanges(cells, through, revision, reached)

    # --- texts and clients ----------------------------------------------------------------------------------------

    def name_queries(self, model: str, texts: Mapping[int, str]) -> None:
        """Store the texts of queries that enough clients have asked; others stay hashes."""
        for some in parts(list(texts)):
            with self.database.reading() as execute:
                asked = execute(
                    "SELECT p.query FROM kinrank_people AS p LEFT JOIN kinrank_texts AS t ON t.model = p.model AND "  # noqa: S608
                    f"t.query = p.query WHERE p.model = ? AND p.query IN ({placeholders(some)}) AND p.asked >= ? AND "
                    "t.text IS NULL",
                    (model, *some, self.min_clients),
                )
            if asked:
                with self.database.writing() as execute:
                    rows = [(model, query, texts[query]) for (query,) in asked]
                    insert(execute, "kinrank_texts", rows, "(model, query) DO NOTHING")

    def chosen_texts(self, model: str, since: int) -> Iterator[tuple[str, str, int, float]]:
        """Yield document, text, day and choices of texts that enough clients asked and chose the document for."""
        after = -(2**63), since
        while True:
            with self.database.reading() as execute:
                rows = execute(
                    "SELECT c.query, c.day, t.text, c.cells, p.people, p.states FROM kinrank_counts AS c "
                    "JOIN kinrank_texts AS t ON t.model = c.model AND t.query = c.query "
                    "JOIN kinrank_people AS p ON p.model = c.model AND p.query = c.query "
                    "WHERE c.model = ? AND c.day >= ? AND p.asked >= ? AND (c.query, c.day) > (?, ?) "
                    "ORDER BY c.query, c.day LIMIT ?",
                    (model, since, self.min_clients, *after, _PAGE),
                )
            for _, day, text, cells, people, states in rows:
                chose = People.read(self.min_clients, people, states).chose
                for document, (_, choices) in json.loads(cells).items():
                    if choices and len(chose.get(document, ())) >= self.min_clients:
                        yield document, text, day, choices / UNIT
            if len(rows) < _PAGE:
                return
            after = rows[-1][0], rows[-1][1]

    def client_key(self, period: int) -> bytes:
        """Return the key by which the clients of a period are hashed; the first one who asks creates it."""
        with self.database.writing() as execute:
            row = (period, secrets.token_hex(32))
            insert(execute, "kinrank_client_keys", [row], "(period) DO NOTHING")
            [(secret,)] = execute("SELECT secret FROM kinrank_client_keys WHERE period = ?", (period,))
            return bytes.fromhex(secret)

    def client_keys(self) -> dict[int, bytes]:
        """Return the keys of all periods that have one."""
        with self.database.reading() as execute:
            return {row[0]: bytes.fromhex(row[1]) for row in execute("SELECT * FROM kinrank_client_keys", ())}

    def forget(self, clients: Collection[int]) -> int:
        """Delete what is stored of clients, given by their hashes, and return the number of their lists.

        Their votes of the days whose lists are stored are taken back. Counts of earlier days name nobody: they stay if
        enough clients are known to be in them, and are deleted otherwise. Documents of which too few clients are known
        then do not count until others are shown them. Texts of queries that they asked are deleted, until enough others
        ask them.
        """
        if not clients:
            return 0
        marks = placeholders(clients)
        with self.database.writing() as execute:
            revision = next_revision(execute, STREAM)
            models = [row[0] for row in execute("SELECT DISTINCT model FROM kinrank_people", ())]
            oldest = execute("SELECT min(day) FROM kinrank_votes", ())[0][0]
            removed = execute(
                f"DELETE FROM kinrank_lists WHERE client IN ({marks}) RETURNING list",  # noqa: S608
                tuple(clients),
            )
            for some in parts([row[0] for row in removed]):
                for table in ("kinrank_clicks", "kinrank_explored"):
                    execute(f"DELETE FROM {table} WHERE list IN ({placeholders(some)})", tuple(some))  # noqa: S608
            votes: dict[str, dict[VoteKey, dict[str, list[int]]]] = {model: {} for model in models}
            for client, day, model, query, stored in execute(
                f"DELETE FROM kinrank_votes WHERE client IN ({marks}) RETURNING client, day, model, query, votes",  # noqa: S608
                tuple(clients),
            ):
                votes.setdefault(model, {})[VoteKey(client, day, query)] = json.loads(stored)
            for model, given in votes.items():
                tally = Tally(execute, model, revision, self.min_clients)
                tally.withdraw(given, clients, kept_since=2**62 if oldest is None else oldest)
            return len(removed)

    def expire(self, raw_before: int, cells_before: int, seconds: float = math.inf) -> bool:
        """Delete lists and clicks of the days before one, and what was counted before another.

        Return whether all is deleted: it stops after some seconds, and many small transactions let others in.
        """
        end = time.monotonic() + seconds
        raw = ("kinrank_lists", "list"), ("kinrank_clicks", "event"), ("kinrank_explored", "list")
        votes, counted = ("kinrank_votes", "client, day, model, query"), ("kinrank_counts", "model, query, day")
        for before, tables in ((raw_before, (*raw, votes)), (cells_before, (counted,))):
            for table, key in tables:
                while self._expire_rows(table, key, before):
                    if time.monotonic() > end:
                        return False
        with self.database.writing() as execute:
            execute("DELETE FROM kinrank_client_keys WHERE period < ?", (cells_before // PERIOD,))
        while self._expire_people(cells_before):
            if time.monotonic() > end:
                return False
        return True

    def _expire_rows(self, table: str, key: str, before: int) -> bool:
        with self.database.reading() as execute:
            if not execute(f"SELECT 1 FROM {table} WHERE day < ? LIMIT 1", (before,)):  # noqa: S608
                return False
        with self.database.writing() as execute:
            gone = execute(
                f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE day < ? LIMIT ?) AND day < ? "  # noqa: S608
                "RETURNING 1",
                (before, _DELETED, before),
            )
            return len(gone) >= _DELETED

    def _expire_people(self, before: int) -> bool:
        with self.database.writing() as execute:
            revision = next_revision(execute, STREAM)
            found = execute("SELECT model, query FROM kinrank_people WHERE oldest < ? LIMIT ?", (before, _DELETED))
            for model in sorted({row[0] for row in found}):
                tally = Tally(execute, model, revision, self.min_clients)
                tally.expire_people(sorted(query for name, query in found if name == model), before)
            if not found:
                undo_revision(execute, STREAM, revision)
            return len(found) >= _DELETED


def _known_lists(execute: Execute, names: Sequence[str]) -> dict[str, tuple[str, int, str]]:
    """Return the model, the query and the id of those lists that are stored, by id."""
    found: dict[str, tuple[str, int, str]] = {}
    for some in parts(names):
        for model, query, name in execute(
            f"SELECT model, query, list FROM kinrank_lists WHERE list IN ({placeholders(some)})",  # noqa: S608
            tuple(some),
        ):
            found[name] = model, query, name
    return found
