"""Ask a part that keeps failing less often: a circuit breaker, and a budget for second requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from kinrank.engines.base import TRANSIENT_ERRORS
from kinrank.errors import EngineError, EngineFailedError, EngineUnreachableError

FAILURES = (*TRANSIENT_ERRORS, EngineFailedError)
"""Errors that tell about the engine, not about the request."""

T = TypeVar("T")


class CircuitBreaker:
    """Stops calls to an engine that failed several times in a row, and lets one through now and then.

    A call that fails fast costs the caller nothing, and an overloaded engine gets time to recover.

    It takes `failures` calls in a row. One call is let through again after a `pause`, which doubles each time that
    it fails.

    Examples
    --------
    >>> from kinrank.errors import EngineTimeoutError
    >>> def slow() -> None:
    ...     raise EngineTimeoutError("no response within 1 s")
    >>> breaker = CircuitBreaker("search", failures=1)
    >>> for _ in range(2):
    ...     try:
    ...         breaker.call(slow)
    ...     except EngineError as error:
    ...         print(error)
    no response within 1 s
    search failed 1 times in a row and is not tried for 1 s; the last error: no response within 1 s
    """

    def __init__(
        self,
        name: str,
        *,
        failures: int = 5,
        pause: float = 1.0,
        longest_pause: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._limit = failures
        self._first_pause = pause
        self._longest_pause = longest_pause
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._last_error: EngineError | None = None
        self._pause = pause
        self._closed_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether calls are refused, apart from those that test the engine."""
        return self._failures >= self._limit

    def call(self, request: Callable[[], T]) -> T:
        """Return what the request returns, or raise `EngineUnreachableError` without sending it."""
        with self._lock:
            turn = self._check()
        try:
            result = request()
        except FAILURES as error:
            with self._lock:
                self._count(error)
            raise
        except Exception:  # the request was wrong, which tells nothing about the engine: the next call may test it
            with self._lock:
                if self._closed_until == turn:
                    self._closed_until = self._clock()
            raise
        self._reset()
        return result

    def _check(self) -> float:
        """Return until when this call is the only one, if the engine is failing. Raise if it is not its turn."""
        now = self._clock()
        if self.is_open and now < self._closed_until:
            raise EngineUnreachableError(
                f"{self._name} failed {self._failures} times in a row and is not tried for"
                f" {self._closed_until - now:.2g} s; the last error: {self._last_error}"
            )
        self._closed_until = now + self._pause
        return self._closed_until

    def _count(self, error: EngineError) -> None:
        self._failures += 1
        self._last_error = error
        if self._failures > self._limit:
            self._pause = min(2 * self._pause, self._longest_pause)
        self._closed_until = self._clock() + self._pause

    def _reset(self) -> None:
        with self._lock:
            self._failures = 0
            self._pause = self._first_pause


class RetryBudget:
    """Permits second requests for a share of the first ones, so that they never multiply the load of a slow engine.

    Examples
    --------
    >>> budget = RetryBudget(share=0.5, burst=1)
    >>> budget.spend(), budget.spend()
    (True, False)
    >>> budget.earn(), budget.earn(), budget.spend()
    (None, None, True)
    """

    def __init__(self, share: float = 0.1, burst: int = 10) -> None:
        self._share = share
        self._burst = float(burst)
        self._left = float(burst)
        self._lock = threading.Lock()

    def earn(self) -> None:
        """Count a first request."""
        with self._lock:
            self._left = min(self._burst, self._left + self._share)

    def spend(self) -> bool:
        """Return whether a second request may be sent, and count it."""
        with self._lock:
            if self._left < 1:
                return False
            self._left -= 1
            return True
