"""Which files make up a log, and their rows as relations of DuckDB."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kinrank.clicks.database import identifier, quote, seconds
from kinrank.clicks.funnel import Funnel
from kinrank.clicks.options import COLUMNS, LogOptions
from kinrank.errors import DataError, FileFormatError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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
_METARANK = {
    "event": "VARCHAR",
    "id": "VARCHAR",
    "ranking": "VARCHAR",
    "timestamp": "VARCHAR",
    "user": "VARCHAR",
    "session": "VARCHAR",
    "type": "VARCHAR",
    "item": "VARCHAR",
    "items": "JSON",
    "fields": "JSON",
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

    Parameters
    ----------
    database
        The database that will read it.
    path
        The file.
    columns
        The type of each column to take; absent columns are NULL. None takes all columns with the types of the file.
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
    """Return "ubi", "metarank" or "table", from the options or the columns of the files."""
    if options.format != "auto":
        return options.format
    names = set().union(*(column_names(database, file) for file in files))
    if names & {"action_name", "user_query", "query_response_hit_ids"}:
        return "ubi"
    return "metarank" if "event" in names else "table"


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


def create_metarank(database: DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Create the relations ``lists`` and ``events`` from Metarank's events; those of items and users are skipped."""
    database.execute(f"""
        CREATE VIEW log AS SELECT *, {seconds('"timestamp"')} AS time,
            coalesce("user", session) AS client FROM ({_union(database, files, _METARANK)})""")
    database.execute("""
        CREATE TABLE lists AS
        SELECT id AS list, json_extract_string(list_filter(
                CAST(fields AS JSON[]), lambda f: json_extract_string(f, '$.name') = 'query')[1], '$.value') AS query,
            client, time, CAST(NULL AS JSON) AS attributes,
            list_transform(CAST(items AS JSON[]), lambda i: json_extract_string(i, '$.id')) AS documents
        FROM log WHERE event = 'ranking' OR event IS NULL""")
    database.execute("""
        CREATE TABLE events AS
        SELECT ranking AS list, type AS action, client, time, item AS document, CAST(NULL AS BIGINT) AS rank
        FROM log WHERE event = 'interaction'""")


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
