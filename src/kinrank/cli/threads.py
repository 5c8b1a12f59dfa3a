"""The option ``--threads`` of commands that train or rank many queries."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

_OPTION = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Maximum number of threads.",
        show_default="OMP_NUM_THREADS or the cores, fewer for little work",
    ),
]


def with_threads(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option ``--threads`` to a command, which then runs with at most that many threads."""

    @wraps(command)
    def run(*args: Any, threads: int | None = None, **kwargs: Any) -> None:
        if threads is None:
            command(*args, **kwargs)
            return
        from kinrank.parallel import use_threads

        with use_threads(threads):
            command(*args, **kwargs)

    signature = inspect.signature(command, eval_str=True)  # Typer evaluates no annotations of a given signature
    option = inspect.Parameter("threads", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_OPTION)
    parameters = [*signature.parameters.values(), option]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
