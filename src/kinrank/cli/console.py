"""Output of the commands: results on stdout, everything else on stderr, and an exit code for each kind of error."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from kinrank.errors import KinrankError
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

    Yields a function that takes the number of steps just completed.
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


# --- error handling: one message on stderr and an exit code, no traceback ---------------------------------------------
#
# ::
#
#     1    stdout was closed before all output was written (set by Typer)
#     2    wrong command or input (also set by Typer for wrong options)
#     70   internal error
#     130  interrupted by Ctrl-C


WRONG_INPUT = 2
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130

debugging: ContextVar[bool] = ContextVar("debugging", default=False)
"""Whether exceptions are raised with their traceback."""

P = ParamSpec("P")


def handle_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that warnings and errors go to stderr and errors become exit codes."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with warnings.catch_warnings():  # also restores showwarning
                warnings.showwarning = _show_warning
                command(*args, **kwargs)
        except KeyboardInterrupt:
            info("stopped")
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, BrokenPipeError):  # Typer exits quietly when a pipe is closed
            raise
        except Exception as error:
            if debugging.get():
                raise
            raise typer.Exit(_report(error)) from None

    return run


def _report(failure: Exception) -> int:
    """Print the error and return the exit code."""
    if isinstance(failure, KinrankError):
        error(str(failure))
        return WRONG_INPUT
    if isinstance(failure, OSError):
        error(f"{failure.filename}: {failure.strerror}" if failure.filename and failure.strerror else str(failure))
        return WRONG_INPUT
    error(f"{type(failure).__name__}: {failure}\nThis is a bug in kinrank; run kinrank --debug for the traceback.")
    return INTERNAL_ERROR


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    warn(str(message))
