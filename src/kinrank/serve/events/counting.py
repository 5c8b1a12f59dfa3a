"""Count the lists of queries and days again, and store what changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from kinrank.data.evidence_votes import RankCurve, ShownList, Votes, count_votes
from kinrank.serve.database import Execute
from kinrank.serve.database.rows import among, insert, parts, placeholders

CELL = "(model, query, day)"
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


@dataclass(frozen=True)
class Recount:
    """Counts within one transaction, which keeps others from counting meanwhile."""

    execute: Execute
    revision: int
    """The revision of the changes."""
    min_clients: int
    """How many clients must have been shown a document of a query."""

    def __call__(self, model: str, keys: Sequence[Key], curve: RankCurve) -> bool:
        """Count queries and days of a model again, and return whether anything changed."""
        changed = False
        for some in parts(keys):
            votes = count_votes(self._lists(model, some), curve)
            crowds = self._grown_crowds(model, votes)
            changed = self._store(model, some, votes, crowds) or changed
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

    def _grown_crowds(self, model: str, votes: dict[Cell, Votes]) -> dict[tuple[int, str], int]:
        """Remember the first clients of each query and document, and of each query, and return their numbers.

        More than `min_clients` need not be told apart.
        """
        crowds: dict[tuple[int, str], set[int]] = {}
        for some in parts(sorted({query for query, _, _ in votes})):
            for query, document, client in self.execute(
                "SELECT query, document, client FROM kinrank_crowds WHERE model = ? AND query IN "  # noqa: S608
                f"({placeholders(some)})",
                (model, *some),
            ):
                crowds.setdefault((query, document), set()).add(client)
        new = []
        for (query, document, day), cell in votes.items():
            for pair in ((query, document), (query, "")):
                crowd = crowds.setdefault(pair, set())
                for client in sorted(cell.clients - crowd)[: max(0, self.min_clients - len(crowd))]:
                    crowd.add(client)
                    new.append((model, *pair, client, day))
        insert(self.execute, "kinrank_crowds", new, "DO NOTHING")
        return {pair: len(crowd) for pair, crowd in crowds.items()}

    def _store(
        self, model: str, keys: Sequence[Key], votes: dict[Cell, Votes], crowds: dict[tuple[int, str], int]
    ) -> bool:
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

    def _open(self, model: str, pairs: Sequence[tuple[int, str]]) -> bool:
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
