"""The threads of a service: one per model that ranks, and those that watch models and judgments."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial

from kinrank.errors import NotStoredError, RejectedModelError, StoreUnavailableError
from kinrank.memory._votes import RankCurve
from kinrank.rankers.capabilities import takes_evidence
from kinrank.serve._events.log import EventLog
from kinrank.serve._models import ModelSlot
from kinrank.serve._ranking import Batcher, BatchRanker, Schedule
from kinrank.serve.messages import Observer
from kinrank.serve.settings import Settings

_FAILURES = 12  # of the database in a row before they are reported: it does not help to count fewer events at a time
_REPORTS = 60.0  # seconds between reports of a failure that lasts


@dataclass
class _Failure:
    """What fails, how often it did in a row, whether that is worth a report, and when it was reported."""

    times: int = 0
    lasts: bool = False
    reported: float = -math.inf


@dataclass(eq=False, repr=False)
class Workers:
    """The threads of a service."""

    slots: Mapping[str, ModelSlot]
    """The models by name."""
    _: KW_ONLY
    settings: Settings
    """Deadlines and limits."""
    observer: Observer
    """Receives batches, events of models and errors."""
    expected: Callable[[str], int]
    """Returns how many rankings by a model are about to be submitted or wait."""
    watch: Iterable[Callable[[], None]]
    """Further functions to call every `Settings.watch_interval` seconds."""
    events: EventLog | None = None
    """What people choose, if the service takes that and judgments in."""

    def __post_init__(self) -> None:
        self._watched = [self._refresh, *self.watch]
        self.rankers = {
            name: BatchRanker(slot, max_novelty=self.settings.max_novelty, observer=self.observer)
            for name, slot in self.slots.items()
        }
        self.batchers: dict[str, Batcher] = {}
        self._stop = threading.Event()
        self._news = threading.Event()
        self._choices = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: dict[str, _Failure] = {}

    def start(self, *, strict: bool) -> None:
        """Start to rank, load the models, and watch them; see `Service.start`."""
        self.batchers = {name: self._batcher(name, ranker) for name, ranker in self.rankers.items()}
        try:
            self._load(strict=strict)
        except BaseException:
            self.close()
            raise
        # A database or a store that does not respond must not hold up the watch over models and keys.
        loops: dict[str, Callable[[], None]] = {"watch": self._watch}
        if self.events is not None:
            loops["learn"] = self._learn
            self.events.on_news = self._choices.set
            loops["events"] = partial(self._count, self.events)
        for name, slot in self.slots.items():
            if slot.source.is_remote:
                loops[f"poll-{name}"] = partial(self._poll, slot)
        self._threads = [threading.Thread(target=loop, name=name, daemon=True) for name, loop in loops.items()]
        for thread in self._threads:
            thread.start()

    def learn_soon(self) -> None:
        """Learn new judgments at once."""
        self._news.set()

    def close(self) -> None:
        """Finish the work in progress and stop the threads."""
        self._stop.set()
        self._news.set()
        self._choices.set()
        for thread in self._threads:
            thread.join(timeout=5.0)
        for batcher in self.batchers.values():
            batcher.close()

    def _batcher(self, name: str, ranker: BatchRanker) -> Batcher:
        return Batcher(
            ranker,
            on_batch=partial(self.observer.batch, name),
            on_drop=ranker.drop,
            on_error=lambda error: self.observer.error("rank", error),
            schedule=Schedule(backlog=self.settings.backlog, batch_size=self.settings.batch_size),
            batch_size=self.settings.batch_size,
            linger=self.settings.linger,
            expected=lambda: self.expected(name),
            name=f"rank-{name}",
        )

    def _load(self, *, strict: bool) -> None:
        for slot in self.slots.values():
            try:
                if not slot.refresh():
                    self.observer.model(slot.name, None, "missing", slot.source.missing)
                    raise RejectedModelError(slot.source.missing)
            except Exception as error:
                if strict:
                    raise
                self._report("start", error)

    def _watch(self) -> None:
        while not self._stop.wait(self.settings.watch_interval):
            for check in self._watched:
                try:
                    check()
                except Exception as error:  # the next check may succeed; nothing may end the watch
                    self._report("watch", error)

    def _learn(self) -> None:
        while not self._stop.is_set():
            self._news.wait(self.settings.watch_interval)
            self._news.clear()
            self._check_slots(ModelSlot.replay, self.slots.values())

    def _count(self, events: EventLog) -> None:
        last = False
        while not last:
            self._choices.wait(self.settings.watch_interval)
            self._choices.clear()
            last = self._stop.is_set()  # lists that were shown until now are stored
            if self._use_database(
                "events", lambda: events.step({name: _curve_of(slot) for name, slot in self.slots.items()})
            ):
                self.learn_soon()
                if events.more:
                    self._choices.set()
                # What arrives within half the interval is counted together, which leaves more time to rank.
                self._stop.wait(self.settings.watch_interval / (20 if events.more else 2))
            self._note("set-aside", events.problem, 1)

    def _use_database(self, where: str, action: Callable[[], None]) -> bool:
        """Run an action and return whether it succeeded; nothing may end the thread.

        A database that fails is reported once it has failed several times in a row, unless a model that learns from it
        reports that it cannot be read.
        """
        try:
            action()
        except StoreUnavailableError as error:
            told = any(slot.refusal for slot in self.slots.values())
            self._note(where, error, _FAILURES, quiet=told)
            return False
        except NotStoredError as error:
            self._note(where, error, _FAILURES)
            return False
        except Exception as error:
            self._note(where, error, 1)
            return False
        self._note(where, None, 1)
        return True

    def _note(self, where: str, error: Exception | None, patience: int, *, quiet: bool = False) -> None:
        """Note that something failed, or did not, and report it every minute for as long as it fails."""
        if error is None:
            self._failures.pop(where, None)
            return
        failure = self._failures.setdefault(where, _Failure())
        failure.times += 1
        failure.lasts = failure.times >= patience
        if failure.lasts and not quiet and time.monotonic() > failure.reported + _REPORTS:
            self._report(where, error)
            failure.reported = time.monotonic()

    @property
    def failing(self) -> list[str]:
        """What has been failing: ``events``, and ``set-aside`` (queries that cannot be counted)."""
        return sorted(where for where, failure in list(self._failures.items()) if failure.lasts)

    def _poll(self, slot: ModelSlot) -> None:
        while True:
            self._check_slots(ModelSlot.refresh, [slot])
            if self._stop.wait(self.settings.poll_interval):
                return

    def _refresh(self) -> None:
        self._check_slots(ModelSlot.refresh, [slot for slot in self.slots.values() if not slot.source.is_remote])

    def _check_slots(self, check: Callable[[ModelSlot], object], slots: Iterable[ModelSlot]) -> None:
        for slot in slots:
            try:
                check(slot)
            except Exception as error:  # one model must not keep the others from being checked
                self._report("watch", error)

    def _report(self, where: str, error: Exception) -> None:
        if not isinstance(error, RejectedModelError):  # the slot has reported those
            self.observer.error(where, error)


def _curve_of(slot: ModelSlot) -> RankCurve:
    """Return how ranks are examined according to the evidence of the model in use."""
    served = slot.current
    chosen = served.base.chosen_ if served is not None and takes_evidence(served.base) else None
    return RankCurve.of({} if chosen is None or chosen.evidence is None else chosen.evidence.meta)
