"""A bounded thread pool for blocking calls, so that the event loop stays free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from kinrank.serve.http.errors import HttpError

T = TypeVar("T")


class BoundedExecutor:
    """Runs blocking calls other than ranking: engines, weights, judgments, models.

    Parameters
    ----------
    threads
        Calls that run at a time.
    waiting
        Further calls that may wait. Beyond that, calls are rejected.
    """

    def __init__(self, threads: int = 8, waiting: int = 64) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="blocking")
        self._limit = threads + waiting
        self._pending = 0

    async def run(self, call: Callable[[], T], seconds: float | None) -> T:
        """Return the result of a call. After `seconds`, raise `TimeoutError` while the call runs to its end."""
        if self._pending >= self._limit:
            raise HttpError(503, "overloaded", "too many requests at once: try again in a moment")
        self._pending += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, call)
        future.add_done_callback(self._done)
        return await asyncio.wait_for(asyncio.shield(future), seconds)

    def close(self) -> None:
        """Accept no more calls."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self, future: asyncio.Future[T]) -> None:
        self._pending -= 1
        if not future.cancelled():
            future.exception()  # retrieve it, so that asyncio does not warn if nobody waits any more
