"""Options that several commands share."""

from __future__ import annotations

import inspect
import re
import socket
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinrank.errors import ParameterError

if TYPE_CHECKING:
    from kinrank.data.tables import ColumnNames


table_columns: ContextVar[ColumnNames] = ContextVar("table_columns")
"""The columns that the command was told to read."""

_LISTS = ("features", "query", "keys", "drop")
_ROLES = ("qid", "y", "doc_id", "text", "title", *_LISTS)
_COLUMNS = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="NAME=COLUMN,...",
        help="Columns of a table: qid, y, doc_id, text or title, if named otherwise; features, such as "
        "features=bm25_*; query=COLUMN for numbers of the query, keys=COLUMN for what memory keeps of documents; "
        "drop=A,B.",
        show_default="other numbers are features",
    ),
]


def parse_columns(given: Sequence[str]) -> ColumnNames:
    r"""Return the columns that ``--columns`` names; a comma in a name has a backslash in front.

    Examples
    --------
    >>> parse_columns(["y=label,drop=clicks,n clicks"])["drop"]
    ['clicks', 'n clicks']
    """
    columns: dict[str, Any] = {"qid": "qid", "y": "y", "doc_id": "doc_id", "text": None, "title": "doc_title"}
    columns |= {"features": None, "query": [], "keys": [], "drop": []}
    for text in given:
        role = ""
        for part in re.split(r"(?<!\\),", text):
            name, equals, value = part.replace("\\,", ",").partition("=")
            if name in _ROLES and equals:
                role = name
            elif role in _LISTS:  # another column of the same list
                value = part.replace("\\,", ",")
            if not role or not value or (role not in _LISTS and role != name):
                raise ParameterError(f"--columns takes NAME=COLUMN with NAME one of {', '.join(_ROLES)}, got {text!r}")
            columns[role] = [*(columns[role] or []), value] if role in _LISTS else value
    return columns  # type: ignore[return-value]


def with_columns(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option ``--columns`` to a command that reads tables."""

    @wraps(command)
    def run(*args: Any, columns: list[str] | None = None, **kwargs: Any) -> None:
        chosen = parse_columns(columns or [])
        split_by = [kwargs[name] for name in ("group", "time") if kwargs.get(name) is not None]
        chosen["query"] = sorted({*chosen["query"], *split_by})
        token = table_columns.set(chosen)
        try:
            command(*args, **kwargs)
        finally:
            table_columns.reset(token)

    signature = inspect.signature(command, eval_str=True)  # Typer evaluates no annotations of a given signature
    added = inspect.Parameter("columns", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_COLUMNS)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), added])  # type: ignore[attr-defined]
    return run


class OnLeak(StrEnum):
    """What to do with test queries seen in training."""

    refuse = "refuse"
    drop = "drop"
    warn = "warn"


TestData = Annotated[
    str | None, typer.Option("--test", metavar="DATA", help="Judged test queries.", show_default="folds of DATA")
]
Group = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Query column whose values are never split across folds.")
]
Families = Annotated[
    bool | None,
    typer.Option(
        "--families/--no-families",
        help="Keep queries with similar texts together, in folds and in tests.",
        show_default="if a ranker remembers judgments or choices",
    ),
]
Folds = Annotated[int, typer.Option(min=2, help="Number of cross-validation folds of DATA.")]
MeasureName = Annotated[
    str, typer.Option(metavar="MEASURE", help="Measure such as NDCG@10, 'NDCG(gain=linear)@5' or AP.")
]
MeasureNames = Annotated[
    list[str] | None,
    typer.Option(
        "--measure",
        metavar="MEASURE",
        help="Measure such as NDCG@10, 'NDCG(gain=linear)@5' or AP; repeatable.",
        show_default="NDCG@10",
    ),
]
Leaks = Annotated[OnLeak, typer.Option(help="What to do with test queries seen in training.")]
Seed = Annotated[int, typer.Option(help="Seed for the fold split.")]
ModelFolder = Annotated[str, typer.Argument(metavar="MODEL", help="Model folder written by kinrank train.")]
ChosenQueries = Annotated[
    list[str] | None,
    typer.Option("--query", metavar="QUERY", help="Id or text of a query; repeatable.", show_default="all queries"),
]
EvidenceFolder = Annotated[
    str | None,
    typer.Option(
        "--evidence",
        metavar="DIR",
        help="What people chose, from kinrank clicks --evidence, to also measure choices by traffic.",
    ),
]
EngineFeature = Annotated[
    str | None,
    typer.Option(
        "--engine-feature",
        metavar="FEATURE",
        help="The feature by which your engine ranks.",
        show_default="engine_score, or the rank that kinrank log writes",
    ),
]
AsJson = Annotated[bool, typer.Option("--json/--no-json", help="Print JSON.")]

EXAMPLES = 20
"""Number of training queries saved in a model folder for the self-test of the service."""


def check_port(host: str, port: int) -> None:
    """Raise if nothing can listen there, before what takes long."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just closed is free
        try:
            listener.bind((host, port))
        except OSError as error:
            raise ParameterError(
                f"cannot listen on {host}, port {port} ({error.strerror}): choose another with --port"
            ) from None
