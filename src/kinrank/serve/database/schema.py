"""The tables of the database, and how those of earlier versions are brought up to date."""

from __future__ import annotations

from kinrank.serve.database.base import Execute

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE IF NOT EXISTS kinrank_revisions (model TEXT PRIMARY KEY, revision BIGINT NOT NULL, "
        "compacted BIGINT NOT NULL)",
        "CREATE TABLE IF NOT EXISTS kinrank_judgments (model TEXT NOT NULL, query TEXT NOT NULL, source TEXT NOT NULL, "
        "revision BIGINT NOT NULL, record TEXT, PRIMARY KEY (model, query, source))",
        "CREATE INDEX IF NOT EXISTS kinrank_judgments_by_revision ON kinrank_judgments (model, revision)",
        # Which change a revision was: after restoring a copy, other changes get the same numbers.
        "CREATE TABLE IF NOT EXISTS kinrank_marks (model TEXT NOT NULL, revision BIGINT NOT NULL, mark TEXT NOT NULL, "
        "PRIMARY KEY (model, revision))",
    ),
)
"""The statements that lead from one version of the schema to the next. Append only, and nothing that stops processes
of an earlier version of kinrank from working: they share the database while a fleet is upgraded.
"""
_TABLE = "CREATE TABLE IF NOT EXISTS kinrank_schema (name TEXT PRIMARY KEY, version BIGINT NOT NULL)"


def is_current(execute: Execute, *, exists: bool) -> bool:
    """Return whether the database has all tables; then no right to create any is needed.

    Parameters
    ----------
    execute
        Runs statements.
    exists
        Whether there is a table ``kinrank_schema``, which early versions did not write.
    """
    return exists and _version(execute) >= len(MIGRATIONS)  # a later version of kinrank may have been here


def migrate(execute: Execute) -> None:
    """Run the statements that the database lacks. The caller keeps other processes out meanwhile."""
    execute(_TABLE, ())
    for statement in (statement for statements in MIGRATIONS[_version(execute) :] for statement in statements):
        execute(statement, ())
    execute(
        "INSERT INTO kinrank_schema VALUES ('kinrank', ?) ON CONFLICT (name) DO UPDATE SET version = excluded.version",
        (len(MIGRATIONS),),
    )


def _version(execute: Execute) -> int:
    stored = execute("SELECT version FROM kinrank_schema WHERE name = 'kinrank'", ())
    return int(stored[0][0]) if stored else 0
