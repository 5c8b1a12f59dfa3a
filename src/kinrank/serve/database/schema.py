"""The tables of the database, and how those of earlier versions are brought up to date."""

from __future__ import annotations

from collections.abc import Sequence

from kinrank.serve.database.base import Execute

_CELLS = (
    "CREATE TABLE IF NOT EXISTS kinrank_cells (model TEXT NOT NULL, query BIGINT NOT NULL, document TEXT NOT NULL, "
    "day BIGINT NOT NULL, looks DOUBLE PRECISION NOT NULL, choices DOUBLE PRECISION NOT NULL, clients BIGINT NOT NULL, "
    "revision BIGINT NOT NULL, PRIMARY KEY (model, query, document, day))",
    "CREATE INDEX IF NOT EXISTS kinrank_cells_by_revision ON kinrank_cells (model, revision)",
)
_CROWDS, _CHOOSERS = (
    f"CREATE TABLE IF NOT EXISTS kinrank_{table} (model TEXT NOT NULL, query BIGINT NOT NULL, document TEXT NOT NULL, "
    "client BIGINT NOT NULL, day BIGINT NOT NULL, PRIMARY KEY (model, query, document, client))"
    for table in ("crowds", "choosers")
)
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
    # What people were shown and what they clicked, and the counts of it; see `kinrank.serve.events`.
    (
        "CREATE TABLE IF NOT EXISTS kinrank_lists (list TEXT PRIMARY KEY, model TEXT NOT NULL, query BIGINT NOT NULL, "
        "day BIGINT NOT NULL, client BIGINT NOT NULL, documents TEXT NOT NULL)",
        "CREATE INDEX IF NOT EXISTS kinrank_lists_by_query ON kinrank_lists (query, day)",
        "CREATE INDEX IF NOT EXISTS kinrank_lists_by_client ON kinrank_lists (client, day)",
        "CREATE TABLE IF NOT EXISTS kinrank_clicks (event TEXT PRIMARY KEY, list TEXT NOT NULL, document TEXT "
        "NOT NULL, value DOUBLE PRECISION NOT NULL, day BIGINT NOT NULL)",
        "CREATE INDEX IF NOT EXISTS kinrank_clicks_by_list ON kinrank_clicks (list)",
        "CREATE TABLE IF NOT EXISTS kinrank_news (list TEXT NOT NULL)",
        *_CELLS,
        _CROWDS,
        "CREATE TABLE IF NOT EXISTS kinrank_texts (model TEXT NOT NULL, query BIGINT NOT NULL, text TEXT NOT NULL, "
        "PRIMARY KEY (model, query))",
        "CREATE TABLE IF NOT EXISTS kinrank_client_keys (period BIGINT PRIMARY KEY, secret TEXT NOT NULL)",
    ),
    # What editors want for queries; see `kinrank.serve.rules`. The columns are the fields of `Rule`, and two more.
    (
        "CREATE TABLE IF NOT EXISTS kinrank_rules (query TEXT NOT NULL, action TEXT NOT NULL, document TEXT NOT NULL, "
        "places BIGINT NOT NULL, also_similar BIGINT NOT NULL, author TEXT NOT NULL, note TEXT NOT NULL, "
        "created DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION NOT NULL, number BIGINT PRIMARY KEY, "
        "removed DOUBLE PRECISION, removed_by TEXT, query_key TEXT NOT NULL, revision BIGINT NOT NULL)",
        "CREATE INDEX IF NOT EXISTS kinrank_rules_by_query ON kinrank_rules (query_key, document)",
    ),
    # What changed what is ranked; see `kinrank.serve.audit`. Each kind of database keeps entries from being changed.
    (
        "CREATE TABLE IF NOT EXISTS kinrank_audit (entry TEXT PRIMARY KEY, time DOUBLE PRECISION NOT NULL, actor TEXT "
        "NOT NULL, action TEXT NOT NULL, subject TEXT NOT NULL, detail TEXT NOT NULL)",
        "CREATE INDEX IF NOT EXISTS kinrank_audit_by_time ON kinrank_audit (time)",
    ),
    # The lists of `kinrank_lists` whose order was a draw; see `kinrank.serve.exploring`.
    (
        "CREATE TABLE IF NOT EXISTS kinrank_explored (list TEXT PRIMARY KEY, share DOUBLE PRECISION NOT NULL, "
        "day BIGINT NOT NULL)",
    ),
    # Clients who chose a document of a query. Of what was counted before, those who were shown it count.
    (
        _CHOOSERS,
        "INSERT INTO kinrank_choosers SELECT * FROM kinrank_crowds AS o WHERE EXISTS (SELECT 1 FROM kinrank_cells AS c "
        "WHERE c.model = o.model AND c.query = o.query AND c.document = o.document AND c.choices > 0) "
        "ON CONFLICT DO NOTHING",
    ),
    # Counts that a list changes without reading other lists; see `kinrank.serve.events.counting`. Lists that are stored
    # are counted again; the tables of before stay, empty, for an earlier version.
    (
        "CREATE TABLE IF NOT EXISTS kinrank_pending (model TEXT NOT NULL, query BIGINT NOT NULL, list TEXT NOT NULL)",
        "CREATE INDEX IF NOT EXISTS kinrank_pending_by_query ON kinrank_pending (model, query, list)",
        "CREATE TABLE IF NOT EXISTS kinrank_votes (client BIGINT NOT NULL, day BIGINT NOT NULL, model TEXT NOT NULL, "
        "query BIGINT NOT NULL, votes TEXT NOT NULL, PRIMARY KEY (client, day, model, query))",
        "CREATE TABLE IF NOT EXISTS kinrank_counts (model TEXT NOT NULL, query BIGINT NOT NULL, day BIGINT NOT NULL, "
        "looks DOUBLE PRECISION NOT NULL, cells TEXT NOT NULL, revision BIGINT NOT NULL, "
        "PRIMARY KEY (model, query, day))",
        "CREATE INDEX IF NOT EXISTS kinrank_counts_by_revision ON kinrank_counts (model, revision)",
        "CREATE TABLE IF NOT EXISTS kinrank_people (model TEXT NOT NULL, query BIGINT NOT NULL, people TEXT NOT NULL, "
        "asked BIGINT NOT NULL, states TEXT NOT NULL, oldest BIGINT NOT NULL, PRIMARY KEY (model, query))",
        "CREATE INDEX IF NOT EXISTS kinrank_people_by_day ON kinrank_people (oldest)",
        *(
            f"CREATE INDEX IF NOT EXISTS kinrank_{table}_by_day ON kinrank_{table} (day)"
            for table in ("lists", "clicks", "explored", "votes", "counts")
        ),
        "DROP INDEX IF EXISTS kinrank_lists_by_query",
        *(f"DROP TABLE IF EXISTS kinrank_{table}" for table in ("cells", "crowds", "choosers")),
        *(*_CELLS, _CROWDS, _CHOOSERS),
        "INSERT INTO kinrank_news SELECT list FROM kinrank_lists",
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


def migrate(execute: Execute, guards: Sequence[str]) -> None:
    """Run the statements that the database lacks. The caller keeps other processes out meanwhile.

    Parameters
    ----------
    execute
        Runs statements.
    guards
        Statements of this kind of database that keep ``kinrank_audit`` from being changed; they may run again.
    """
    execute(_TABLE, ())
    lacking = [statement for statements in MIGRATIONS[_version(execute) :] for statement in statements]
    for statement in (*lacking, *guards):
        execute(statement, ())
    execute(
        "INSERT INTO kinrank_schema VALUES ('kinrank', ?) ON CONFLICT (name) DO UPDATE SET version = excluded.version",
        (len(MIGRATIONS),),
    )


def _version(execute: Execute) -> int:
    stored = execute("SELECT version FROM kinrank_schema WHERE name = 'kinrank'", ())
    return int(stored[0][0]) if stored else 0
