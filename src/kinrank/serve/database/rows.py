"""Statements with many values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any, TypeVar

from kinrank.serve.database.base import Execute

T = TypeVar("T")
_ROWS = 2_000  # of one statement: SQLite takes 32,766 values, and PostgreSQL 65,535
_INSERTED = 100  # by one statement: a small one is used again, and so prepared only once


def placeholders(values: Sized) -> str:
    """Return a question mark for each value."""
    return ", ".join("?" * len(values))


def row_placeholders(rows: Sequence[Sized]) -> str:
    """Return a question mark for each value of each row.

    Examples
    --------
    >>> row_placeholders([(1, 2), (3, 4)])
    '(?, ?), (?, ?)'
    """
    return ", ".join([f"({placeholders(rows[0])})"] * len(rows)) if rows else ""


def among(columns: str, rows: Sequence[Sequence[Any]]) -> tuple[str, tuple[Any, ...]]:
    """Return a condition that columns have the values of one of the rows, and what it is about.

    The first column is also compared alone: SQLite does not look up rows in an index, and would read the whole table.

    Examples
    --------
    >>> among("query, day", [(7, 1), (7, 2)])
    ('query IN (?) AND (query, day) IN (VALUES (?, ?), (?, ?))', (7, 7, 1, 7, 2))
    """
    first = sorted({row[0] for row in rows})
    condition = (
        f"{columns.partition(',')[0]} IN ({placeholders(first)}) AND ({columns}) IN (VALUES {row_placeholders(rows)})"
    )
    return condition, (*first, *flat(rows))


def among_models(columns: str, rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield such conditions for the columns ``model`` and others, each with as many rows as one statement takes.

    Examples
    --------
    >>> list(among_models("query", [("films", 7), ("books", 7)]))[0]
    ('model = ? AND query IN (?) AND (query) IN (VALUES (?))', ('books', 7, 7))
    """
    for model in sorted({row[0] for row in rows}):
        for some in parts([row[1:] for row in rows if row[0] == model]):
            wanted, values = among(columns, some)
            yield f"model = ? AND {wanted}", (model, *values)


def flat(rows: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """Return the values of all rows."""
    return tuple(value for row in rows for value in row)


def parts(rows: Sequence[T], most: int = _ROWS) -> Iterator[Sequence[T]]:
    """Yield as many rows as one statement takes."""
    for start in range(0, len(rows), most):
        yield rows[start : start + most]


def insert(execute: Execute, table: str, rows: Sequence[Sequence[Any]], conflict: str = "") -> None:
    """Insert rows; `conflict` is what follows ``ON CONFLICT``."""
    tail = f" ON CONFLICT {conflict}" if conflict else ""
    for some in parts(rows, _INSERTED):
        execute(f"INSERT INTO {table} VALUES {row_placeholders(some)}{tail}", flat(some))  # noqa: S608
