"""Where live judgments, and what goes with them, are kept: SQLite on one machine, PostgreSQL for several.

All processes that open the same address share one truth. See `revisions` for how they learn of changes, and `schema`
for the tables.
"""

from __future__ import annotations

from kinrank.data.filesystems import redact_passwords
from kinrank.errors import ParameterError
from kinrank.registry import Registry
from kinrank.serve.database.base import Database, Execute

__all__ = ["DATABASES", "Database", "Execute", "open_database"]

DATABASES = Registry(
    "judgment store",
    {
        "sqlite": "kinrank.serve.database.sqlite:SqliteDatabase",
        "postgresql": "kinrank.serve.database.postgresql:PostgresDatabase",
    },
)


def open_database(address: str) -> Database:
    """Return the database at an address, ``sqlite:///PATH`` or ``postgresql://USER@HOST/DATABASE``.

    Nothing is connected yet: the database may be away when the service starts.

    Examples
    --------
    >>> open_database("judgments.log")
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: judgments must be sqlite:///PATH or postgresql://..., got 'judgments.log'
    """
    scheme, separator, _ = address.partition("://")
    if not separator or scheme not in DATABASES:
        raise ParameterError(f"judgments must be sqlite:///PATH or postgresql://..., got {redact_passwords(address)!r}")
    database: Database = DATABASES[scheme](address)
    return database
