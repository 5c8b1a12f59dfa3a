"""How a long job asks an engine that is busy, slow or away for a moment: again, later, and less at a time."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from kinrank.errors import EngineBusyError, EngineTimeoutError, EngineUnreachableError, ParameterError

PASSING = (EngineBusyError, EngineTimeoutError, EngineUnreachableError)
"""Errors that asking again may cure."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class ConcurrencyLimit:
    """How many requests may be under way: fewer after each sign of overload, slowly more after each success.

    Parameters
    ----------
    most
        Where it starts, and what it never exceeds.

    Examples
    --------
    >>> gate = ConcurrencyLimit(8)
    >>> gate.narrow()
    >>> gate.width
    4.0
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.width = float(most)
        self._inside = 0
        self._changed = threading.Condition()

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Wait until there is room, and take it for the time of the block."""
        with self._changed:
            self._changed.wait_for(lambda: self._inside < max(1, int(self.width)))
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify()

    def narrow(self) -> None:
        """Half as many from now on, at least one."""
        with self._changed:
            self.width = max(1.0, self.width / 2)

    def widen(self) -> None:
        """One more after as many successes as there is room."""
        with self._changed:
            self.width = min(float(self.most), self.width + 1 / self.width)
            self._changed.notify()


class RetryingPool:
    """Threads that ask an engine, no more at a time than it bears, each question again until it is answered.

    Parameters
    ----------
    workers
        How many questions may be under way.
    retry_for
        Seconds after which a question that is not answered is given up, and its last error raised.
    first_pause, longest_pause
        Seconds between two tries, doubled each time; the pause is a random part of it, so that tries do not march in
        step.

    Attributes
    ----------
    retries : int
        How many times a question was asked again.
    """

    def __init__(
        self, workers: int, *, retry_for: float = 120.0, first_pause: float = 0.1, longest_pause: float = 5.0
    ) -> None:
        if workers < 1:
            raise ParameterError(f"workers must be at least 1, got {workers}")
        self.workers = workers
        self.retry_for = retry_for
        self.first_pause = first_pause
        self.longest_pause = longest_pause
        self.retries = 0
        self._gate = ConcurrencyLimit(workers)
        self._counting = threading.Lock()

    def map(self, ask: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
        """The answers, in the order of the items; no more than two questions per worker are taken ahead.

        Examples
        --------
        >>> list(RetryingPool(2).map(lambda x: x * x, [1, 2, 3]))
        [1, 4, 9]
        """
        waiting: deque[Future[Answer]] = deque()
        stop = threading.Event()
        with ThreadPoolExecutor(self.workers) as threads:
            try:
                for item in items:
                    if len(waiting) == 2 * self.workers:
                        yield waiting.popleft().result()
                    waiting.append(threads.submit(self._ask, ask, item, stop))
                while waiting:
                    yield waiting.popleft().result()
            finally:
                stop.set()
                threads.shutdown(cancel_futures=True)

    def _ask(self, ask: Callable[[Item], Answer], item: Item, stop: threading.Event) -> Answer:
        give_up = time.monotonic() + self.retry_for
        pause = self.first_pause
        while True:
            try:
                with self._gate.passing():
                    if stop.is_set():  # nobody waits for the answer any more
                        raise CancelledError
                    answer = ask(item)
            except PASSING:
                self._gate.narrow()
                if time.monotonic() + pause > give_up:
                    raise
                with self._counting:
                    self.retries += 1
                stop.wait(random.uniform(pause / 2, pause))  # noqa: S311 - no secret
                pause = min(2 * pause, self.longest_pause)
            else:
                self._gate.widen()
                return answer
