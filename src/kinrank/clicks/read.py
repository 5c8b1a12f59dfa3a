"""Read click logs of any size into counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kinrank.clicks.clean import clean_lists, clean_rows
from kinrank.clicks.counts import COUNTED, ClickCounts
from kinrank.clicks.database import open_database
from kinrank.clicks.funnel import Funnel
from kinrank.clicks.options import LogOptions
from kinrank.clicks.sources import create_metarank, create_ubi, log_format, table_rows
from kinrank.data.textfile import PathLike
from kinrank.errors import DataError
from kinrank.registry import import_extra

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_LATE = 0.8  # share of the time after which clicks are held out
# Texts are normalized after counting, because there are far fewer queries than impressions.
_NORMALIZED = r"trim(regexp_replace(lower(nfc_normalize(query)), '[\s\p{Z}]+', ' ', 'g'))"


def read_clicks(files: Sequence[PathLike], options: LogOptions | None = None, *, cascade: bool = False) -> ClickCounts:
    r"""Read a click log and count impressions and clicks by query, document and rank.

    Query texts are compared without regard to case, spaces and Unicode form.

    Parameters
    ----------
    files
        UBI queries and events, Metarank events, or tables with one row per impression: .ndjson, .parquet or .csv.
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
    (['alien', 'alien'], ['d7', 'd9'], [1, 2, 1], [1.0, 0.0, 1.0])
    """
    paths = [Path(file) for file in files]
    chosen = options or LogOptions()
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path}: no such file: pass the files of a click log")
    funnel = Funnel()
    with open_database(chosen) as database:
        try:
            _create_impressions(database, paths, chosen, funnel)
            table = _count_cells(database, funnel, cascade)
        except import_extra("duckdb", "clicks").Error as error:
            raise DataError(f"cannot read {', '.join(map(str, paths))}: {error}") from error
        return ClickCounts.from_table(table, funnel)


def _create_impressions(database: DuckDBPyConnection, paths: list[Path], options: LogOptions, funnel: Funnel) -> None:
    kind = log_format(database, paths, options)
    if kind == "table":
        clean_rows(database, table_rows(database, paths, options), options, funnel)
        return
    (create_ubi if kind == "ubi" else create_metarank)(database, paths)
    clean_lists(database, options, funnel)


def _count_cells(database: DuckDBPyConnection, funnel: Funnel, cascade: bool) -> object:
    """Count the impressions, in one pass and grouped by reason, then by normalized text."""
    bounds = database.execute("SELECT min(time), max(time) FROM impressions WHERE reason IS NULL").fetchone()
    earliest, latest = bounds if bounds and bounds[0] is not None else (0.0, 0.0)
    late = earliest + _LATE * (latest - earliest)
    examined, join = "count(*)", ""
    if cascade:  # Users read from the top to their last click, and everything if they click nothing.
        database.execute("""
            CREATE TABLE last_clicks AS SELECT list, max(rank) AS last FROM impressions
            WHERE clicked AND reason IS NULL GROUP BY list""")
        examined, join = "count(*) FILTER (rank <= coalesce(last, rank))", "LEFT JOIN last_clicks USING (list)"
    kept = {name: f"CASE WHEN reason IS NULL THEN {name} END AS {name}" for name in ("query", "document", "rank")}
    database.execute(f"""
        CREATE TABLE raw_cells AS
        SELECT {", ".join(kept.values())}, reason, count(*) AS impressions,
            count(*) FILTER (clicked) AS clicks, sum(reward) AS reward, {examined} AS examined,
            count(*) FILTER (time // 86400 % 2 = 0) AS even_impressions,
            count(*) FILTER (time // 86400 % 2 = 0 AND clicked) AS even_clicks,
            count(*) FILTER (time > {late}) AS late_impressions,
            count(*) FILTER (time > {late} AND clicked) AS late_clicks
        FROM impressions {join} GROUP BY 1, 2, 3, 4""")
    rows = database.execute("SELECT reason, sum(impressions) FROM raw_cells GROUP BY reason ORDER BY reason").fetchall()
    funnel.count("impressions", {reason: int(count) for reason, count in rows})
    sums = ", ".join(f"CAST(sum({name}) AS DOUBLE) AS {name}" for name in COUNTED)
    return database.sql(f"""
        WITH texts AS (SELECT query, {_NORMALIZED} AS text FROM (SELECT DISTINCT query FROM raw_cells))
        SELECT text AS query, document, rank, {sums} FROM raw_cells JOIN texts USING (query)
        WHERE reason IS NULL AND text <> '' GROUP BY text, document, rank ORDER BY text, document, rank
        """).to_arrow_table()
