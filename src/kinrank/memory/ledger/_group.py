"""Group commit: what several threads want to store at once becomes one transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class _Waiting(Generic[T]):
    def __init__(self, item: T) -> None:
        self.item = item
        self.woken = threading.Event()  # because it is done, or to store what waits
        self.done = False
        self.error: BaseException | None = None


class Group(Generic[T]):
    """Hands items of several threads to one call of a function.

    The first thread that comes hands over its item. Those that come meanwhile wait, and then one of them hands over
    all of theirs.

    Examples
    --------
    >>> batches = []
    >>> Group(batches.append).add("vote")
    >>> batches
    [['vote']]
    """

    def __init__(self, store: Callable[[Sequence[T]], None]) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._busy = False
        self._waiting: list[_Waiting[T]] = []

    def add(self, item: T) -> None:
        """Hand over an item, and return when it is stored. If its batch failed, raise what the function raised."""
        mine = _Waiting(item)
        with self._lock:
            self._waiting.append(mine)
            if not self._busy:
                self._busy = True
                mine.woken.set()
        try:
            mine.woken.wait()
        except BaseException:  # somebody ends the program: others must not wait for this thread
            with self._lock:
                if mine in self._waiting:
                    self._waiting.remove(mine)
                    if mine.woken.is_set():
                        self._wake_next()
            raise
        if not mine.done:
            self._store_waiting()
        if mine.error is not None:
            raise mine.error

    def _store_waiting(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, []
        error: BaseException | None = None
        try:
            self._store([each.item for each in batch])
        except BaseException as raised:
            error = raised
        for each in batch:
            each.done, each.error = True, error
        with self._lock:
            self._wake_next()
        for each in batch:
            each.woken.set()

    def _wake_next(self) -> None:
        self._busy = bool(self._waiting)
        if self._waiting:
            self._waiting[0].woken.set()
