"""Count lists one by one: each changes the vote of its client and, by the difference, the counts of its query and day.

The work is that of the lists that are counted, however many others their query has. What needs other lists has a small
state of its own: the vote of each client, query and day (``kinrank_votes``), and clients who were shown or chose a
document (``kinrank_people``). Votes are whole numbers of `UNIT`, so that sums do not depend on the order of events.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kinrank.memory._votes import RankCurve, ShownList, client_votes
from kinrank.serve._database import Execute, among, flat, insert, parts, placeholders, row_placeholders

MOST_LISTS = 500
"""A client with more lists in one day is a bot, as in `kinrank.clicks.read.LogOptions`."""
UNIT = 10**8
"""Looks and choices are stored as multiples of 1 / UNIT."""
_LOWEST = -(2**63)
_ROWS = 100  # of one statement: psycopg remembers how to send it, and PostgreSQL how to run it
Votes = dict[str, list[int]]
"""Looks, choices, and whether it was chosen, by document."""
Cells = dict[str, list[int]]
"""Looks and choices by document."""
Crowd = list[list[int]]
"""Clients, and the last day of each."""


class VoteKey(NamedTuple):
    """What one vote is about."""

    client: int
    day: int
    query: int


@dataclass
class People:
    """The latest clients of a query who were shown, and who chose, each document: twice as many as are enough.

    More need not be told apart. Later ones replace earlier ones, which expire first.
    """

    enough: int
    """How many clients are enough for a document to count, or to be lifted."""
    shown: dict[str, Crowd] = field(default_factory=dict)
    """By document; those of the query by an empty one."""
    chose: dict[str, Crowd] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)
    """1 for documents that enough clients were shown, 2 for those that enough chose as well."""
    _full: dict[tuple[int, str], int] = field(default_factory=dict)
    """The earliest day of crowds that have all clients they may have."""

    @classmethod
    def read(cls, enough: int, people: str, states: str) -> People:
        """Return what is stored."""
        shown, chose = json.loads(people)
        return cls(enough, shown, chose, json.loads(states))

    @property
    def row(self) -> tuple[str, int, str, int]:
        """What to store: the clients, the number of those of the query, the states, and the earliest day."""
        days = [day for crowds in (self.shown, self.chose) for crowd in crowds.values() for _, day in crowd]
        asked = len(self.shown.get("", ()))
        return _dumps([self.shown, self.chose]), asked, _dumps(self.states), min(days, default=0)

    def join(self, client: int, day: int, votes: Votes) -> bool:
        """Let a client join, and return whether that changed anything."""
        changed = self._join(self.shown, "", client, day)
        for document, (_, _, chose) in votes.items():
            joined = self._join(self.shown, document, client, day)
            if chose:
                joined = self._join(self.chose, document, client, day) or joined
            changed = joined or changed
        return changed

    def _join(self, crowds: dict[str, Crowd], document: str, client: int, day: int) -> bool:
        full = self._full.get((id(crowds), document), -1)
        if full >= day:  # nobody is earlier
            return False
        crowd = crowds.setdefault(document, [])
        if _join(crowd, client, day, 2 * self.enough):
            return True
        if len(crowd) >= 2 * self.enough:
            self._full[id(crowds), document] = min(entry[1] for entry in crowd)
        return False

    def leave(self, clients: Collection[int], before: int = 0) -> set[str]:
        """Remove clients, and those of days before one; return the documents of which fewer than enough were known."""
        few: set[str] = set()
        for crowds in (self.shown, self.chose):
            for document, crowd in list(crowds.items()):
                kept = [entry for entry in crowd if entry[0] not in clients and entry[1] >= before]
                if len(kept) < len(crowd) < self.enough and crowds is self.shown:
                    few.add(document)
                crowds[document] = kept
                if not kept:
                    del crowds[document]
        return few

    def update_states(self) -> bool:
        """Return whether other documents count, or are lifted, than before."""
        states = {
            document: 2 if len(self.chose.get(document, ())) >= self.enough else 1
            for document, crowd in self.shown.items()
            if document and len(crowd) >= self.enough
        }
        before, self.states = self.states, states
        return states != before


def _join(crowd: Crowd, client: int, day: int, most: int) -> bool:
    for entry in crowd:
        if entry[0] == client:
            later = entry[1] < day
            entry[1] = max(entry[1], day)
            return later
    if len(crowd) < most:
        crowd.append([client, day])
        return True
    earliest = min(crowd, key=lambda entry: entry[1])
    if earliest[1] >= day:
        return False
    earliest[:] = client, day
    return True


@dataclass
class Tally:
    """Counts of one model within one transaction, which keeps others from counting meanwhile."""

    execute: Execute
    model: str
    revision: int
    """The revision of the changes."""
    min_clients: int
    """How many clients must have been shown a document of a query for it to count, and have chosen it to be lifted."""

    def count(self, names: Sequence[str], curve: RankCurve) -> bool:
        """Count lists that are new, or have new clicks, and return whether anything changed."""
        lists = self._lists("list", [(name,) for name in names])
        days = sorted({(client, day) for _, _, day, client, _ in lists.values()})
        sizes = self._numbers_of_lists(days)
        bots = [each for each in days if sizes[each] > MOST_LISTS]
        keys = {
            VoteKey(client, day, query)
            for _, query, day, client, _ in lists.values()
            if sizes[client, day] <= MOST_LISTS
        }
        several = [key for key in keys if sizes[key.client, key.day] > 1]
        lists |= self._lists("client, day, query", several)
        votes = self._votes(lists, keys, curve)
        before = self._stored_votes("client, day, query", sorted(keys)) | self._stored_votes("client, day", bots)
        changed = {key: votes.get(key, {}) for key in {*keys, *before} if votes.get(key, {}) != before.get(key, {})}
        self._store_votes(changed)
        joined = [(key, votes[key]) for key in sorted(keys)]
        moved = self._store_people(joined, [key for key in before if key not in keys])
        return self._add(_differences(changed, before)) or moved

    def withdraw(self, votes: dict[VoteKey, Votes], clients: Collection[int], kept_since: int) -> None:
        """Remove the votes of clients, and them from the people of all queries.

        What too few clients said on days before one, whose votes are not stored any more, is deleted.
        """
        self._add(_differences({key: {} for key in votes}, votes))
        people = {key.query for key in votes}
        for client in clients:
            found = self.execute(
                "SELECT query FROM kinrank_people WHERE model = ? AND people LIKE ?", (self.model, f"%[{client},%")
            )
            people.update(row[0] for row in found)
        known = self._people(sorted(people))
        asked = [query for query, each in known.items() if any(entry[0] in clients for entry in each.shown.get("", ()))]
        self._delete("kinrank_texts", asked)  # until enough others ask
        self._erase({query: each.leave(clients) for query, each in known.items()}, kept_since)
        for each in known.values():
            each.update_states()
        self._write_people(known)
        self.touch(sorted(people))

    def expire_people(self, queries: Sequence[int], before: int) -> None:
        """Forget the clients of queries on days before one."""
        people = self._people(queries)
        moved = []
        for query, known in people.items():
            known.leave((), before)
            if known.update_states():
                moved.append(query)
        self._write_people(people)
        self.touch(moved)

    def touch(self, queries: Sequence[int]) -> None:
        """Have all days of queries read again, because other documents count."""
        for some in parts(queries, _ROWS):
            self.execute(
                f"UPDATE kinrank_counts SET revision = ? WHERE model = ? AND query IN ({placeholders(some)})",  # noqa: S608
                (self.revision, self.model, *some),
            )

    # --- reading ---------------------------------------------------------------------------------------------------

    def _lists(self, columns: str, rows: Sequence[Sequence[Any]]) -> dict[str, tuple[Any, ...]]:
        """Return lists by their id, found by other columns."""
        found: dict[str, tuple[Any, ...]] = {}
        for some in parts(rows, _ROWS):
            for row in self.execute(
                f"SELECT list, query, day, client, documents FROM kinrank_lists AS t {_joined(columns, some)} "  # noqa: S608
                "AND model = ?",
                (*flat(some), self.model),
            ):
                found[row[0]] = row
        return found

    def _numbers_of_lists(self, days: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
        """Return how many lists clients have on days; of a bot, the first ones are looked at."""
        found: dict[tuple[int, int], int] = {}
        for some in parts(days, _ROWS):
            for client, day, number in self.execute(
                "SELECT v.column1, v.column2, (SELECT count(*) FROM (SELECT 1 FROM kinrank_lists AS t WHERE t.client = "  # noqa: S608
                f"v.column1 AND t.day = v.column2 LIMIT {MOST_LISTS + 1}) AS few) "
                f"FROM (VALUES {row_placeholders(some)}) AS v",
                flat(some),
            ):
                found[client, day] = number
        return found

    def _votes(
        self, lists: dict[str, tuple[Any, ...]], keys: Collection[VoteKey], curve: RankCurve
    ) -> dict[VoteKey, Votes]:
        clicked: dict[str, dict[str, float]] = {}
        for some in parts(sorted(lists), _ROWS):
            for name, document, value in self.execute(
                f"SELECT list, document, value FROM kinrank_clicks WHERE list IN ({placeholders(some)})",  # noqa: S608
                tuple(some),
            ):
                values = clicked.setdefault(name, {})
                values[document] = max(value, values.get(document, value))
        shown: dict[VoteKey, list[ShownList]] = {key: [] for key in keys}
        for name, query, day, client, documents in lists.values():
            key = VoteKey(client, day, query)
            if key in shown:
                shown[key].append(ShownList(query, day, client, json.loads(documents), clicked.get(name, {})))
        return {
            key: {
                document: [round(vote.looks * UNIT), round(vote.choices * UNIT), int(vote.chose)]
                for document, vote in client_votes(some, curve).items()
            }
            for key, some in shown.items()
        }

    def _stored_votes(self, columns: str, rows: Sequence[Sequence[Any]]) -> dict[VoteKey, Votes]:
        found: dict[VoteKey, Votes] = {}
        for some in parts(rows, _ROWS):
            for client, day, query, votes in self.execute(
                f"SELECT client, day, query, votes FROM kinrank_votes AS t {_joined(columns, some)} AND model = ?",  # noqa: S608
                (*flat(some), self.model),
            ):
                found[VoteKey(client, day, query)] = json.loads(votes)
        return found

    def _people(self, queries: Sequence[int]) -> dict[int, People]:
        found = {query: People(self.min_clients) for query in queries}
        for some in parts(queries, _ROWS):
            for query, people, states in self.execute(
                f"SELECT query, people, states FROM kinrank_people WHERE model = ? AND query IN ({placeholders(some)})",  # noqa: S608
                (self.model, *some),
            ):
                found[query] = People.read(self.min_clients, people, states)
        return found

    # --- writing ---------------------------------------------------------------------------------------------------

    def _store_votes(self, votes: dict[VoteKey, Votes]) -> None:
        rows = [
            (key.client, key.day, self.model, key.query, _dumps(vote)) for key, vote in sorted(votes.items()) if vote
        ]
        insert(self.execute, "kinrank_votes", rows, "(client, day, model, query) DO UPDATE SET votes = excluded.votes")
        for some in parts([key for key, vote in votes.items() if not vote], _ROWS):
            wanted, values = among("client, day, query", some)
            self.execute(f"DELETE FROM kinrank_votes WHERE model = ? AND {wanted}", (self.model, *values))  # noqa: S608

    def _store_people(self, joined: Sequence[tuple[VoteKey, Votes]], left: Iterable[VoteKey]) -> bool:
        """Let clients join the people of their queries, and bots leave; return whether other documents count."""
        bots: dict[int, set[int]] = {}
        for key in left:
            bots.setdefault(key.query, set()).add(key.client)
        people = self._people(sorted({*bots, *(key.query for key, _ in joined)}))
        changed = set(bots)
        for key, votes in joined:
            if people[key.query].join(key.client, key.day, votes):
                changed.add(key.query)
        for query, clients in bots.items():
            people[query].leave(clients)
        moved = [query for query in sorted(changed) if people[query].update_states()]
        self._write_people({query: people[query] for query in sorted(changed)})
        self.touch(moved)
        return bool(moved)

    def _write_people(self, people: dict[int, People]) -> None:
        """Store the people of queries, and delete queries that nobody asked."""
        gone = [query for query, known in people.items() if not known.shown]
        for table in ("kinrank_people", "kinrank_texts"):
            self._delete(table, gone)
        insert(
            self.execute,
            "kinrank_people",
            [(self.model, query, *known.row) for query, known in people.items() if known.shown],
            "(model, query) DO UPDATE SET people = excluded.people, asked = excluded.asked, states = excluded.states, "
            "oldest = excluded.oldest",
        )

    def _add(self, differences: dict[tuple[int, int], Cells]) -> bool:
        """Add differences to the counts of queries and days, and return whether there are any."""
        keys = sorted(key for key, cells in differences.items() if cells)
        for some in parts(keys, _ROWS):
            stored = {
                (query, day): json.loads(cells)
                for query, day, cells in self.execute(
                    f"SELECT query, day, cells FROM kinrank_counts AS t {_joined('query, day', some)} AND model = ?",  # noqa: S608
                    (*flat(some), self.model),
                )
            }
            for key in some:
                cells = stored.setdefault(key, {})
                for document, (looks, choices) in differences[key].items():
                    cell = cells.setdefault(document, [0, 0])
                    cell[0] += looks
                    cell[1] += choices
            self._write_counts({key: stored[key] for key in some})
        return bool(keys)

    def _delete(self, table: str, queries: Sequence[int]) -> None:
        for some in parts(queries, _ROWS):
            wanted = f"model = ? AND query IN ({placeholders(some)})"
            self.execute(f"DELETE FROM {table} WHERE {wanted}", (self.model, *some))  # noqa: S608

    def _erase(self, documents: dict[int, set[str]], before: int) -> None:
        """Delete the counts of documents of queries on days before one."""
        for query, some in documents.items():
            if not some:
                continue
            erased: dict[tuple[int, int], Cells] = {}
            for day, stored in self.execute(
                "SELECT day, cells FROM kinrank_counts WHERE model = ? AND query = ? AND day < ?",
                (self.model, query, before),
            ):
                cells: Cells = json.loads(stored)
                # Zeros, so that replicas put them in place of what they have read.
                erased[query, day] = {name: [0, 0] if name in some else cell for name, cell in cells.items()}
            self._write_counts(erased)

    def _write_counts(self, counts: dict[tuple[int, int], Cells]) -> None:
        rows = [(self.model, *key, _dumps(cells), self.revision) for key, cells in counts.items()]
        insert(
            self.execute,
            "kinrank_counts",
            rows,
            "(model, query, day) DO UPDATE SET cells = excluded.cells, revision = excluded.revision",
        )


def take(
    execute: Execute, model: str, after: int | None, most: int, skipped: Collection[int], share: int
) -> tuple[list[tuple[int, str]], int | None]:
    """Take lists out of those that wait to be counted, in turns: of each query a share, so that none waits for others.

    Start after the query `after`, leave `skipped` queries, and take more than a share of one query only if no
    others are left.

    Return queries and lists, and the query after which to start the next time.
    """
    taken: list[tuple[int, str]] = []
    place = after
    while len(taken) < most:
        rows = execute(
            "SELECT query, list FROM kinrank_pending WHERE model = ? AND query > ? ORDER BY query, list LIMIT ?",
            (model, _LOWEST if place is None else place, most - len(taken)),
        )
        if not rows:
            if after is None and taken and share < most:  # all queries had their turn: take more of the same
                more, _ = take(execute, model, None, most - len(taken), skipped, most)
                taken += more
            return taken, None
        stop = _end_of_turn(rows, skipped, share)
        if stop:
            (query, name), (last_query, last_name) = rows[0], rows[stop - 1]
            taken += execute(
                "DELETE FROM kinrank_pending WHERE model = ? AND query >= ? AND query <= ? AND (query, list) >= (?, ?) "
                "AND (query, list) <= (?, ?) RETURNING query, list",
                (model, query, last_query, query, name, last_query, last_name),
            )
        place = rows[max(stop, 1) - 1][0]
    return taken, place


def take_of(execute: Execute, model: str, query: int, most: int) -> list[str]:
    """Take some lists of one query out of those that wait to be counted."""
    names = execute(
        "SELECT list FROM kinrank_pending WHERE model = ? AND query = ? ORDER BY list LIMIT ?", (model, query, most)
    )
    if not names:
        return []
    taken = execute(
        "DELETE FROM kinrank_pending WHERE model = ? AND query = ? AND list <= ? RETURNING list",
        (model, query, names[-1][0]),
    )
    return [row[0] for row in taken]


def _end_of_turn(rows: Sequence[tuple[int, str]], skipped: Collection[int], share: int) -> int:
    """Return how many of some rows to take at once: up to one that is skipped, or to the share of a query."""
    for place, (query, _) in enumerate(rows):
        if query in skipped or (place >= share and rows[place - share][0] == query):
            return place
    return len(rows)


def _differences(after: dict[VoteKey, Votes], before: dict[VoteKey, Votes]) -> dict[tuple[int, int], Cells]:
    """Return by how much looks and choices of documents change, by query and day."""
    found: dict[tuple[int, int], Cells] = {}
    for key, votes in after.items():
        cells = found.setdefault((key.query, key.day), {})
        for some, sign in ((votes, 1), (before.get(key, {}), -1)):
            for document, (looks, choices, _) in some.items():
                cell = cells.setdefault(document, [0, 0])
                cell[0] += sign * looks
                cell[1] += sign * choices
    return {key: {document: cell for document, cell in cells.items() if cell != [0, 0]} for key, cells in found.items()}


def _joined(columns: str, rows: Sequence[Sequence[Any]]) -> str:
    """Return the SQL that looks up rows of a table ``t`` by columns; ``AND`` may follow.

    Examples
    --------
    >>> _joined("query, day", [(7, 1)])
    'JOIN (VALUES (?, ?)) AS v ON t.query = v.column1 AND t.day = v.column2'
    """
    equal = " AND ".join(f"t.{name} = v.column{number}" for number, name in enumerate(columns.split(", "), start=1))
    return f"JOIN (VALUES {row_placeholders(rows)}) AS v ON {equal}"


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
