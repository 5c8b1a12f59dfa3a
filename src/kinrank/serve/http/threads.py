"""Calls that may block, beside the event loop: a bounded number, each with an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kinrank.serve.http.problems import Problem

T = TypeVar("T")


class SideThreads:
    """A few threads for what is rarer than ranking: engines, weights, judgments, models.

    Parameters
    ----------
    threads
        How many calls run at a time.
    waiting
        How many more may wait; beyond it requests are turned away.
    """

    def __init__(self, threads: int = 8, waiting: int = 64) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="side")
        self._most = threads + waiting
        self._now = 0

    async def run(self, call: Callable[[], T], seconds: float | None) -> T:
        """The result of a call; `TimeoutError` after so many seconds, while the call goes on to its own end."""
        if self._now >= self._most:
            raise Problem(503, "overloaded", "too many requests at once: ask again in a moment")
        self._now += 1
        running = asyncio.get_running_loop().run_in_executor(self._pool, call)
        running.add_done_callback(self._done)
        return await asyncio.wait_for(asyncio.shield(running), seconds)

    def close(self) -> None:
        """Take no more calls."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self, running: asyncio.Future[T]) -> None:
        self._now -= 1
        if not running.cancelled():
            running.exception()  # looked at, so that a call nobody waits for any more ends without a word
