"""DuckDB with bounded memory, and small helpers for its SQL."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kinrank.clicks.options import LogOptions
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
    """Return the SQL for the seconds since 1970 of a column of texts, times or milliseconds; NULL if it is none.

    Parameters
    ----------
    column
        The SQL of the column.
    stored
        Its type. Numbers are read as such, because parsing their text takes far longer.

    Examples
    --------
    >>> seconds("time", "BIGINT")
    'time // 1000'
    """
    if stored.endswith(("INT", "INTEGER")):
        return f"{column} // 1000"
    if stored.startswith("TIMESTAMP"):
        return f"CAST(epoch({column}) AS BIGINT)"
    return (
        f"coalesce(CAST(epoch(try_cast({column} AS TIMESTAMPTZ)) AS BIGINT), "
        f"try_cast(try_cast({column} AS VARCHAR) AS BIGINT) // 1000)"
    )


def scalar(database: DuckDBPyConnection, sql: str) -> Any:
    """Return the only value of a query."""
    rows = database.execute(sql).fetchall()  # all, so that the result is finished before the next query
    return rows[0][0] if rows else None
