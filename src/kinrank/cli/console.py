"""Output of the commands: results on stdout, everything else on stderr."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from kinrank.progress import IN_ALL, on_progress

PROGRESS_DELAY = 2.0
"""Seconds of work before a progress bar is shown."""
LINE_INTERVAL = 30.0
"""Seconds between lines about the progress in a log."""

_LONG = 86_400.0  # seconds over which the time left is estimated, because one part of a study may take minutes
_UNLIMITED = 1000  # columns when stdout is not a terminal, so that lines are not wrapped
_stderr = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)


def info(text: str) -> None:
    """Print a message on stderr."""
    _stderr.print(text)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    _stderr.print(Text.assemble(("warning: ", "bold yellow"), text))


def error(text: str) -> None:
    """Print an error on stderr."""
    _stderr.print(Text.assemble(("error: ", "bold red"), text))


def print_result(result: RenderableType) -> None:
    """Print a result on stdout. In a file or a pipe, lines are not wrapped and end without spaces."""
    if sys.stdout.isatty():
        Console(markup=False, highlight=False).print(result)
        return
    console = Console(width=_UNLIMITED, markup=False, highlight=False)
    with console.capture() as capture:
        console.print(result)
    sys.stdout.write("\n".join(line.rstrip(" ") for line in capture.get().split("\n")))


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar if stderr is a terminal and the work takes longer than `PROGRESS_DELAY` seconds.

    The bar names the stage that the work is in (`kinrank.progress`). If stderr is not a terminal, a line every
    `LINE_INTERVAL` seconds does.

    Parameters
    ----------
    what
        The task, such as "reading".
    total
        Number of steps; None if unknown.

    Yields
    ------
    Callable
        Call it with the number of steps just completed.
    """
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(
        TextColumn("{task.description}"),
        *columns,
        console=_stderr,
        transient=True,
        disable=not _stderr.is_terminal,
        speed_estimate_period=_LONG,
    )
    task = bar.add_task(what, total=total)
    start = printed = time.monotonic()

    def show_stage(stage: str, done: float, of: float) -> None:
        nonlocal printed
        line = f"{what}: {stage} {done:g} of {of:g}"
        bar.update(task, description=line)
        if total is None:
            bar.update(task, completed=done, total=of)
        if not _stderr.is_terminal and time.monotonic() - printed >= LINE_INTERVAL:
            printed = time.monotonic()
            known = stage.endswith(IN_ALL) and 0 < done < of
            info(line + (f", about {_duration((printed - start) * (of - done) / done)} left" if known else ""))

    timer = threading.Timer(PROGRESS_DELAY, bar.start)
    timer.daemon = True
    timer.start()
    try:
        with on_progress(show_stage):
            yield lambda step: bar.advance(task, step)
    finally:
        timer.cancel()
        timer.join()  # the bar may be starting right now; stop it only once it has started
        if bar.live.is_started:
            bar.stop()


def _duration(seconds: float) -> str:
    """Return a duration as minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
