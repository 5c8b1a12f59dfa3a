"""Follow long work: which stage it is in, and how far that has come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Report = Callable[[str, float, float], None]
"""Called with the name of a stage, the number of steps that are done, and their total."""

IN_ALL = ", in all"
"""End of the name of a stage if its numbers are those of the whole work."""

_reports: ContextVar[tuple[Report, ...]] = ContextVar("reports", default=())


@contextmanager
def on_progress(report: Report) -> Iterator[None]:
    """Call a function after each step of long work in this thread, such as fitting a `KinRanker`.

    Examples
    --------
    >>> def show(stage, done, total):
    ...     print(f"{stage} {done} of {total}")
    >>> with on_progress(show):
    ...     report_progress("trees", 1, 4)
    trees 1 of 4
    """
    token = _reports.set((*_reports.get(), report))
    try:
        yield
    finally:
        _reports.reset(token)


def report_progress(stage: str, done: float, total: float) -> None:
    """Tell everyone who follows that a step of a stage is done."""
    for report in _reports.get():
        report(stage, done, total)


class Parts:
    """Work in parts of known cost. What is reported inside a part is passed on with the name of the part.

    Parameters
    ----------
    total
        Cost of all parts.

    Examples
    --------
    >>> def show(stage, done, total):
    ...     print(f"{stage} {done} of {total}")
    >>> parts = Parts(10)
    >>> with on_progress(show), parts.part("fold 1: trees", 4):
    ...     report_progress("tree models", 1, 2)
    fold 1: trees, in all 0.0 of 10
    fold 1: trees: tree models 1 of 2, in all 0.0 of 10
    fold 1: trees, in all 4.0 of 10
    """

    def __init__(self, total: float) -> None:
        self.total = total
        self.done = 0.0
        self._lock = threading.Lock()  # parts may run in several threads

    @contextmanager
    def part(self, name: str, cost: float = 1) -> Iterator[None]:
        """Report the start, the steps and the end of a part."""
        followers = _reports.get()

        def report_whole(stage: str) -> None:
            for report in followers:
                report(stage + IN_ALL, self.done, self.total)

        report_whole(name)
        token = _reports.set((lambda stage, done, total: report_whole(f"{name}: {stage} {done} of {total}"),))
        try:
            yield
        finally:
            _reports.reset(token)
        with self._lock:
            self.done += cost
        report_whole(name)
