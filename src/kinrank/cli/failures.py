"""Error handling: one message on stderr and an exit code, no traceback.

::

    1    stdout was closed before all output was written (set by Typer)
    2    wrong command or input (also set by Typer for wrong options)
    70   internal error
    130  interrupted by Ctrl-C
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec

import typer

from kinrank.cli import console
from kinrank.errors import KinrankError

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
            console.info("stopped")
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, BrokenPipeError):  # Typer exits quietly when a pipe is closed
            raise
        except Exception as error:
            if debugging.get():
                raise
            raise typer.Exit(_report(error)) from None

    return run


def _report(error: Exception) -> int:
    """Print the error and return the exit code."""
    if isinstance(error, KinrankError):
        console.error(str(error))
        return WRONG_INPUT
    if isinstance(error, OSError):
        console.error(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
        return WRONG_INPUT
    console.error(f"{type(error).__name__}: {error}\nThis is a bug in kinrank; run kinrank --debug for the traceback.")
    return INTERNAL_ERROR


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    console.warn(str(message))
