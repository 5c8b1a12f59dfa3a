"""Who does the many equal pieces of a large job: this process, its threads, or whoever was asked to.

A ranker that learns many models asks `current` for an executor and never knows which one it is. `kinrank.scale` has
others: processes and Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

from threadpoolctl import threadpool_limits

T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    """Calls a function for every item, somewhere, in any order.

    What it calls must depend on the item alone: it may be called in another process, and again where that one died.
    """

    def each(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        """The position of an item and its result, as they come."""
        ...


class Here:
    """One after the other, in this process.

    Examples
    --------
    >>> list(Here().each(abs, [-1, -2]))
    [(0, 1), (1, 2)]
    """

    def each(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
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

    def each(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        """As they finish; BLAS is told to use one thread in each."""
        with threadpool_limits(1), ThreadPoolExecutor(self.n_threads) as threads:
            positions = {threads.submit(function, item): position for position, item in enumerate(items)}
            for done in as_completed(positions):
                yield positions[done], done.result()


_chosen: ContextVar[Executor | None] = ContextVar("executor", default=None)


def current(otherwise: Executor) -> Executor:
    """The executor that the caller's caller chose with `using`, or this one."""
    return _chosen.get() or otherwise


@contextmanager
def using(executor: Executor) -> Iterator[Executor]:
    """Let an executor do the loops of every ranker fitted, and every choice made, in the block.

    Examples
    --------
    >>> with using(Threads(2)):
    ...     list(in_order(current(Here()), abs, [-1, -2]))
    [1, 2]
    """
    before = _chosen.set(executor)
    try:
        yield executor
    finally:
        _chosen.reset(before)


def in_order(executor: Executor, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """The results in the order of the items; those that come early wait."""
    waiting: dict[int, R] = {}
    following = 0
    for position, result in executor.each(function, items):
        waiting[position] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1
