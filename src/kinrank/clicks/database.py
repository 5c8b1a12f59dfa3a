"""DuckDB with bounded memory, and small helpers for its SQL."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kinrank.clicks.options import LogOptions
from kinrank.data.ubi import FIRST_TIME, LAST_TIME, UNITS
from kinrank.registry import import_extra

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@contextmanager
def open_database(options: LogOptions) -> Iterator[DuckDBPyConnection]:
    """Open a temporary database on disk, so that joins larger than memory spill to it."""
    duckdb = import_extra("duckdb", "clicks")
    with tempfile.TemporaryDirectory(prefix="kinrank-clicks-") as folder:
        database = duckdb.connect(os.path.join(folder, "clicks.duckdb"))
        try:
            database.execute(f"SET memory_limit = {quote(options.memory)}")
            database.execute(f"SET temp_directory = {quote(os.path.join(folder, 'spill'))}")
            database.execute("SET preserve_insertion_order = false")
            database.execute("SET enable_progress_bar = false")
            database.execute("SET timezone = 'UTC'")  # of times without an offset
            if options.threads is not None:
                database.execute(f"SET threads = {int(options.threads)}")
            yield database
        finally:
            database.close()


def quote(value: str) -> str:
    """Return a text as an SQL literal.

    Examples
    --------
    >>> quote("it's")
    "'it''s'"
    """
    return "'" + value.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return a column name as an SQL identifier.

    Examples
    --------
    >>> identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def seconds(column: str, stored: str = "VARCHAR") -> str:
    """Return the SQL for the seconds since 1970 of a column of texts, times or numbers; NULL if it is none.

    Numbers count seconds, milliseconds, microseconds or nanoseconds since 1970. Their size tells which, since these
    are far apart for all times from 1995 to 2100; others are taken as seconds, which `is_known_time` refuses.

    Parameters
    ----------
    column
        The SQL of the column.
    stored
        Its type. Numbers are read as such, because parsing their text takes far longer.

    Examples
    --------
    >>> seconds("time", "TIMESTAMP")
    'CAST(epoch(time) AS BIGINT)'
    """
    if stored.endswith(("INT", "INTEGER")):
        return _of_number(column)
    if stored.startswith(("DOUBLE", "FLOAT", "DECIMAL")):
        return _of_number(f"try_cast({column} AS BIGINT)")
    if stored.startswith("TIMESTAMP"):
        return f"CAST(epoch({column}) AS BIGINT)"
    number = _of_number(f"try_cast(try_cast({column} AS VARCHAR) AS BIGINT)")
    return f"coalesce(CAST(epoch(try_cast({column} AS TIMESTAMPTZ)) AS BIGINT), {number})"


def _of_number(column: str) -> str:
    cases = (
        f"WHEN {column} BETWEEN {FIRST_TIME * unit} AND {LAST_TIME * unit} THEN {column} // {unit}" for unit in UNITS
    )
    return f"CASE {' '.join(cases)} ELSE {column} END"


def is_known_time(column: str) -> str:
    """Return the SQL for whether seconds since 1970 can be those of a log, from 1995 until now; true for NULL.

    A day more is for clocks of other time zones, and one for those that are wrong.
    """
    return f"coalesce({column} BETWEEN {FIRST_TIME} AND {int(time.time()) + 2 * 86_400}, true)"


def scalar(database: DuckDBPyConnection, sql: str) -> Any:
    """Return the only value of a query."""
    rows = database.execute(sql).fetchall()  # all, so that the result is finished before the next query
    return rows[0][0] if rows else None
