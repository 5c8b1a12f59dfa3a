"""Drop what cannot be used from lists and events, count it by reason, and match actions with what was shown.

Both functions end in two relations: ``impressions`` (list, query, document, rank, clicked, reward, time, client,
reason), one row per document shown in a list, and ``query_times`` (query, time), which has all its queries and is
cheaper to read.
Rows with a reason are dropped when they are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinrank.clicks.database import is_known_time, quote, scalar, seconds
from kinrank.clicks.funnel import Funnel
from kinrank.clicks.options import LogOptions
from kinrank.data.ubi import LIST_ATTRIBUTES, PAGE_SIZE, SAME_LIST

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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
