"""Lists and clicks in the database, and the counts of them."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kinrank.memory.votes import RankCurve
from kinrank.serve.audit import record
from kinrank.serve.database import Database
from kinrank.serve.database.revisions import check_history, end_of_page, mark_of, next_revision, undo_revision
from kinrank.serve.database.rows import among_models, insert, parts, placeholders
from kinrank.serve.events.counting import Recount, touch
from kinrank.serve.events.records import ClickRecord, ListRecord

STREAM = "/evidence"
"""The stream of revisions; no model has such a name."""
PERIOD = 30
"""Days that the clients are hashed by the same key."""
_NEWS = 2_000  # changed lists that are counted in one transaction, at most
_PAGE = 20_000  # changed cells that are read at a time
_MARKS = 10_000  # that are kept; a reader that is further behind reads everything


class CellRow(NamedTuple):
    """The evidence of a query, a document and a day."""

    query: int
    document: str
    day: int
    looks: float
    choices: float
    few: bool
    """Whether too few clients chose the document of the query, so that it may fall but not be lifted."""


class CellChanges(NamedTuple):
    """Changed cells, with their new values; see `kinrank.serve.judgment_store.Changes` for the other fields."""

    cells: list[CellRow]
    through: int
    revision: int
    mark: str


class EventStore:
    """Lists, clicks and cells of evidence of several models.

    Lists and clicks are stored as they come in, each once. `count` then counts the queries and days with something new
    again, from all of their lists, so nothing can count twice, in whatever order and how often events arrive.

    Parameters
    ----------
    database
        Where they are.
    min_clients
        Documents that fewer clients were shown for a query are no evidence, and those that fewer chose are not lifted.
    """

    def __init__(self, database: Database, min_clients: int) -> None:
        self.database = database
        self.min_clients = min_clients
        self._most = _NEWS

    def add(
        self,
        lists: Sequence[ListRecord],
        clicks: Sequence[ClickRecord],
        explored: Sequence[tuple[str, float, int]] = (),
    ) -> None:
        """Store lists and clicks, all or none, but for those that are stored already; they are durable then.

        Parameters
        ----------
        lists, clicks
            What was shown and clicked.
        explored
            The lists that explored, the share of lists that do, and their day.
        """
        with self.database.writing() as execute:
            # In one order, so that two processes do not wait for each other.
            insert(execute, "kinrank_lists", sorted(lists), "(list) DO NOTHING")
            insert(execute, "kinrank_explored", sorted(explored), "(list) DO NOTHING")
            insert(execute, "kinrank_clicks", sorted(clicks), "(event) DO NOTHING")
            insert(
                execute,
                "kinrank_news",
                [(name,) for name in sorted({row.list for row in lists} | {row.list for row in clicks})],
            )

    def count(self, curves: Mapping[str, RankCurve]) -> bool:
        """Count what is new of some models, and return whether there may be more.

        Parameters
        ----------
        curves
            How ranks are examined, by model.
        """
        with self.database.reading() as execute:
            if not execute("SELECT 1 FROM kinrank_news LIMIT 1", ()):
                return False
        most = self._most
        self._most = max(most // 2, 1)  # if a busy database does not count as many in time, it may count fewer
        more = self._count(curves, most)
        self._most = min(2 * most, _NEWS)
        return more

    def _count(self, curves: Mapping[str, RankCurve], most: int) -> bool:
        with self.database.writing() as execute:
            revision = next_revision(execute, STREAM)  # one process counts at a time
            taken = execute(
                "DELETE FROM kinrank_news WHERE list IN (SELECT n.list FROM kinrank_news AS n LEFT JOIN kinrank_lists "  # noqa: S608
                f"AS l ON l.list = n.list WHERE l.model IS NULL OR l.model IN ({placeholders(curves)}) LIMIT ?) "
                "RETURNING list",
                (*curves, most),
            )
            news = sorted({row[0] for row in taken})
            touched: dict[str, set[tuple[int, int]]] = {}
            for some in parts(news):
                found = execute(
                    f"SELECT DISTINCT model, query, day FROM kinrank_lists WHERE list IN ({placeholders(some)})",  # noqa: S608
                    tuple(some),
                )
                for model, query, day in found:
                    touched.setdefault(model, set()).add((query, day))
            recount = Recount(execute, revision, self.min_clients)
            changed = [recount(model, sorted(keys), curves[model]) for model, keys in touched.items()]
            if not any(changed):
                undo_revision(execute, STREAM, revision)
            execute("DELETE FROM kinrank_marks WHERE model = ? AND revision <= ?", (STREAM, revision - _MARKS))
            return len(taken) >= most

    def read(self, model: str, since: int = 0, *, mark: str = "") -> CellChanges:
        """Return the cells that changed after a revision. `mark` is that of the revision, if known.

        Cells of too few clients have no looks. Raise `OtherHistoryError` if the store has not reached the revision, or
        with other changes.
        """
        with self.database.reading() as execute:
            revision = check_history(execute, STREAM, since, mark, "the choices")
            if since == revision:
                return CellChanges([], revision, revision, mark_of(execute, STREAM, revision))
            through = end_of_page(execute, "kinrank_cells", model, since, revision, _PAGE)
            rows = execute(
                "SELECT query, document, day, looks, choices, clients, (SELECT count(*) FROM kinrank_choosers AS o "
                "WHERE o.model = c.model AND o.query = c.query AND o.document = c.document) FROM kinrank_cells AS c "
                "WHERE model = ? AND revision > ? AND revision <= ?",
                (model, since, through),
            )
            reached = mark_of(execute, STREAM, through)
        cells = []
        for query, document, day, looks, choices, seen_by, chosen_by in rows:
            if seen_by < self.min_clients:
                looks, choices = 0.0, 0.0
            cells.append(CellRow(query, document, day, looks, choices, few=chosen_by < self.min_clients))
        return CellChanges(cells, through, revision, reached)

    # --- texts and clients ----------------------------------------------------------------------------------------

    def name_queries(self, model: str, texts: Mapping[int, str]) -> None:
        """Store the texts of queries that enough clients have asked; others stay hashes."""
        for some in parts(list(texts)):
            with self.database.reading() as execute:
                asked = execute(
                    "SELECT query FROM kinrank_crowds WHERE model = ? AND document = '' AND query IN "  # noqa: S608
                    f"({placeholders(some)}) AND query NOT IN (SELECT query FROM kinrank_texts WHERE model = ?) "
                    "GROUP BY query HAVING count(*) >= ?",
                    (model, *some, model, self.min_clients),
                )
            if asked:
                with self.database.writing() as execute:
                    rows = [(model, query, texts[query]) for (query,) in asked]
                    insert(execute, "kinrank_texts", rows, "(model, query) DO NOTHING")

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

        Counts of the days whose lists are stored are made again without them. Counts of earlier days stay if enough
        clients are in them, and are deleted otherwise; they lift a document if enough others chose it. Texts of queries
        that they asked are deleted, until enough other clients ask them.
        """
        if not clients:
            return 0
        marks = placeholders(clients)
        with self.database.writing() as execute:
            revision = next_revision(execute, STREAM)
            removed = execute(
                f"DELETE FROM kinrank_lists WHERE client IN ({marks}) RETURNING list, model, query, day",  # noqa: S608
                tuple(clients),
            )
            for some in parts([row[0] for row in removed]):
                for table in ("kinrank_clicks", "kinrank_explored"):
                    execute(f"DELETE FROM {table} WHERE list IN ({placeholders(some)})", tuple(some))  # noqa: S608
            pairs = execute(
                f"DELETE FROM kinrank_crowds WHERE client IN ({marks}) RETURNING model, query, document",  # noqa: S608
                tuple(clients),
            )
            for wanted, values in among_models("query, document", pairs):
                execute(
                    "UPDATE kinrank_cells SET looks = 0, choices = 0, clients = 0, revision = ? WHERE clients < ? "  # noqa: S608
                    f"AND {wanted}",
                    (revision, self.min_clients, *values),
                )
            chose = execute(
                f"DELETE FROM kinrank_choosers WHERE client IN ({marks}) RETURNING model, query, document",  # noqa: S608
                tuple(clients),
            )
            touch(execute, revision, chose)
            # The crowd of a query has no more clients than necessary, so that one less may be too few.
            for wanted, values in among_models("query", [row[:2] for row in pairs if not row[2]]):
                execute(f"DELETE FROM kinrank_texts WHERE {wanted}", values)  # noqa: S608
            # One list of each query and day that is left tells what to count again; without one there is nothing left.
            for wanted, values in among_models("query, day", sorted({row[1:] for row in removed})):
                execute(
                    f"UPDATE kinrank_cells SET looks = 0, choices = 0, revision = ? WHERE {wanted}",  # noqa: S608
                    (revision, *values),
                )
                left = execute(f"SELECT min(list) FROM kinrank_lists WHERE {wanted} GROUP BY query, day", values)  # noqa: S608
                insert(execute, "kinrank_news", left)
            record(execute, "forgot", "a client", f"{len(removed)} lists")
            return len(removed)

    def expire(self, raw_before: int, cells_before: int) -> None:
        """Delete lists and clicks of the days before one, and what was counted before another."""
        with self.database.writing() as execute:
            revision = next_revision(execute, STREAM)
            chose = execute(
                "DELETE FROM kinrank_choosers WHERE day < ? RETURNING model, query, document", (cells_before,)
            )
            touch(execute, revision, chose)
            if not chose:
                undo_revision(execute, STREAM, revision)
            for table in ("kinrank_lists", "kinrank_clicks", "kinrank_explored"):
                execute(f"DELETE FROM {table} WHERE day < ?", (raw_before,))  # noqa: S608
            for table in ("kinrank_cells", "kinrank_crowds"):
                execute(f"DELETE FROM {table} WHERE day < ?", (cells_before,))  # noqa: S608
            execute("DELETE FROM kinrank_client_keys WHERE period < ?", (cells_before // PERIOD,))
            execute(
                "DELETE FROM kinrank_texts WHERE NOT EXISTS (SELECT 1 FROM kinrank_cells AS c WHERE c.model = "
                "kinrank_texts.model AND c.query = kinrank_texts.query)",
                (),
            )
