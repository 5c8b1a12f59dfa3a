"""Follow long work: which stage it is in, and how far that has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Report = Callable[[str, int, int], None]
"""Called with the name of a stage, the number of steps that are done, and their total."""

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


def report_progress(stage: str, done: int, total: int) -> None:
    """Tell everyone who follows that a step of a stage is done."""
    for report in _reports.get():
        report(stage, done, total)
