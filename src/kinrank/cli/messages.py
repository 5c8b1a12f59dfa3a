"""What the commands say: results on stdout, everything else on stderr."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

PATIENCE = 2.0
"""Seconds of work before a bar is shown."""

_PLENTY = 1000  # columns where nobody looks at a terminal: lines are as long as they are
_stderr = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """A message."""
    _stderr.print(text)


def warn(text: str) -> None:
    """Something the user should know before trusting the result."""
    _stderr.print(Text.assemble(("warning: ", "bold yellow"), text))


def fail(text: str) -> None:
    """Why there is no result."""
    _stderr.print(Text.assemble(("error: ", "bold red"), text))


def show(result: RenderableType) -> None:
    """A result for people, on stdout."""
    width = None if sys.stdout.isatty() else _PLENTY
    Console(width=width, markup=False, highlight=False).print(result)


@contextmanager
def working(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar, on a terminal and once the work has lasted `PATIENCE` seconds.

    Parameters
    ----------
    what
        What is being done: "reading".
    total
        How much there is to do; None where nobody knows, which shows a moving bar.

    Yields
    ------
    Callable
        To be told how much more is done.
    """
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(
        TextColumn("{task.description}"), *columns, console=_stderr, transient=True, disable=not _stderr.is_terminal
    )
    task = bar.add_task(what, total=total)
    later = threading.Timer(PATIENCE, bar.start)
    later.daemon = True
    later.start()
    try:
        yield lambda step: bar.advance(task, step)
    finally:
        later.cancel()
        later.join()  # a bar that is just being started must be there before it is stopped
        if bar.live.is_started:
            bar.stop()
