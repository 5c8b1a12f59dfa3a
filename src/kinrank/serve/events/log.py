"""Take in what people are shown and choose, and count it."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from kinrank.data.hashes import query_keys
from kinrank.errors import StoreUnavailableError
from kinrank.memory.votes import MAX_RANK, RankCurve
from kinrank.serve.database import open_database
from kinrank.serve.database.rows import parts, placeholders
from kinrank.serve.events.clients import ClientHashes
from kinrank.serve.events.feed import EvidenceFeed
from kinrank.serve.events.records import ClickRecord, ListRecord
from kinrank.serve.events.store import EventStore
from kinrank.serve.observer import Observer
from kinrank.serve.settings import Settings

RAW_DAYS = 2
"""Full days after which lists and clicks are deleted; what was counted stays."""
_DAY = 86_400
_WAITING = 10_000  # shown lists that wait to be stored; further ones replace the oldest
_HOUR = 3_600.0


class Shown(NamedTuple):
    """A list that someone was shown."""

    query_id: str
    model: str
    text: str
    documents: Sequence[str]
    client: str | None
    time: float
    """Seconds since 1970."""
    explored: float | None = None
    """The share of lists that explore, if this one did."""


class Click(NamedTuple):
    """A document that someone chose."""

    event_id: str
    query_id: str
    document: str
    value: float = 1.0


class EventLog:
    """What people are shown and choose, in the database of the judgments, on a connection of its own.

    Parameters
    ----------
    address
        The database; see `kinrank.serve.database.open_database`.
    min_clients
        Documents that fewer clients were shown for a query are no evidence, and those that fewer chose are not lifted.
    days
        Days after which counts are deleted.
    secret
        Mixed into the hashes of clients; see `ClientHashes`.
    now
        Returns the seconds since 1970.
    """

    def __init__(
        self,
        address: str,
        *,
        min_clients: int = 3,
        days: int = 35,
        secret: bytes = b"",
        now: Callable[[], float] = time.time,
    ) -> None:
        self.store = EventStore(open_database(address), min_clients)
        self.clients = ClientHashes(self.store, secret)
        self._reading = EventStore(open_database(address), min_clients)  # ranking does not wait for writers
        self._days = days
        self._now = now
        self._waiting: deque[Shown] = deque(maxlen=_WAITING)
        self._texts: dict[str, dict[int, str]] = {}
        self._lock = threading.Lock()
        self._expired_at = -_HOUR
        self.on_news: Callable[[], None] = lambda: None
        """Called when there is something to count."""

    @classmethod
    def of(cls, address: str, settings: Settings, secret: bytes) -> EventLog:
        """Return the events of a service."""
        return cls(address, min_clients=settings.min_clients, days=settings.choice_days, secret=secret)

    @property
    def today(self) -> int:
        """The days since 1970."""
        return int(self._now() // _DAY)

    @property
    def _first_day(self) -> int:
        """The first day whose counts are kept."""
        return self.today - self._days

    def feed(self, model: str, observer: Observer) -> EvidenceFeed:
        """Return what follows the evidence of a model, and reports if it cannot."""
        return EvidenceFeed(model, self._reading, lambda: self._first_day, observer)

    def show(self, shown: Shown) -> None:
        """Store a list soon. It may be lost if the process is killed within the second."""
        self._waiting.append(shown)

    def unknown(self, clicks: Iterable[Click], lists: Iterable[Shown]) -> int:
        """Return how many clicks are on lists that are neither stored, nor about to be, nor among `lists`.

        They count if their list comes in while clicks are kept.
        """
        known = {shown.query_id for shown in (*lists, *self._waiting.copy())}
        asked = Counter(click.query_id for click in clicks if click.query_id not in known)
        with suppress(StoreUnavailableError):  # they are stored: this is for the answer only
            for some in parts(list(asked)):
                with self.store.database.reading() as execute:
                    wanted = f"SELECT list FROM kinrank_lists WHERE list IN ({placeholders(some)})"  # noqa: S608
                    for (name,) in execute(wanted, tuple(some)):
                        del asked[name]
            return asked.total()
        return 0

    def record(self, lists: Sequence[Shown], clicks: Sequence[Click]) -> dict[str, int]:
        """Store lists and clicks durably, and return how many of them do not count, by reason.

        Raises
        ------
        NotStoredError
            The database did not confirm them. Send them again: that is safe, whether or not it has them.
        """
        ignored: dict[str, int] = {}
        records = []
        explored = []
        texts: dict[str, dict[int, str]] = {}
        keys = query_keys(np.array([shown.text for shown in lists], dtype=np.str_)).view(np.int64).tolist()
        today = self.today
        for shown, query in zip(lists, keys, strict=True):
            day = int(shown.time // _DAY)
            reason = self._reason(shown, day, today)
            if reason is not None:
                ignored[reason] = ignored.get(reason, 0) + 1
                continue
            client = self.clients(shown.client or shown.query_id, day)
            documents = json.dumps([*shown.documents[:MAX_RANK]], ensure_ascii=False, separators=(",", ":"))
            records.append(ListRecord(shown.query_id, shown.model, query, day, client, documents))
            if shown.explored is not None:
                explored.append((shown.query_id, shown.explored, day))
            texts.setdefault(shown.model, {})[query] = shown.text
        self.store.add(records, [ClickRecord(*click, today) for click in clicks], explored)
        with self._lock:
            for model, named in texts.items():
                self._texts.setdefault(model, {}).update(named)
        self.on_news()
        return ignored

    def _reason(self, shown: Shown, day: int, today: int) -> str | None:
        """Return why a list does not count; None if it does."""
        if not shown.text.strip():
            return "no query text"
        if not shown.documents:
            return "no documents"
        if any("\0" in value for value in (shown.query_id, shown.text, *shown.documents)):
            return "NUL characters"  # PostgreSQL cannot store them
        if shown.client is None and self.store.min_clients > 1:
            return "no client"
        if day < today - 1:
            return "too old"
        return "in the future" if day > today + 1 else None

    def step(self, curves: Mapping[str, RankCurve]) -> None:
        """Store the lists that were shown, count what is new, and delete what is old.

        Parameters
        ----------
        curves
            How ranks are examined, by model.
        """
        shown = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if shown:
            try:
                self.record(shown, [])
            except BaseException:
                self._waiting.extendleft(reversed(shown))
                raise
        while self.store.count(curves):
            pass
        with self._lock:
            texts, self._texts = self._texts, {}
        for model, named in texts.items():
            self.store.name_queries(model, named)
        if time.monotonic() > self._expired_at + _HOUR:
            self.store.expire(self.today - RAW_DAYS, self._first_day)
            self._expired_at = time.monotonic()

    def close(self) -> None:
        """Close the connections."""
        self.store.database.close()
        self._reading.database.close()
