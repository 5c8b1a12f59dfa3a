"""The rules of a running service: changed in the database, followed by every replica."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from kinrank.errors import UnsupportedByModelError
from kinrank.serve._database import open_database
from kinrank.serve._kept import KeptCopy
from kinrank.serve._rules import Effect, Preview, Rule, RuleBook, RuleStore, effects_of, preview


class LiveRules:
    """Rules in the database of the judgments, on connections of their own.

    Parameters
    ----------
    address
        The database; see `kinrank.serve._database.open_database`. None: there are no rules, and none can be added.
    now
        Returns the seconds since 1970.
    kept
        A copy of the rules on this machine, which hold until the database can be read.
    """

    def __init__(self, address: str | None, now: Callable[[], float] = time.time, kept: KeptCopy | None = None) -> None:
        stores = [] if address is None else [RuleStore(open_database(address), now) for _ in range(2)]
        self._stores = stores  # ranking does not wait for writers
        self._now = now
        self._position: tuple[int, str] | None = None
        self._kept = kept
        known = None if kept is None else kept.rules()
        self.known = known is not None
        """Whether the rules were read, from the database or from the copy."""
        self.book = RuleBook(known or (), now)
        """The rules that this process ranks by."""
        self.on_news: Callable[[], None] = lambda: None
        """Called when a rule was changed here."""

    def __bool__(self) -> bool:
        return bool(self._stores)

    @property
    def store(self) -> RuleStore:
        """Where rules are changed. Raise `UnsupportedByModelError` without a database."""
        if not self._stores:
            raise UnsupportedByModelError("this service does not keep rules: start it with --judgments")
        return self._stores[0]

    def add(self, rule: Rule) -> Rule:
        """Store a rule durably and return it with its number; every replica follows it shortly after."""
        added = self.store.add(rule)
        self.on_news()
        return added

    def remove(self, number: int, author: str) -> Rule | None:
        """End a rule and return it; None if no such rule holds."""
        removed = self.store.remove(number, author)
        self.on_news()
        return removed

    def preview(self, query: str, *, also_similar: bool, others: Iterable[str] = ()) -> Preview:
        """Return the known queries that a rule would be for; see `kinrank.serve._rules.preview`."""
        return preview(self.store.database, query, also_similar=also_similar, others=others)

    def effects(self, rules: Sequence[Rule]) -> dict[int, Effect]:
        """Return what people did with the documents of rules; see `kinrank.serve._rules.effects_of`."""
        return effects_of(self.store.database, rules, self._now())

    def refresh(self) -> None:
        """Read the rules if they have changed. Raise `StoreUnavailableError` if the database is away."""
        following = self._stores[1]
        if following.position() != self._position:
            rules, self._position = following.read()
            self.book = RuleBook(rules, self._now)
            if self._kept is not None:
                self._kept.keep_rules(rules)
        self.known = True

    def close(self) -> None:
        """Close the connections."""
        for store in self._stores:
            store.database.close()
