"""Count the lists of queries and days again, and store what changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from kinrank.memory.votes import RankCurve, ShownList, Votes, count_votes
from kinrank.serve.database import Execute
from kinrank.serve.database.rows import among, among_models, insert, parts, placeholders

MOST_LISTS = 500
"""A client with more lists in one day is a bot, as in `kinrank.clicks.options.LogOptions`."""
_UPSERT = (
    "(model, query, document, day) DO UPDATE SET looks = excluded.looks, choices = excluded.choices, "
    "clients = excluded.clients, revision = excluded.revision"
)
Key = tuple[int, int]
"""A query and a day."""
Cell = tuple[int, str, int]
"""A query, a document and a day."""
Pair = tuple[int, str]
"""A query and a document; no document for all of the query."""


@dataclass(frozen=True)
class Recount:
    """Counts within one transaction, which keeps others from counting meanwhile."""

    execute: Execute
    revision: int
    """The revision of the changes."""
    min_clients: int
    """How many clients must have been shown a document of a query for it to count, and have chosen it to be lifted."""

    def __call__(self, model: str, keys: Sequence[Key], curve: RankCurve) -> bool:
        """Count queries and days of a model again, and return whether anything changed."""
        changed = False
        for some in parts(keys):
            votes = count_votes(self._lists(model, some), curve)
            pairs = [(cell[:2], found.clients, cell[2]) for cell, found in votes.items()]
            asked: dict[Key, frozenset[int]] = {}
            for (query, _, day), found in votes.items():
                asked[query, day] = asked.get((query, day), found.clients) | found.clients
            queries = [((query, ""), clients, day) for (query, day), clients in asked.items()]
            crowds, _ = self._grown("kinrank_crowds", model, pairs + queries)
            chosen = [(cell[:2], found.choosers, cell[2]) for cell, found in votes.items() if found.choosers]
            _, lifted = self._grown("kinrank_choosers", model, chosen)
            changed = self._store(model, some, votes, crowds) or bool(lifted) or changed
            touch(self.execute, self.revision, [(model, *pair) for pair in lifted])
        return changed

    def _lists(self, model: str, keys: Sequence[Key]) -> list[ShownList]:
        wanted, values = among("query, day", keys)
        found = self.execute(
            f"SELECT list, query, day, client, documents FROM kinrank_lists WHERE model = ? AND {wanted}",  # noqa: S608
            (model, *values),
        )
        rows = sorted(found)  # sums do not depend on the order in which a database returns them
        clicked: dict[str, dict[str, float]] = {}
        for some in parts([row[0] for row in rows]):
            for name, document, value in self.execute(
                "SELECT list, document, max(value) FROM kinrank_clicks WHERE list IN "  # noqa: S608
                f"({placeholders(some)}) GROUP BY list, document",
                tuple(some),
            ):
                clicked.setdefault(name, {})[document] = value
        bots = self._bots(sorted({(row[3], row[2]) for row in rows}))
        return [
            ShownList(query, day, client, json.loads(documents), clicked.get(name, {}))
            for name, query, day, client, documents in rows
            if (client, day) not in bots
        ]

    def _bots(self, days: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
        """Return the clients and days with too many lists."""
        bots: set[tuple[int, int]] = set()
        for some in parts(days):
            wanted, values = among("client, day", some)
            rows = self.execute(
                f"SELECT client, day FROM kinrank_lists WHERE {wanted} GROUP BY client, day HAVING count(*) > ?",  # noqa: S608
                (*values, MOST_LISTS),
            )
            bots.update((client, day) for client, day in rows)
        return bots

    def _grown(
        self, table: str, model: str, members: Sequence[tuple[Pair, frozenset[int], int]]
    ) -> tuple[dict[Pair, int], list[Pair]]:
        """Remember the latest clients of pairs, and return the numbers of all, and the pairs that have enough now.

        More than `min_clients` need not be told apart. Later ones replace earlier ones, which expire first.

        Parameters
        ----------
        table
            Where they are remembered.
        model
            The model.
        members
            Pairs, their clients, and the day.
        """
        crowds: dict[Pair, dict[int, int]] = {}
        for some in parts(sorted({pair[0] for pair, _, _ in members})):
            for query, document, client, day in self.execute(
                f"SELECT query, document, client, day FROM {table} WHERE model = ? AND query IN ({placeholders(some)})",  # noqa: S608
                (model, *some),
            ):
                crowds.setdefault((query, document), {})[client] = day
        complete = []
        changed: dict[tuple[int, str, int], int | None] = {}
        for pair, clients, day in members:
            crowd = crowds.setdefault(pair, {})
            before = len(crowd)
            changed |= {(*pair, client): latest for client, latest in self._joined(crowd, clients, day).items()}
            if before < self.min_clients <= len(crowd):
                complete.append(pair)
        for gone in parts([key for key, latest in changed.items() if latest is None]):
            wanted, values = among("query, document, client", gone)
            self.execute(f"DELETE FROM {table} WHERE model = ? AND {wanted}", (model, *values))  # noqa: S608
        rows = [(model, *key, latest) for key, latest in changed.items() if latest is not None]
        insert(self.execute, table, rows, "(model, query, document, client) DO UPDATE SET day = excluded.day")
        return {pair: len(crowd) for pair, crowd in crowds.items()}, complete

    def _joined(self, crowd: dict[int, int], clients: frozenset[int], day: int) -> dict[int, int | None]:
        """Let the clients of a day join a crowd, the latest day by client, and return what changed; None if removed."""
        changed: dict[int, int | None] = {}
        for client in sorted(clients):
            if client not in crowd and len(crowd) >= self.min_clients:
                earliest = min(crowd, key=crowd.__getitem__)
                if crowd[earliest] >= day:  # the others are not earlier
                    break
                del crowd[earliest]
                changed[earliest] = None
            if crowd.get(client, day - 1) < day:
                changed[client] = crowd[client] = day
        return changed

    def _store(self, model: str, keys: Sequence[Key], votes: dict[Cell, Votes], crowds: dict[Pair, int]) -> bool:
        """Store the counts that differ from the stored ones, and return whether any does."""
        wanted, values = among("query, day", keys)
        stored = {
            (query, document, day): (looks, choices, clients)
            for query, document, day, looks, choices, clients in self.execute(
                "SELECT query, document, day, looks, choices, clients FROM kinrank_cells "  # noqa: S608
                f"WHERE model = ? AND {wanted}",
                (model, *values),
            )
        }
        counted = {cell: (found.looks, found.choices, crowds[cell[:2]]) for cell, found in votes.items()}
        counted |= {cell: (0.0, 0.0, 0) for cell in stored if cell not in counted}
        rows = [
            (model, *cell, *values, self.revision) for cell, values in counted.items() if stored.get(cell) != values
        ]
        insert(self.execute, "kinrank_cells", rows, _UPSERT)
        complete = [pair for pair, clients in crowds.items() if clients >= self.min_clients and pair[1]]
        return self._open(model, complete) or bool(rows)

    def _open(self, model: str, pairs: Sequence[Pair]) -> bool:
        """Let the other days of pairs count that have enough clients now."""
        opened = False
        for some in parts(pairs):
            wanted, values = among("query, document", some)
            opened |= bool(
                self.execute(
                    "UPDATE kinrank_cells SET clients = ?, revision = ? WHERE model = ? AND clients < ? AND looks > 0 "  # noqa: S608
                    f"AND {wanted} RETURNING 1",
                    (self.min_clients, self.revision, model, self.min_clients, *values),
                )
            )
        return opened


def touch(execute: Execute, revision: int, pairs: Sequence[tuple[str, int, str]]) -> None:
    """Have all cells of models, queries and documents read again, because of those who chose them."""
    for wanted, values in among_models("query, document", pairs):
        execute(f"UPDATE kinrank_cells SET revision = ? WHERE {wanted}", (revision, *values))  # noqa: S608
