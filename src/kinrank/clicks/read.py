"""Read click logs of any size into counts: find the files, drop what cannot be used, match actions with their lists."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kinrank.clicks._counts import ClickCounts, Funnel, collect_cells
from kinrank.clicks.log import is_log, rows_of_log
from kinrank.data.files import PathLike, redact_passwords
from kinrank.data.ubi import FIRST_TIME, LAST_TIME, LIST_ATTRIBUTES, PAGE_SIZE, SAME_LIST, UNITS
from kinrank.errors import DataError, FileFormatError, ParameterError
from kinrank.registry import import_extra

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


FORMATS = ("auto", "ubi", "table")
ATTRIBUTES = ("drop", "apart", "ignore")
SEEN = ("auto", "events", "results")
COLUMNS = ("query", "session", "document", "rank", "clicked", "time", "client", "explored")
VALUES = ("conversions", "value")
"""Columns of a table that only the comparison of arms reads."""


@dataclass(frozen=True)
class LogOptions:
    """Options of `read_clicks`."""

    format: str = "auto"
    """"ubi" or "table"; "auto" looks at the files."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """For a table: the name of each column of `COLUMNS` that is named differently. The last three are optional, and so
    are those of `VALUES`.
    """
    actions: Mapping[str, float] = field(default_factory=lambda: {"click": 1.0})
    """The value of each action that counts as a click, such as ``{"click": 1, "add_to_cart": 3, "purchase": 5}``."""
    seen: str = "auto"
    """What counts as an impression in a UBI log: "events" are the logged impressions, "results" all documents that the
    engine returned; "auto" takes the events if there are any. Returned documents were not always seen.
    """
    attributes: str = "drop"
    """Lists with a filter, a sort order or a page other than the first, according to ``query_attributes``: "drop" them,
    keep them "apart" as queries of their own, or "ignore" the attributes.
    """
    exclude: Mapping[str, str] = field(default_factory=dict)
    """Drop lists whose ``query_attributes`` have one of these values by name, such as lists that your own model ranked.
    """
    first_rank: int | None = None
    """The number of the first rank in the log, 0 or 1; None finds out."""
    max_rank: int = 50
    """Impressions at later ranks are dropped."""
    since: str | None = None
    """Drop queries before this date (ISO 8601); None keeps all."""
    max_queries_per_day: int = 500
    """A client with more lists in one day is a bot."""
    max_click_rate: float = 0.5
    min_impressions: int = 200
    """A client that clicks a larger share of its impressions is a bot, if it has at least this many."""
    min_clients: int = 2
    """Queries of fewer clients are neither judged nor evidence, if the log names its clients: one person is not the
    crowd, and the texts of judged queries go into models.
    """
    early: float = 300.0
    late: float = 86_400.0
    """Drop actions more than `early` seconds before their query or `late` seconds after it: one of the clocks is wrong.
    """
    memory: str = "2GB"
    threads: int | None = None
    """Limits of DuckDB; ``threads=None`` uses all cores."""

    @property
    def plain(self) -> bool:
        """Whether every action counts 1, so that the reward of a document is the number of its clicks."""
        return set(self.actions.values()) == {1}

    def __post_init__(self) -> None:
        for name, choices in (("format", FORMATS), ("attributes", ATTRIBUTES), ("seen", SEEN)):
            if getattr(self, name) not in choices:
                raise ParameterError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        if unknown := set(self.columns) - {*COLUMNS, *VALUES}:
            names = ", ".join((*COLUMNS, *VALUES))
            raise ParameterError(f"unknown column {min(unknown)!r}: name the columns of {names}")
        if not self.actions or min(self.actions.values()) <= 0:
            raise ParameterError(f"actions need at least one name with a value above 0, got {dict(self.actions)}")
        if self.first_rank not in (None, 0, 1):
            raise ParameterError(f"first_rank must be 0, 1 or None, got {self.first_rank}")
        if self.min_clients < 1:
            raise ParameterError(f"min_clients must be at least 1, got {self.min_clients}")
        if self.max_rank < 1:
            raise ParameterError(f"max_rank must be at least 1, got {self.max_rank}")


# --- DuckDB with bounded memory, and small helpers for its SQL --------------------------------------------------------


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
    Numbers are read as such, because parsing their text takes far longer.

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


# --- which files make up a log, and their rows as relations of DuckDB -------------------------------------------------


JSON_LINES = (".ndjson", ".jsonl", ".json")
KINDS = ".ndjson, .jsonl or .json (one object per line, optionally .gz), .parquet or .csv"
OPTIONAL = {"time", "client", "explored"}
OTHER_NAMES = {
    "client": (
        "clientid", "user", "userid", "visitor", "visitorid", "fullvisitorid", "userpseudoid", "customer", "customerid",
        "anonymousid", "distinctid", "deviceid", "cookie", "cookieid", "uid",
    ),
    "time": ("timestamp", "ts", "datetime", "eventtime", "date"),
}  # fmt: skip
"""Common names of optional columns, in lower case and without other characters than letters."""

_UBI_QUERIES = {
    "user_query": "VARCHAR",
    "query_id": "VARCHAR",
    "client_id": "VARCHAR",
    "timestamp": "VARCHAR",
    "query_attributes": "JSON",
    "query_response_hit_ids": "VARCHAR[]",
}
_UBI_EVENTS = {
    "action_name": "VARCHAR",
    "query_id": "VARCHAR",
    "client_id": "VARCHAR",
    "timestamp": "VARCHAR",
    "event_attributes": "JSON",
}


def file_format(path: Path) -> str:
    """Return "json", "parquet" or "csv"."""
    suffixes = [suffix for suffix in path.suffixes if suffix not in (".gz", ".zst")]
    suffix = suffixes[-1] if suffixes else ""
    if suffix in JSON_LINES:
        return "json"
    if suffix in (".parquet", ".csv", ".tsv"):
        return "parquet" if suffix == ".parquet" else "csv"
    raise DataError(f"{path}: unknown format of a click log; expected {KINDS}")


def scan(database: DuckDBPyConnection, path: Path, columns: Mapping[str, str] | None = None) -> str:
    """Return the SQL that reads a file.

    `columns` has the type of each column to take; absent columns are NULL. None takes all columns with the types of
    the file.
    """
    kind = file_format(path)
    if kind == "json":
        # A line that is no JSON object becomes a row of NULL, which is counted later.
        listed = "{" + ", ".join(f"{identifier(name)}: {quote(kind)}" for name, kind in (columns or {}).items()) + "}"
        chosen = f", columns = {listed}" if columns else ""
        return f"read_json({quote(str(path))}, format = 'newline_delimited', ignore_errors = true{chosen})"
    source = (
        f"read_parquet({quote(str(path))})"
        if kind == "parquet"
        else f"read_csv({quote(str(path))}, header = true, all_varchar = true)"
    )
    if columns is None:
        return source
    types = _types(database, source)
    taken = [f"{_converted(name, types.get(name), target)} AS {identifier(name)}" for name, target in columns.items()]
    return f"(SELECT {', '.join(taken)} FROM {source})"


def _types(database: DuckDBPyConnection, source: str) -> dict[str, str]:
    """Return the type of each column of a relation."""
    return {row[0]: str(row[1]) for row in database.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}


def _converted(name: str, stored: str | None, target: str) -> str:
    if stored is None:
        return f"CAST(NULL AS {target})"
    if target == "JSON" and not stored.startswith(("VARCHAR", "JSON")):
        return f"to_json({identifier(name)})"  # a struct or a map
    return f"try_cast({identifier(name)} AS {target})"


def column_names(database: DuckDBPyConnection, path: Path) -> set[str]:
    """Return the names of the columns of a file, or of the fields of its first line; none if it is empty."""
    if not path.stat().st_size:
        return set()
    if file_format(path) == "json":
        text = database.execute(
            f"SELECT content FROM (SELECT json AS content FROM read_json_objects({quote(str(path))}, "
            "format = 'newline_delimited', ignore_errors = true)) WHERE content IS NOT NULL LIMIT 1"
        ).fetchone()
        first = json.loads(text[0]) if text else None
        if not isinstance(first, dict):
            raise FileFormatError(path, 1, f"no JSON object per line: write one event per line, or use {KINDS}")
        return set(first)
    return set(_types(database, scan(database, path)))


def log_format(database: DuckDBPyConnection, files: Sequence[Path], options: LogOptions) -> str:
    """Return "ubi" or "table", from the options or the columns of the files."""
    if options.format != "auto":
        return options.format
    names = set().union(*(column_names(database, file) for file in files))
    return "ubi" if names & {"action_name", "user_query", "query_response_hit_ids"} else "table"


def create_ubi(database: DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Create the relations ``lists`` and ``events`` from files of UBI 1.3 queries and events."""
    names = {file: column_names(database, file) for file in files}
    events = [file for file in files if "action_name" in names[file] or not names[file]]
    queries = [file for file in files if file not in events]
    if not events or not queries:
        missing, needed = ("events", "action_name") if not events else ("queries", "user_query")
        raise DataError(
            f"no file of UBI {missing} (with the field {needed!r}) among {', '.join(map(str, files))}: pass both the "
            "queries and the events"
        )
    database.execute(f"""
        CREATE TABLE lists AS
        SELECT query_id AS list, user_query AS query, client_id AS client, {seconds('"timestamp"')} AS time,
            query_attributes AS attributes, query_response_hit_ids AS documents
        FROM ({_union(database, queries, _UBI_QUERIES)})""")
    database.execute(f"""
        CREATE TABLE events AS
        SELECT query_id AS list, action_name AS action, client_id AS client, {seconds('"timestamp"')} AS time,
            json_extract_string(event_attributes, '$.object.object_id') AS document,
            try_cast(json_extract_string(event_attributes, '$.position.ordinal') AS BIGINT) AS rank
        FROM ({_union(database, events, _UBI_EVENTS)})""")


def table_rows(database: DuckDBPyConnection, files: Sequence[Path], options: LogOptions, funnel: Funnel) -> str:
    """Return the SQL of a plain table with the columns of `COLUMNS`; absent optional columns are NULL."""
    parts = []
    found: dict[str, str] = {}
    for file in files:
        types = _types(database, scan(database, file)) if file.stat().st_size else {}
        taken = []
        for name in COLUMNS:
            column = options.columns.get(name) or _named(name, types)
            if column != name and name not in options.columns:
                found[name] = column
            if column in types:
                taken.append(f"{_typed(name, identifier(column), types[column])} AS {name}")
            elif name in OPTIONAL and name not in options.columns:
                taken.append(f"CAST(NULL AS {'BIGINT' if name == 'time' else 'VARCHAR'}) AS {name}")
            else:
                raise FileFormatError(
                    file,
                    0,
                    f"no column {column!r} for the {name}, got {sorted(types)}: name the columns, as in "
                    f"--columns {name}=NAME",
                )
        parts.append(f"SELECT {', '.join(taken)} FROM {scan(database, file)}")
    funnel.columns += [
        f"the {name} is taken from the column {column!r}: name another one with --columns {name}=NAME"
        for name, column in found.items()
    ]
    return " UNION ALL ".join(parts)


def _named(name: str, columns: Collection[str]) -> str:
    """Return the column of an optional value: that of its own name, or else of a common one; its own without any."""
    plain = {re.sub("[^a-z]", "", column.lower()): column for column in columns}
    known = [plain[other] for other in OTHER_NAMES.get(name, ()) if other in plain]
    return name if name in columns or not known else known[0]


def _typed(name: str, column: str, stored: str) -> str:
    if name == "time":
        return seconds(column, stored)
    if name == "clicked":  # a number or true/false
        return f"coalesce(try_cast({column} AS DOUBLE), CAST(try_cast({column} AS BOOLEAN) AS DOUBLE))"
    if name == "session":  # only compared with others
        return column
    return f"try_cast({column} AS {'BIGINT' if name == 'rank' else 'VARCHAR'})"


def _union(database: DuckDBPyConnection, files: Sequence[Path], columns: Mapping[str, str]) -> str:
    return " UNION ALL ".join(f"SELECT * FROM {scan(database, file, columns)}" for file in files)


# --- drop what cannot be used from lists and events, count it by reason, and match actions with what was shown --------
#
# Both functions end in two relations: ``impressions`` (list, query, document, rank, clicked, reward, time, client,
# reason), one row per document shown in a list, and ``query_times`` (query, time), which has all its queries and is
# cheaper to read.
# Rows with a reason are dropped when they are counted.


IMPRESSION = "impression"
# A second row with a click on the same document of the same list is a double click, not an impression. Only clicks are
# numbered: they are few.
_NUMBERED_CLICKS = """
    SELECT *, 1 AS nth FROM all_rows WHERE session IS NULL OR NOT coalesce(clicked > 0, false)
    UNION ALL
    SELECT *, row_number() OVER (PARTITION BY session, query, document ORDER BY time, rank) AS nth
    FROM all_rows WHERE session IS NOT NULL AND clicked > 0"""
WRONG_TIME = "time is before 1995 or in the future"
SKEW = "the clocks of the query and the event disagree"


def clean_lists(database: DuckDBPyConnection, options: LogOptions, funnel: Funnel) -> None:
    """Create ``impressions`` from the tables ``lists`` and ``events``."""
    _say_what_is_missing(database, "lists", options, funnel)
    _find_list_bots(database, options)
    _keep_lists(database, options, funnel)
    shown = _shown_documents(database, options, funnel)
    database.execute(f"CREATE TABLE shown AS {shown}")
    _keep_actions(database, options, funnel)
    database.execute(f"""
        CREATE VIEW impressions AS
        SELECT shown.list, query, document, rank, reward IS NOT NULL AS clicked, coalesce(reward, 0) AS reward, time,
            client, {_rank_reason(options)} AS reason
        FROM shown LEFT JOIN actions USING (list, document)""")
    database.execute("CREATE VIEW query_times AS SELECT query, time FROM kept")


def clean_rows(database: DuckDBPyConnection, rows: str, options: LogOptions, funnel: Funnel) -> None:
    """Create ``impressions`` from the SQL of a plain table with one row per impression."""
    database.execute(f"CREATE VIEW all_rows AS {rows}")
    _say_what_is_missing(database, "all_rows", options, funnel)
    known = is_known_time("time")
    database.execute(f"CREATE VIEW query_times AS SELECT query, time FROM all_rows WHERE {known}")
    _find_row_bots(database, options)
    _note_bots(database, funnel)
    explored = f"SELECT DISTINCT session, query FROM all_rows WHERE {_explored('explored')}"
    _note_explored(funnel, scalar(database, f"SELECT count(*) FROM ({explored})"))
    first = _first_rank(options, scalar(database, "SELECT min(rank) FROM all_rows"), funnel)
    top = max(options.actions.values())
    database.execute(f"""
        CREATE VIEW impressions AS
        SELECT CAST(session AS VARCHAR) || chr(31) || query AS list, query, document, rank - {first - 1} AS rank,
            coalesce(clicked > 0, false) AS clicked, least(coalesce(clicked, 0), {top}) / {top} AS reward, time, client,
            CASE WHEN query IS NULL OR document IS NULL OR rank IS NULL THEN 'no query, document or rank'
                WHEN nth > 1 THEN 'repeated click'
                WHEN NOT {known} THEN {quote(WRONG_TIME)}
                WHEN client IN (SELECT client FROM bots) THEN 'client is a bot'
                WHEN {_before(options, "time")} THEN 'before the first date'
                ELSE {_rank_reason(options, f"rank - {first - 1}")} END AS reason
        FROM ({_NUMBERED_CLICKS})""")


def _say_what_is_missing(database: DuckDBPyConnection, rows: str, options: LogOptions, funnel: Funnel) -> None:
    """Say which optional columns are missing, that of the clients first."""
    for column, effect in (
        (
            "client",
            "bots are not found, one person counts as often as they click, and queries of fewer than "
            f"{options.min_clients} clients are not left out",
        ),
        ("time", "what people chose does not age, and clicks of later days cannot be predicted"),
    ):
        if not scalar(database, f"SELECT count(*) FROM (SELECT 1 FROM {rows} WHERE {column} IS NOT NULL LIMIT 1)"):
            remedy = f"name it with --columns {column}=NAME" if rows == "all_rows" else "log it with each query"
            funnel.columns.append(f"no {column} column: {effect}; {remedy}")
    funnel.columns.sort(key=lambda sentence: not sentence.startswith("no client"))


def _find_row_bots(database: DuckDBPyConnection, options: LogOptions) -> None:
    database.execute("""
        CREATE TABLE client_days AS
        SELECT client, time // 86400 AS day, count(*) AS shown, count(*) FILTER (clicked > 0) AS clicks
        FROM all_rows WHERE client IS NOT NULL GROUP BY ALL""")
    # Lists are counted only for clients with more impressions in a day than the limit of lists.
    database.execute(f"""
        CREATE TABLE bots AS
        SELECT client FROM client_days GROUP BY client
        HAVING sum(shown) >= {options.min_impressions} AND sum(clicks) > {options.max_click_rate} * sum(shown)
        UNION
        SELECT client FROM all_rows JOIN client_days USING (client)
        WHERE day = time // 86400 AND shown > {options.max_queries_per_day} GROUP BY client, day
        HAVING count(DISTINCT (session, query)) > {options.max_queries_per_day}""")


def _find_list_bots(database: DuckDBPyConnection, options: LogOptions) -> None:
    listed = ", ".join(quote(name) for name in options.actions)
    database.execute(f"""
        CREATE TABLE bots AS
        SELECT client FROM lists WHERE client IS NOT NULL AND time IS NOT NULL GROUP BY client, time // 86400
        HAVING count(*) > {options.max_queries_per_day}
        UNION
        SELECT client FROM (SELECT client, sum(coalesce(len(documents), 0)) AS shown FROM lists GROUP BY client) AS l
        JOIN (SELECT client, count(DISTINCT list || chr(31) || document) AS clicks
            FROM events WHERE action IN ({listed}) GROUP BY client) AS e USING (client)
        WHERE shown >= {options.min_impressions} AND clicks > {options.max_click_rate} * shown""")


def _keep_lists(database: DuckDBPyConnection, options: LogOptions, funnel: Funnel) -> None:
    changed = _changed_attributes()
    excluded = " OR ".join(
        f"json_extract_string(attributes, {quote(f'$.{name}')}) = {quote(value)}"
        for name, value in options.exclude.items()
    )
    database.execute(f"""
        CREATE TABLE sorted_lists AS
        SELECT list, client, time, documents, attributes,
            query || CASE WHEN {options.attributes == "apart"} AND len({changed}) > 0
                THEN ' ' || to_json({changed}) ELSE '' END AS query,
            CASE WHEN query IS NULL AND list IS NULL THEN 'line cannot be read'
                WHEN list IS NULL THEN 'no query id'
                WHEN query IS NULL OR trim(query) = '' THEN 'no query text'
                WHEN row_number() OVER (PARTITION BY list ORDER BY time) > 1 THEN 'query id seen before'
                WHEN NOT {is_known_time("time")} THEN {quote(WRONG_TIME)}
                WHEN client IN (SELECT client FROM bots) THEN 'client is a bot'
                WHEN {_before(options, "time")} THEN 'before the first date'
                WHEN {excluded or "false"} THEN 'excluded by an attribute'
                WHEN {options.attributes == "drop"} AND len({changed}) > 0 THEN 'filtered, sorted or a later page'
                END AS reason
        FROM lists""")
    funnel.count("queries", _by_reason(database, "sorted_lists"))
    _note_bots(database, funnel)
    explored = _explored("json_extract_string(attributes, '$.explored')")
    _note_explored(funnel, scalar(database, f"SELECT count(*) FROM sorted_lists WHERE reason IS NULL AND {explored}"))
    columns = "list, client, query, time, documents"
    database.execute(f"CREATE TABLE kept AS SELECT {columns} FROM sorted_lists WHERE reason IS NULL")


def _shown_documents(database: DuckDBPyConnection, options: LogOptions, funnel: Funnel) -> str:
    """Return the SQL of the documents shown: logged impressions, or all returned documents."""
    logged = scalar(database, f"SELECT count(*) FROM events WHERE action = {quote(IMPRESSION)}")
    if options.seen == "results" or (options.seen == "auto" and not logged):
        funnel.notes.append(
            "impressions are the documents that were returned, which is not the same as seen: a document below the "
            "fold counts as shown"
        )
        return """
            SELECT list, any_value(query) AS query, any_value(time) AS time, any_value(client) AS client, document,
                min(rank) AS rank
            FROM (
                SELECT list, query, time, client, unnest(documents) AS document,
                    generate_subscripts(documents, 1) AS rank
                FROM kept)
            GROUP BY list, document"""
    first = _first_rank(options, _lowest_ordinal(database), funnel)
    return f"""
        SELECT list, any_value(query) AS query, any_value(kept.time) AS time, any_value(kept.client) AS client,
            document, min(coalesce(rank - {first - 1}, list_position(documents, document))) AS rank
        FROM events JOIN kept USING (list)
        WHERE action = {quote(IMPRESSION)} AND document IS NOT NULL GROUP BY list, document"""


def _lowest_ordinal(database: DuckDBPyConnection) -> int | None:
    """Return the ordinal of the first rank: by comparison with the returned list if it is logged, else the lowest."""
    agreed = database.execute("""
        SELECT rank - list_position(documents, document) + 1 AS first, count(*) AS events
        FROM events JOIN kept USING (list) WHERE rank IS NOT NULL AND list_contains(documents, document)
        GROUP BY first HAVING first IN (0, 1) ORDER BY events DESC LIMIT 1""").fetchone()
    lowest: int | None = agreed[0] if agreed else scalar(database, "SELECT min(rank) FROM events")
    return lowest


def _first_rank(options: LogOptions, lowest: int | None, funnel: Funnel) -> int:
    if options.first_rank is not None:
        return options.first_rank
    if lowest == 0:
        funnel.notes.append("ranks are counted from 0 in this log")
        return 0
    return 1


def _keep_actions(database: DuckDBPyConnection, options: LogOptions, funnel: Funnel) -> None:
    values = ", ".join(f"({quote(name)}, {float(value)})" for name, value in options.actions.items())
    top = max(options.actions.values())
    database.execute(f"""
        CREATE TABLE sorted_events AS
        SELECT e.list, e.document, value, CASE
                WHEN e.list IS NULL AND e.action IS NULL THEN 'line cannot be read'
                WHEN e.list IS NULL THEN 'no query id'
                WHEN s.list IS NULL THEN 'query is not in the log'
                WHEN s.reason IS NOT NULL THEN 'query was dropped'
                WHEN e.document IS NULL THEN 'no document'
                WHEN value IS NULL THEN 'action does not count'
                WHEN e.time < s.time - {options.early} OR e.time > s.time + {options.late} THEN {quote(SKEW)}
                WHEN shown.list IS NULL THEN 'document was not shown'
                WHEN row_number() OVER (PARTITION BY e.list, e.document, e.action ORDER BY e.time) > 1
                    THEN 'repeated action' END AS reason
        FROM events AS e LEFT JOIN (VALUES {values}) AS a (action, value) USING (action)
        LEFT JOIN (SELECT list, any_value(time) AS time, CASE WHEN count(*) FILTER (reason IS NULL) = 0
            THEN 'dropped' END AS reason FROM sorted_lists GROUP BY list) AS s ON e.list = s.list
        LEFT JOIN (SELECT DISTINCT list, document FROM shown) AS shown
            ON e.list = shown.list AND e.document = shown.document
        WHERE e.action IS DISTINCT FROM {quote(IMPRESSION)}""")
    funnel.count("events", _by_reason(database, "sorted_events"))
    database.execute(f"""
        CREATE TABLE actions AS SELECT list, document, max(value) / {top} AS reward FROM sorted_events
        WHERE reason IS NULL GROUP BY list, document""")


def _changed_attributes() -> str:
    """Return the SQL of the attributes that make a list different from that of the bare query."""
    same = ", ".join(quote(value) for value in SAME_LIST)
    return f"""list_filter(coalesce(map_entries(try_cast(attributes AS MAP(VARCHAR, VARCHAR))), []), lambda a:
        regexp_matches(a.key, {quote(LIST_ATTRIBUTES)}) AND NOT regexp_matches(a.key, {quote(PAGE_SIZE)})
        AND a.value IS NOT NULL AND lower(a.value) NOT IN ({same})
        AND NOT (regexp_matches(a.key, '(?i)page') AND a.value = '1'))"""


def _rank_reason(options: LogOptions, rank: str = "rank") -> str:
    return (
        f"CASE WHEN {rank} IS NULL THEN 'no rank' WHEN {rank} < 1 THEN 'rank below the first' "
        f"WHEN {rank} > {options.max_rank} THEN 'rank below {options.max_rank}' END"
    )


def _before(options: LogOptions, column: str) -> str:
    return "false" if options.since is None else f"{column} < {seconds(quote(options.since))}"


def _note_bots(database: DuckDBPyConnection, funnel: Funnel) -> None:
    bots = scalar(database, "SELECT count(*) FROM bots")
    if bots:
        funnel.notes.append(f"{bots:,} clients are bots by their rates of queries or clicks")


def _explored(value: str) -> str:
    """Return the SQL of whether a list explored, by what was logged as text of that."""
    return f"coalesce(lower({value}), '') NOT IN ('', '0', '0.0', 'false', 'null')"


def _note_explored(funnel: Funnel, lists: int) -> None:
    if lists:
        funnel.notes.append(f"lists that explored, and so tell how ranks are examined: {lists:,}")


def _by_reason(database: DuckDBPyConnection, table: str) -> dict[str | None, int]:
    rows = database.execute(f"SELECT reason, count(*) FROM {table} GROUP BY reason ORDER BY reason").fetchall()
    return {reason: int(count) for reason, count in rows}


_LATE = 0.8  # share of the time after which clicks are held out
_BATCH = 1_000_000
# Every text is normalized once and replaced by a number, because there are far fewer queries than impressions.
NORMALIZED = r"trim(regexp_replace(lower(nfc_normalize(query)), '[\s\p{Z}]+', ' ', 'g'))"


def read_clicks(files: Sequence[PathLike], options: LogOptions | None = None, *, cascade: bool = False) -> ClickCounts:
    r"""Read a click log and count impressions and clicks by query, document and rank.

    Query texts are compared without regard to case, spaces and Unicode form.

    Parameters
    ----------
    files
        UBI queries and events, or tables with one row per impression: .ndjson, .parquet or .csv.
    options
        What to read and what to drop.
    cascade
        Also count how often each rank was examined by users who stop at their last click, which takes another pass.

    Raises
    ------
    DataError
        If a file is not a click log, or nothing is left of it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.csv"
    >>> _ = path.write_text(
    ...     "query,session,document,rank,clicked\n"
    ...     "Alien,s1,d7,1,1\nalien ,s2,d7,2,0\nalien,s2,d9,1,1\n")
    >>> counts = read_clicks([path])
    >>> counts.query.to_pylist(), counts.document.to_pylist(), counts.rank.tolist(), counts.clicks.tolist()
    (['alien', 'alien'], ['d7', 'd9'], [1, 2, 1], [1, 0, 1])
    """
    with open_clicks(files, options) as log:
        return log.counts(cascade=cascade)


@dataclass(frozen=True)
class ClickLog:
    """A click log in a temporary database, as `open_clicks` yields it."""

    database: DuckDBPyConnection
    """The database, with the relations ``impressions`` and ``query_times`` of `kinrank.clicks.read`."""
    options: LogOptions
    """What was read and what was dropped."""
    funnel: Funnel
    """Counts of the rows at each stage."""

    def counts(self, *, cascade: bool = False) -> ClickCounts:
        """Count impressions and clicks by query, document and rank; see `read_clicks`. Call it once."""
        return _count_cells(self.database, self.options, self.funnel, cascade=cascade)


def check_files(files: Sequence[PathLike]) -> list[Path]:
    """Return the paths of the files of a log, or the folder of one. Raise if one is missing."""
    for file in files:
        if not (Path(file).is_file() or (len(files) == 1 and is_log(file))):
            raise DataError(f"{redact_passwords(str(file))}: no such file: pass the files of a click log")
    return [Path(file) for file in files]


@contextmanager
def open_clicks(files: Sequence[PathLike], options: LogOptions | None = None) -> Iterator[ClickLog]:
    """Open a click log to count it and to collect its evidence in one reading; see `read_clicks`."""
    paths = check_files(files)
    chosen = options or LogOptions()
    funnel = Funnel()
    duckdb = import_extra("duckdb", "clicks")
    with open_database(chosen) as database:
        try:
            _create_impressions(database, paths, chosen, funnel)
            yield ClickLog(database, chosen, funnel)
        except duckdb.OutOfMemoryException as error:
            raise DataError(
                f"{chosen.memory} of memory are not enough for this log: allow more (--set memory=SIZE), or count "
                "fewer files at a time"
            ) from error
        except duckdb.Error as error:
            raise DataError(f"cannot read {', '.join(map(str, paths))}: {error}") from error


def _create_impressions(database: DuckDBPyConnection, paths: list[Path], options: LogOptions, funnel: Funnel) -> None:
    if is_log(paths[0]):
        clean_rows(database, rows_of_log(paths[0]), options, funnel)
        return
    if log_format(database, paths, options) == "table":
        clean_rows(database, table_rows(database, paths, options, funnel), options, funnel)
        return
    create_ubi(database, paths)
    clean_lists(database, options, funnel)


def _count_cells(database: DuckDBPyConnection, options: LogOptions, funnel: Funnel, *, cascade: bool) -> ClickCounts:
    """Count the impressions by query, document and rank in one pass, together with those that are dropped."""
    texts = _number_texts(database)
    dates = _first_dates(database)
    counted = _counted(database)
    joined = "impressions LEFT JOIN texts USING (query)"
    if cascade:  # Users read from the top to their last click, and everything if they click nothing.
        database.execute("""
            CREATE TABLE last_clicks AS SELECT list, max(rank) AS last FROM impressions
            WHERE clicked AND reason IS NULL GROUP BY list""")
        counted["examined"] = "count(*) FILTER (rank <= coalesce(last, rank))"
        joined += " LEFT JOIN last_clicks USING (list)"
    columns = [f"CAST({sql} AS INTEGER) AS {name}" for name, sql in counted.items()]
    if not options.plain:
        columns.append("sum(reward) AS reward")
    keys = {"code": "code", "document": "document", "rank": "CAST(rank AS INTEGER)"}
    kept = [f"CASE WHEN why IS NULL THEN {sql} END AS {name}" for name, sql in keys.items()]
    cells = database.sql(f"""
        SELECT {", ".join(kept)}, why AS reason, {", ".join(columns)}
        FROM (SELECT *, coalesce(reason, CASE WHEN code IS NULL THEN 'no query text' END) AS why FROM {joined})
        GROUP BY 1, 2, 3, 4 ORDER BY 1 NULLS FIRST, 2, 3, 4""")
    few = _asked_by_few(database, options.min_clients, len(texts))
    return collect_cells(cells.to_arrow_reader(_BATCH), texts, funnel, few, dates)


def _asked_by_few(database: DuckDBPyConnection, fewest: int, n_texts: int) -> NDArray[np.bool_] | None:
    """Return which texts, by their codes, fewer clients asked; a list without a client is one. None without clients."""
    if not scalar(database, "SELECT count(*) FROM (SELECT 1 FROM impressions WHERE client IS NOT NULL LIMIT 1)"):
        return None
    few = np.ones(n_texts, dtype=np.bool_)
    asked = database.execute(f"""
        SELECT code FROM (SELECT DISTINCT query, coalesce(client, list) AS client FROM impressions WHERE reason IS NULL)
        JOIN texts USING (query) GROUP BY code HAVING count(DISTINCT client) >= {fewest}""")
    few[asked.fetchnumpy()["code"]] = False
    return few


def _first_dates(database: DuckDBPyConnection) -> pa.Array | None:
    """Return the day on which each text was first asked, empty if unknown, by its code; None if no list has a time."""
    if not scalar(database, "SELECT count(*) FROM (SELECT 1 FROM query_times WHERE time IS NOT NULL LIMIT 1)"):
        return None
    dates = database.sql("""
        SELECT coalesce(strftime(make_timestamp(CAST(min(time) AS BIGINT) * 1000000), '%Y-%m-%d'), '') AS date
        FROM texts LEFT JOIN query_times USING (query) GROUP BY code ORDER BY code""").to_arrow_table()
    return dates["date"].combine_chunks()


def _number_texts(database: DuckDBPyConnection) -> pa.Array:
    """Create the relation ``texts`` (query, text, code) and return the normalized texts by their codes."""
    # In two steps: DuckDB would push the filter on normalized texts down to every row.
    database.execute("CREATE TABLE queries AS SELECT DISTINCT query FROM query_times")
    database.execute(f"""
        CREATE TABLE texts AS
        SELECT query, text, CAST(dense_rank() OVER (ORDER BY text) - 1 AS INTEGER) AS code
        FROM (SELECT query, {NORMALIZED} AS text FROM queries) WHERE text <> ''""")
    table = database.sql("SELECT any_value(text) AS text FROM texts GROUP BY code ORDER BY code").to_arrow_table()
    return table["text"].combine_chunks()


def _counted(database: DuckDBPyConnection) -> dict[str, str]:
    """Return the SQL of each count of a cell."""
    bounds = "SELECT coalesce(min(time), 0), coalesce(max(time), 0) FROM query_times"
    [(earliest, latest)] = database.execute(bounds).fetchall()
    early = f"time <= {int(earliest + _LATE * (latest - earliest))}"
    counted = {"impressions": "count(*)", "clicks": "count(*) FILTER (clicked)"}
    for day, condition in (("even", "time % 172800 < 86400"), ("odd", "time % 172800 >= 86400")):
        counted[f"{day}_impressions"] = f"count(*) FILTER ({condition} AND {early})"
        counted[f"{day}_clicks"] = f"count(*) FILTER (clicked AND {condition} AND {early})"
    return counted
