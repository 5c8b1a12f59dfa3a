"""Retry requests to an engine that is overloaded, slow or briefly unreachable, with fewer requests at a time."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

from kinrank.errors import EngineBusyError, EngineTimeoutError, EngineUnreachableError, ParameterError

TRANSIENT_ERRORS = (EngineBusyError, EngineTimeoutError, EngineUnreachableError)
"""Errors that a retry may resolve."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class ConcurrencyLimit:
    """Adaptive limit of requests in flight: halved after each failure, increased slowly after each success.

    Parameters
    ----------
    maximum
        Initial limit, which is never exceeded.

    Examples
    --------
    >>> limit = ConcurrencyLimit(8)
    >>> limit.decrease()
    >>> limit.value
    4.0
    """

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.value = float(maximum)
        self._in_flight = 0
        self._changed = threading.Condition()

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Wait for a free slot and hold it within the block."""
        with self._changed:
            self._changed.wait_for(lambda: self._in_flight < max(1, int(self.value)))
            self._in_flight += 1
        try:
            yield
        finally:
            with self._changed:
                self._in_flight -= 1
                self._changed.notify()

    def decrease(self) -> None:
        """Halve the limit, to at least one."""
        with self._changed:
            self.value = max(1.0, self.value / 2)

    def increase(self) -> None:
        """Increase the limit by one per as many successes as there are slots."""
        with self._changed:
            self.value = min(float(self.maximum), self.value + 1 / self.value)
            self._changed.notify()


@dataclass(eq=False, repr=False)
class RetryingPool:
    """Thread pool that retries failed requests and adapts the number of requests in flight.

    Attributes
    ----------
    limit : ConcurrencyLimit
        Current limit of requests in flight.
    retries : int
        Number of retries so far.
    """

    workers: int
    """Maximum number of requests in flight."""
    _: KW_ONLY
    retry_for: float = 120.0
    """Seconds after which a request is no longer retried and its last error is raised."""
    first_pause: float = 0.1
    longest_pause: float = 5.0
    """Seconds before the first retry, and at most. The pause doubles with each retry and is partly random, so that
    requests do not retry all at once.
    """

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ParameterError(f"workers must be at least 1, got {self.workers}")
        self.limit = ConcurrencyLimit(self.workers)
        self.retries = 0
        self._lock = threading.Lock()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield the results in the order of the items, consuming at most two items per worker ahead.

        Examples
        --------
        >>> list(RetryingPool(2).map(lambda x: x * x, [1, 2, 3]))
        [1, 4, 9]
        """
        pending: deque[Future[Result]] = deque()
        stop = threading.Event()
        with ThreadPoolExecutor(self.workers) as threads:
            try:
                for item in items:
                    if len(pending) == 2 * self.workers:
                        yield pending.popleft().result()
                    pending.append(threads.submit(self._call, function, item, stop))
                while pending:
                    yield pending.popleft().result()
            finally:
                stop.set()
                threads.shutdown(cancel_futures=True)

    def _call(self, function: Callable[[Item], Result], item: Item, stop: threading.Event) -> Result:
        deadline = time.monotonic() + self.retry_for
        pause = self.first_pause
        while True:
            try:
                with self.limit.slot():
                    if stop.is_set():  # the result is no longer needed
                        raise CancelledError
                    result = function(item)
            except TRANSIENT_ERRORS:
                self.limit.decrease()
                if time.monotonic() + pause > deadline:
                    raise
                with self._lock:
                    self.retries += 1
                stop.wait(random.uniform(pause / 2, pause))  # noqa: S311 - not for cryptography
                pause = min(2 * pause, self.longest_pause)
            else:
                self.limit.increase()
                return result
