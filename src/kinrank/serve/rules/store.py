"""Rules in the database that all replicas share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple, fields, replace
from typing import Any

from kinrank.data.texts import normalize_text
from kinrank.errors import DataError
from kinrank.serve.audit import record
from kinrank.serve.database import Database, Execute
from kinrank.serve.database.revisions import mark_of, next_revision, revision_of, undo_revision
from kinrank.serve.database.rows import insert
from kinrank.serve.rules.rule import Action, Rule

STREAM = "/rules"
"""The stream of revisions; no model has such a name."""
MOST_RULES = 10_000
"""Rules that may hold at a time."""
_COLUMNS = ", ".join(field.name for field in fields(Rule))
_HOLDS = "removed IS NULL AND expires > ?"


class RuleStore:
    """Rules, those that ended among them: a rule is never changed, only added and removed.

    Parameters
    ----------
    database
        Where they are.
    now
        Returns the seconds since 1970.

    Examples
    --------
    >>> import tempfile
    >>> from kinrank.serve.database import open_database
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = RuleStore(open_database(f"sqlite:///{folder}/judgments.db"), now=lambda: 0.0)
    ...     pinned = store.add(Rule("alien", Action.PIN, "d4", 1, False, "anna", "", 0.0, 60.0))
    ...     hidden = store.add(Rule("Alien", Action.HIDE, "d4", 0, False, "ben", "", 0.0, 60.0))
    ...     store.database.close()
    ...     [rule.words for rule in store.rules()], [rule.removed_by for rule in store.rules(history=True)]
    (["rule 2 hides 'd4' for 'Alien'"], ['ben', None])
    """

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self.database = database
        self._now = now

    def add(self, rule: Rule) -> Rule:
        """Store a rule durably and return it with its number.

        It replaces the one for the same query and document, so adding it again changes nothing. Raise `DataError` if
        another document is pinned to its place.
        """
        key = normalize_text(rule.query)
        with self.database.writing() as execute:
            number = next_revision(execute, STREAM)
            execute(
                f"UPDATE kinrank_rules SET removed = ?, removed_by = ?, revision = ? WHERE query_key = ? AND "  # noqa: S608
                f"document = ? AND {_HOLDS}",
                (rule.created, rule.author, number, key, rule.document, rule.created),
            )
            [(count,)] = execute(f"SELECT count(*) FROM kinrank_rules WHERE {_HOLDS}", (rule.created,))  # noqa: S608
            if count >= MOST_RULES:
                raise DataError(f"{count} rules hold already, which is the most: remove some first")
            if rule.action is Action.PIN:
                _check_place(execute, rule, key)
            added = replace(rule, number=number)
            insert(execute, f"kinrank_rules ({_COLUMNS}, query_key, revision)", [(*_row(added), key, number)])
            record(execute, "added rule", str(number), added.words)
            return added

    def remove(self, number: int, author: str) -> Rule | None:
        """End a rule and return it; None if no such rule holds."""
        now = self._now()
        with self.database.writing() as execute:
            revision = next_revision(execute, STREAM)
            rows = execute(
                f"UPDATE kinrank_rules SET removed = ?, removed_by = ?, revision = ? WHERE number = ? AND {_HOLDS} "  # noqa: S608
                f"RETURNING {_COLUMNS}",
                (now, author, revision, number, now),
            )
            if not rows:
                undo_revision(execute, STREAM, revision)
                return None
            removed = _to_rule(rows[0])
            record(execute, "removed rule", str(number), removed.words)
            return removed

    def rules(self, *, history: bool = False) -> list[Rule]:
        """Return the rules that hold, in the order in which they were added; with `history` also those that ended."""
        with self.database.reading() as execute:
            return self._read(execute, history=history)

    def position(self) -> tuple[int, str]:
        """Return the latest revision and its mark."""
        with self.database.reading() as execute:
            return _position(execute)

    def read(self) -> tuple[list[Rule], tuple[int, str]]:
        """Return the rules that hold, and the revision and mark at which they are all of them."""
        with self.database.reading() as execute:
            return self._read(execute, history=False), _position(execute)

    def _read(self, execute: Execute, *, history: bool) -> list[Rule]:
        condition, arguments = ("", ()) if history else (f" WHERE {_HOLDS}", (self._now(),))
        rows = execute(f"SELECT {_COLUMNS} FROM kinrank_rules{condition} ORDER BY number", arguments)  # noqa: S608
        return [_to_rule(row) for row in rows]


def _check_place(execute: Execute, rule: Rule, key: str) -> None:
    """Raise `DataError` if another document is pinned to the place of a rule for the same query."""
    rows = execute(
        f"SELECT number, document FROM kinrank_rules WHERE query_key = ? AND action = ? AND places = ? AND {_HOLDS}",  # noqa: S608
        (key, str(Action.PIN), rule.places, rule.created),
    )
    if rows:
        number, document = rows[0]
        raise DataError(
            f"place {rule.places} of {rule.query!r} is taken: rule {number} pins {document!r} there; remove it first, "
            "or pin to another place"
        )


def _position(execute: Execute) -> tuple[int, str]:
    revision = revision_of(execute, STREAM)[0]
    return revision, mark_of(execute, STREAM, revision)


def _row(rule: Rule) -> tuple[Any, ...]:
    query, action, document, places, also_similar, *others = astuple(rule)
    return query, str(action), document, places, int(also_similar), *others


def _to_rule(row: tuple[Any, ...]) -> Rule:
    query, action, document, places, also_similar, *others = row
    return Rule(query, Action(action), document, places, bool(also_similar), *others)
