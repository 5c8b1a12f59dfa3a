"""Executors: run the independent tasks of a large job serially, in threads or in processes.

Code that runs many tasks asks `current_executor` for an executor; users choose one with `use_executor`.
`kinrank.scale` adds an executor for Ray.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from threadpoolctl import threadpool_limits

from kinrank.errors import JobError, ParameterError

T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    """Calls a function for every item, in any order and possibly elsewhere.

    The result must depend only on the item: the call can happen in another process, and again if that process dies.
    """

    def map_unordered(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Yield the position and the result of each item as it finishes."""
        ...


class Serial:
    """Runs tasks one after the other in this process.

    Examples
    --------
    >>> list(Serial().map_unordered(abs, [-1, -2]))
    [(0, 1), (1, 2)]
    """

    def map_unordered(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Yield results lazily, in the order of the items."""
        return ((position, function(item)) for position, item in enumerate(items))


class Threads:
    """Runs tasks in threads of this process, for compiled code that releases the GIL.

    Parameters
    ----------
    n_threads
        Number of threads; defaults to the number of cores.
    """

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads

    def map_unordered(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Yield results as they finish; BLAS uses one thread in each."""
        with threadpool_limits(1), ThreadPoolExecutor(self.n_threads) as threads:
            # Each task runs with the executor and the limits of the caller.
            positions = {threads.submit(copy_context().run, function, item): i for i, item in enumerate(items)}
            for done in as_completed(positions):
                yield positions[done], done.result()


class Processes:
    """Runs tasks in processes on this machine, which end when this process ends, even if it is killed.

    Parameters
    ----------
    n_workers
        Number of processes.

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
        """Yield results as they finish; at most two items per worker are submitted at a time."""
        if len(items) < 2:  # not worth starting processes
            yield from Serial().map_unordered(function, items)
            return
        # The threads of BLAS and Arrow do not survive a fork.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self.n_workers, context, initializer=_start_worker, initargs=(function,))
        with pool:
            pending: dict[Future[Any], int] = {}
            submitted = 0
            try:
                while submitted < len(items) or pending:
                    while submitted < len(items) and len(pending) < 2 * self.n_workers:
                        pending[pool.submit(_call, items[submitted])] = submitted
                        submitted += 1
                    for done in wait(pending, return_when=FIRST_COMPLETED).done:
                        yield pending.pop(done), done.result()
            except BrokenProcessPool:
                raise JobError(
                    "a worker process died, perhaps because memory ran out: start again with fewer workers"
                ) from None
            finally:
                pool.shutdown(cancel_futures=True)


def _start_worker(function: Callable[[Any], Any]) -> None:
    """Receive the function once per worker instead of once per item."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker_function.append(function)
    threadpool_limits(1)


def _end_with_parent() -> None:
    """Exit when the parent process ends, even if it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(item: Any) -> Any:
    return _worker_function[0](item)


_worker_function: list[Callable[[Any], Any]] = []


@dataclass(frozen=True)
class TaskCost:
    """What a task cost."""

    seconds: float
    cpu_seconds: float
    """Wall-clock and CPU time."""
    peak_mb: float
    """Peak memory of the process that ran it, over the lifetime of the process."""


def start_measuring() -> Callable[[], TaskCost]:
    """Return a function that returns the cost from now on.

    Examples
    --------
    >>> cost = start_measuring()
    >>> cost().seconds > 0
    True
    """
    wall, cpu = time.perf_counter(), time.process_time()

    def cost() -> TaskCost:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return TaskCost(time.perf_counter() - wall, time.process_time() - cpu, peak)

    return cost


_limit: ContextVar[int | None] = ContextVar("threads", default=None)
_VALUES_PER_THREAD = 2_000_000  # with fewer, a second thread takes as long as it saves


def usable_threads() -> int:
    """Return the most threads to use: as set by `use_threads`, by ``OMP_NUM_THREADS``, or one per usable core."""
    limit = _limit.get()
    if limit is not None:
        return limit
    chosen = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(chosen) if chosen.isdigit() and int(chosen) else usable_cores()


def n_threads_of(n_jobs: int | None) -> int:
    """Return the number of threads for scikit-learn's `n_jobs`: None and -1 mean all that are usable.

    Examples
    --------
    >>> n_threads_of(3), n_threads_of(-1) == usable_threads()
    (3, True)
    """
    if n_jobs is None or n_jobs == -1:
        return usable_threads()
    if n_jobs < 1:
        raise ParameterError(f"n_jobs must be at least 1, or -1 or None for all cores, got {n_jobs}")
    return n_jobs


def threads_for(n_values: int) -> int:
    """Return how many threads are worth their coordination for work on this many values.

    Examples
    --------
    >>> with use_threads(4):
    ...     threads_for(2_400 * 20), threads_for(10**6 * 46)
    (1, 4)
    """
    return max(1, min(usable_threads(), n_values // _VALUES_PER_THREAD))


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def use_threads(n_threads: int) -> Iterator[None]:
    """Use at most this many threads within the block: in this thread, and in those that `Threads` starts from it.

    The limit of BLAS, which has one for the whole process, is set too.
    """
    if n_threads < 1:
        raise ParameterError(f"n_threads must be at least 1, got {n_threads}")
    before = _limit.set(n_threads)
    try:
        with threadpool_limits(n_threads):
            yield
    finally:
        _limit.reset(before)


_chosen: ContextVar[Executor | None] = ContextVar("executor", default=None)


def current_executor(default: Executor) -> Executor:
    """Return the executor chosen with `use_executor`, or the default."""
    return _chosen.get() or default


@contextmanager
def use_executor(executor: Executor) -> Iterator[Executor]:
    """Use an executor for everything fitted or tuned within the block.

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
    """Yield results in the order of the items, holding back those that finish early."""
    finished: dict[int, R] = {}
    next_position = 0
    for position, result in executor.map_unordered(function, items):
        finished[position] = result
        while next_position in finished:
            yield finished.pop(next_position)
            next_position += 1
