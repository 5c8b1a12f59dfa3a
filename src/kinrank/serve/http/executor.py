"""Lanes for blocking calls: each has its own threads, so that one that is full never blocks another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from kinrank.serve.http.errors import HttpError

T = TypeVar("T")


class Lane:
    """Runs blocking calls of one kind, so that the event loop stays free.

    Parameters
    ----------
    name
        What the calls wait for; errors name it.
    threads
        Calls that run at a time.
    waiting
        Further calls that may wait. Beyond that, calls are rejected.
    """

    def __init__(self, name: str, threads: int, waiting: int = 64) -> None:
        self._name = name
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name.replace(" ", "-"))
        self._limit = threads + waiting
        self._pending = 0

    async def run(
        self, call: Callable[[], T], seconds: float | None, late: Callable[[], Exception] = TimeoutError
    ) -> T:
        """Return the result of a call. After `seconds`, raise what `late` makes, and leave a call that runs alone.

        A call that has not started by then never does.
        """
        if self._pending >= self._limit:
            raise HttpError(503, "overloaded", f"too many requests wait for {self._name}: try again in a moment")
        if seconds is not None and seconds <= 0:
            raise late()
        self._pending += 1
        loop = asyncio.get_running_loop()
        future = self._pool.submit(copy_context().run, call)
        future.add_done_callback(partial(self._done, loop))
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), seconds)
        except TimeoutError:
            if future.done() and not future.cancelled():  # it ended in this very moment, or raised it itself
                return future.result()
            future.cancel()
            raise late() from None

    def close(self) -> None:
        """Accept no more calls."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self, loop: asyncio.AbstractEventLoop, _: Future[T]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._count_down)

    def _count_down(self) -> None:
        self._pending -= 1
