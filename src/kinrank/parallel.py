"""Who does the many equal pieces of a large job: this process, its threads, other processes, or whoever was asked to.

A ranker that learns many models asks `current` for an executor and never knows which one it is. `kinrank.scale` has
another: Ray.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from threadpoolctl import threadpool_limits

from kinrank.errors import JobError, ParameterError

T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    """Calls a function for every item, somewhere, in any order.

    What it calls must depend on the item alone: it may be called in another process, and again where that one died.
    """

    def map_unordered(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        """The position of an item and its result, as they come."""
        ...


class Serial:
    """One after the other, in this process.

    Examples
    --------
    >>> list(Serial().map_unordered(abs, [-1, -2]))
    [(0, 1), (1, 2)]
    """

    def map_unordered(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        """In the order of the items, each when it is asked for."""
        return ((position, function(item)) for position, item in enumerate(items))


class Threads:
    """Threads of this process, for what is compiled and leaves the interpreter's lock alone.

    Parameters
    ----------
    n_threads
        How many; None for as many as there are cores.
    """

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads

    def map_unordered(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        """As they finish; BLAS is told to use one thread in each."""
        with threadpool_limits(1), ThreadPoolExecutor(self.n_threads) as threads:
            positions = {threads.submit(function, item): position for position, item in enumerate(items)}
            for done in as_completed(positions):
                yield positions[done], done.result()


class Processes:
    """Processes of this machine, which end when this one does, however it ends.

    Parameters
    ----------
    n_workers
        How many.

    Examples
    --------
    >>> sorted(Processes(2).map_unordered(abs, [-1, -2]))
    [(0, 1), (1, 2)]
    """

    def __init__(self, n_workers: int) -> None:
        if n_workers < 1:
            raise ParameterError(f"n_workers must be at least 1, got {n_workers}")
        self.n_workers = n_workers

    def map_unordered(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        """As they finish; no more than two items a worker are under way."""
        if len(items) < 2:  # not worth starting processes
            yield from Serial().map_unordered(function, items)
            return
        # Not fork: the threads of BLAS and Arrow do not survive it.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self.n_workers, context, initializer=_start, initargs=(function,))
        with pool:
            under_way: dict[Future[Any], int] = {}
            following = 0
            try:
                while following < len(items) or under_way:
                    while following < len(items) and len(under_way) < 2 * self.n_workers:
                        under_way[pool.submit(_call, items[following])] = following
                        following += 1
                    for done in wait(under_way, return_when=FIRST_COMPLETED).done:
                        yield under_way.pop(done), done.result()
            except BrokenProcessPool:
                raise JobError("a worker process died, of memory perhaps: start again with fewer workers") from None
            finally:
                pool.shutdown(cancel_futures=True)


def _start(function: Callable[[Any], Any]) -> None:
    """Take the function once, not with every item."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _of_this_worker.append(function)
    threadpool_limits(1)


def _end_with_parent() -> None:
    """Nobody waits for the work of a process whose parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(item: Any) -> Any:
    return _of_this_worker[0](item)


_of_this_worker: list[Callable[[Any], Any]] = []


_chosen: ContextVar[Executor | None] = ContextVar("executor", default=None)


def current_executor(default: Executor) -> Executor:
    """The executor that the caller's caller chose with `use_executor`, or this one."""
    return _chosen.get() or default


@contextmanager
def use_executor(executor: Executor) -> Iterator[Executor]:
    """Let an executor do the loops of every ranker fitted, and every choice made, in the block.

    Examples
    --------
    >>> with use_executor(Threads(2)):
    ...     list(map_ordered(current_executor(Serial()), abs, [-1, -2]))
    [1, 2]
    """
    before = _chosen.set(executor)
    try:
        yield executor
    finally:
        _chosen.reset(before)


def map_ordered(executor: Executor, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """The results in the order of the items; those that come early wait."""
    waiting: dict[int, R] = {}
    following = 0
    for position, result in executor.map_unordered(function, items):
        waiting[position] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1
