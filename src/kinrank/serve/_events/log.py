"""Take in what people are shown and choose, count it, and hand the counts to models."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kinrank.data.hashes import hash_texts, query_keys
from kinrank.errors import NotStoredError, OtherHistoryError, StoreUnavailableError
from kinrank.memory._votes import MAX_RANK, RankCurve
from kinrank.memory.evidence import Evidence, chosen_ids
from kinrank.serve._database import open_database, parts, placeholders
from kinrank.serve._events.clients import ClientHashes
from kinrank.serve._events.store import CellRow, ClickRecord, EventStore, ListRecord
from kinrank.serve._served_model import Follower, ServedModel
from kinrank.serve.messages import Observer


class EvidenceFeed(Follower):
    """Follows the cells of one model, and hands them to the versions of the model that are in use."""

    what = "choices"

    def __init__(self, name: str, store: EventStore, first_day: Callable[[], int], observer: Observer) -> None:
        super().__init__(name, observer)
        self._store = store
        self._first_day = first_day
        self._lock = threading.Lock()
        self._evidence: Evidence | None = None
        self._position = 0, ""

    def update(self, served: ServedModel) -> ServedModel:
        """Return the model with the latest evidence, or with that of before if the database is away."""
        if served.choices is None:
            return served
        with self._lock:
            try:
                self._read_changes()
                self.failure = None
            except Exception as error:  # a store that is away must not stop a good model
                self._report(served, error)
            self._expire()
            evidence, (revision, mark) = self._evidence, self._position
        if served.ranker.recent_ is evidence:
            return served
        ranker = served.ranker.with_recent(evidence)
        return replace(served, ranker=ranker, evidence=revision, evidence_mark=mark)

    @property
    def revision(self) -> int:
        """The revision up to which all choices were read, of this and other models."""
        return self._position[0]

    def _read_changes(self) -> None:
        try:
            self._read()
        except OtherHistoryError:  # an older copy of the database was restored
            anew = EvidenceFeed(self._name, self._store, self._first_day, self._observer)
            anew._read()
            self._evidence, self._position = anew._evidence, anew._position

    def _read(self) -> None:
        while True:
            since, mark = self._position
            changes = self._store.read(self._name, since, mark=mark)
            if changes.cells:
                new = _to_evidence(changes.cells)
                self._evidence = new if self._evidence is None else self._evidence.updated(new)
            self._position = changes.through, changes.mark
            if changes.through == changes.revision:
                return

    def _expire(self) -> None:
        first = self._first_day()
        if self._evidence is not None and self._evidence.days is not None and self._evidence.days[0] < first:
            self._evidence = self._evidence.since(first)


def _to_evidence(cells: list[CellRow]) -> Evidence:
    query, document, day, looks, choices, few = zip(*cells, strict=True)
    keys = np.array(query, dtype=np.int64).view(np.uint64)
    documents = np.array(document, dtype=np.str_)
    found = Evidence.from_hashes(keys, hash_texts(documents), looks, choices, day, few)
    return Evidence(found.get_state(), ids=chosen_ids(documents, choices))


RAW_DAYS = 2
"""Full days after which lists and clicks are deleted; what was counted stays."""
_DAY = 86_400
_WAITING = 10_000  # shown lists that wait to be stored; further ones replace the oldest
_HOUR = 3_600.0
_MINUTE = 60.0
_SECONDS = 0.5  # that one step deletes, and that it counts
_GAP = 0.11  # seconds between two transactions: a writer that waits for SQLite looks every tenth of a second
_RECENT, _FIRST = 500, 50  # queries that were just asked, and how many of them are counted first in a transaction
_TEXTS = 100_000  # of queries that wait to be named


class Shown(NamedTuple):
    """A list that someone was shown."""

    query_id: str
    model: str
    text: str
    documents: Sequence[str]
    client: str | None
    time: float | None
    """Seconds since 1970; None: when it is stored."""
    explored: float | None = None
    """The share of lists that explore, if this one did."""


class Click(NamedTuple):
    """A document that someone chose."""

    event_id: str
    query_id: str
    document: str
    value: float = 1.0


def _event_key(click: Click) -> str:
    """Return what names a click among those of all clients: an id of an event is one within its list alone.

    Examples
    --------
    >>> one, other = Click("1", "list 1", "d7"), Click("1", "list 2", "d7")
    >>> _event_key(one) == _event_key(other), _event_key(one) == _event_key(Click(*one))
    (False, True)
    """
    text = f"{click.query_id}\0{click.event_id}".encode(errors="surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


class EventLog:
    """What people are shown and choose, in the database of the judgments, on a connection of its own.

    Documents that fewer than `min_clients` were shown for a query are no evidence, and those that fewer chose are
    not lifted. Counts are deleted after some `days`. `now` is by default the clock of the database, which all
    replicas share: one whose own clock is wrong must not date what it shows wrongly, nor delete what others have
    counted.
    """

    def __init__(
        self,
        address: str,
        *,
        min_clients: int = 3,
        days: int = 35,
        secret: bytes = b"",
        now: Callable[[], float] | None = None,
    ) -> None:
        self.store = EventStore(open_database(address), min_clients)
        self.clients = ClientHashes(self.store, secret)
        # Neither ranking nor those who send events wait for what is counted.
        self._reading = EventStore(open_database(address), min_clients)
        self.counting = EventStore(open_database(address), min_clients)
        self._days = days
        self._clock = time.time if now is None and self.store.database.is_local else now
        self._offset: float | None = None
        self._synchronized = -_MINUTE
        self._waiting: deque[Shown] = deque(maxlen=_WAITING)
        self._recent: deque[tuple[str, int]] = deque(maxlen=_RECENT)
        self._texts: dict[str, dict[int, str]] = {}
        self._lock = threading.Lock()
        self._expired_at = -_HOUR
        self._looked_at = -_HOUR
        self.more = False
        """Whether there may be more to count."""
        self.backlog = 0
        """How many lists wait to be counted, of all replicas."""
        self.stored = Counter[str](lists=0, clicks=0, unsigned=0)
        """How many lists and clicks this process has stored, and how many lists count as those of their caller."""
        self.on_news: Callable[[], None] = lambda: None
        """Called when there is something to count."""

    def now(self) -> float:
        """Return the seconds since 1970; by the clock of this machine until the database has told its own."""
        if self._clock is not None:
            return self._clock()
        return time.time() if self._offset is None else time.monotonic() + self._offset

    @property
    def moment(self) -> float | None:
        """The seconds since 1970; None until the database has told its clock: that of this machine may be wrong."""
        return None if self._clock is None and self._offset is None else self.now()

    def _synchronize(self, store: EventStore) -> None:
        if self._clock is None and time.monotonic() > self._synchronized + _MINUTE:
            self._offset = store.database.now() - time.monotonic()
            self._synchronized = time.monotonic()
        if store is self.counting:
            self.clients.prepare(self.today)

    @property
    def today(self) -> int:
        """The days since 1970."""
        return int(self.now() // _DAY)

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

    def attributed(self, lists: Sequence[Shown], caller: str | None) -> tuple[list[Shown], int]:
        """Return lists with the caller in place of clients that it may have invented, and how many of them there are.

        Lists of a caller that were not handed out by this service count as those of one client. None: it may
        name clients.
        """
        if caller is None:
            return list(lists), 0
        today = self.today
        own = [
            not (shown.client and shown.documents) or self.clients.is_signed(shown.query_id, shown.client, today)
            for shown in lists
        ]
        attributed = [
            shown if signed else shown._replace(client=caller) for shown, signed in zip(lists, own, strict=True)
        ]
        with self._lock:
            self.stored["unsigned"] += own.count(False)
        return attributed, own.count(False)

    def record(self, lists: Sequence[Shown], clicks: Sequence[Click]) -> dict[str, int]:
        """Store lists and clicks durably, and return how many of them do not count, by reason.

        If that raises `NotStoredError`, they can be sent again.
        """
        if self._offset is None:
            with suppress(StoreUnavailableError):  # storing them will tell
                self._synchronize(self.store)
        ignored: dict[str, int] = {}
        records = []
        explored = []
        texts: dict[str, dict[int, str]] = {}
        keys = query_keys(np.array([shown.text for shown in lists], dtype=np.str_)).view(np.int64).tolist()
        today = self.today
        for shown, query in zip(lists, keys, strict=True):
            day = today if shown.time is None else int(shown.time // _DAY)
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
        clicked = [ClickRecord(_event_key(click), *click[1:], today) for click in clicks]
        self.store.add(records, clicked, explored)
        with self._lock:
            self._recent.extend({(row.model, row.query): None for row in records})
            self.stored["lists"] += len(records)
            self.stored["clicks"] += len(clicks)
            for model, named in texts.items():
                known = self._texts.setdefault(model, {})
                known.update(named)
                for query in list(known)[: max(len(known) - _TEXTS, 0)]:
                    del known[query]
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
        """Delete what is old, store the lists that were shown, and count some of what is new; `more` says if all is.

        Each part is tried, whatever happens to the others.
        """
        with ExitStack() as parts:  # which run from the last to the first, and raise at the end
            parts.callback(self._count, curves)
            parts.callback(self._store_shown)
            parts.callback(self._expire)
            parts.callback(self._synchronize, self.counting)

    def _expire(self) -> None:
        if time.monotonic() > self._expired_at + _HOUR:
            if self._clock is None and self._offset is None:
                return  # the clock of this machine may be wrong
            if self.counting.expire(self.today - RAW_DAYS, self._first_day, _SECONDS):
                self._expired_at = time.monotonic()

    def _store_shown(self) -> None:
        shown = [self._waiting[place] for place in range(len(self._waiting))]
        if shown:
            self.record(shown, [])
            stored = {id(each) for each in shown}
            while self._waiting and id(self._waiting[0]) in stored:  # only now, so that none is unknown meanwhile
                self._waiting.popleft()

    def _count(self, curves: Mapping[str, RankCurve]) -> None:
        end = time.monotonic() + _SECONDS
        self.more = True
        while self.more and time.monotonic() < end:
            recent = [self._recent.pop() for _ in range(min(len(self._recent), _FIRST))]
            self.more = self.counting.count(curves, list(dict.fromkeys(recent)))
            if self.more and self.counting.database.is_local:
                time.sleep(_GAP)
        if time.monotonic() > self._looked_at + _SECONDS or not self.more:
            self.backlog = self.counting.waiting()
            self._looked_at = time.monotonic()
        if not self.more:
            with self._lock:
                texts, self._texts = self._texts, {}
            for model, named in texts.items():
                self.counting.name_queries(model, named)

    @property
    def problem(self) -> NotStoredError | None:
        """Why some queries are not counted; None if all are."""
        aside = list(self.counting.aside.values())
        if not aside:
            return None
        return NotStoredError(f"{len(aside)} queries are not counted, and tried again later: {aside[0].error}")

    def close(self) -> None:
        """Close the connections."""
        for store in (self.store, self._reading, self.counting):
            store.database.close()
