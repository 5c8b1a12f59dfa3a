"""Options that are added to several commands: which columns of a table are read as what, and ``--threads``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kinrank.data.tables import ColumnNames

table_columns: ContextVar[ColumnNames] = ContextVar("table_columns")
"""The columns that the command was told to read."""

_PANEL = "Columns of a table"


def _option(**kwargs: Any) -> Any:
    return typer.Option(metavar="COLUMN", rich_help_panel=_PANEL, **kwargs)


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "qid": (Annotated[str, _option(help="Query id.")], "qid"),
    "y": (Annotated[str, _option(help="Grade; empty if not judged.")], "y"),
    "doc_id": (Annotated[str, _option(help="Document id.")], "doc_id"),
    "text": (Annotated[str | None, _option(help="Text of the query.", show_default="text")], None),
    "title": (
        Annotated[str, _option(help="Title of the document, by which explanations name it.", show_default="doc_title")],
        "doc_title",
    ),
    "features": (
        Annotated[
            list[str] | None,
            _option(help="Feature, or a pattern such as 'bm25_*'; repeatable.", show_default="other numbers"),
        ],
        None,
    ),
    "query_column": (
        Annotated[
            list[str] | None,
            _option(
                help="Number that belongs to the query, such as a group, and is no feature; repeatable.",
                show_default="those of --group and --time",
            ),
        ],
        None,
    ),
    "key": (
        Annotated[
            list[str] | None,
            _option(help="Column of the document that memory keeps, too, such as its site or brand; repeatable."),
        ],
        None,
    ),
    "drop": (Annotated[list[str] | None, _option(help="Column that is not read; repeatable.")], None),
}
_THREADS = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Maximum number of threads.",
        show_default="OMP_NUM_THREADS or the cores, fewer for little work",
    ),
]


_TITLED = ("convert", "train", "explain")  # commands that read titles from another column than doc_title


def with_columns(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name columns to a command that reads tables.

    A command that has an option of the same name keeps it: ``kinrank log --features`` is a file.
    """
    left_out = {*inspect.signature(command).parameters, *(() if command.__name__ in _TITLED else ("title",))}
    added = {name: option for name, option in _OPTIONS.items() if name not in left_out}

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        given = {
            name: kwargs.pop(name, default) if name in added else default for name, (_, default) in _OPTIONS.items()
        }
        split_by = [kwargs[name] for name in ("group", "time") if kwargs.get(name) is not None]
        query = {*(given.pop("query_column") or []), *split_by}
        keys = given.pop("key") or []
        chosen = {**given, "query": sorted(query), "keys": keys, "drop": given["drop"] or []}
        token = table_columns.set(chosen)  # type: ignore[arg-type]
        try:
            command(*args, **kwargs)
        finally:
            table_columns.reset(token)

    return _with_options(run, command, added)


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

    return _with_options(run, command, {"threads": (_THREADS, None)})


def _with_options(
    run: Callable[..., None], command: Callable[..., None], options: dict[str, tuple[Any, Any]]
) -> Callable[..., None]:
    """Give `run` the signature of a command with further options."""
    signature = inspect.signature(command, eval_str=True)  # Typer evaluates no annotations of a given signature
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])  # type: ignore[attr-defined]
    return run
