"""What happens when something goes wrong: one message on stderr and an exit code, no traceback.

::

    1    stdout was closed before all of it was read (Typer's answer)
    2    the command or its input cannot be right (also what Typer answers to a wrong option)
    70   an error of kinrank's own
    130  stopped by Ctrl-C
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec

import typer

from kinrank.cli import messages
from kinrank.errors import KinrankError

WRONG_INPUT = 2
OWN_ERROR = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130

debugging: ContextVar[bool] = ContextVar("debugging", default=False)
"""Whether errors are raised as they are, with their traceback."""

P = ParamSpec("P")


def reported(verb: Callable[P, None]) -> Callable[P, None]:
    """The verb with its warnings and errors told on stderr, and errors turned into exit codes."""

    @wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with warnings.catch_warnings():  # puts showwarning back as well
                warnings.showwarning = _show_warning
                verb(*args, **kwargs)
        except KeyboardInterrupt:
            messages.say("stopped")
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, BrokenPipeError):  # Typer ends quietly where the reader of a pipe has gone
            raise
        except Exception as error:
            if debugging.get():
                raise
            raise typer.Exit(_tell(error)) from None

    return run


def _tell(error: Exception) -> int:
    if isinstance(error, KinrankError):
        messages.fail(str(error))
        return WRONG_INPUT
    if isinstance(error, OSError):
        messages.fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
        return WRONG_INPUT
    messages.fail(f"{type(error).__name__}: {error}\nThis is an error of kinrank's own: kinrank --debug shows where.")
    return OWN_ERROR


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    messages.warn(str(message))
