"""Read click logs of any size into counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kinrank.clicks.cells import collect_cells
from kinrank.clicks.clean import clean_lists, clean_rows
from kinrank.clicks.counts import ClickCounts
from kinrank.clicks.database import open_database, scalar
from kinrank.clicks.funnel import Funnel
from kinrank.clicks.options import LogOptions
from kinrank.clicks.sources import create_metarank, create_ubi, log_format, table_rows
from kinrank.data.filesystems import redact_passwords
from kinrank.data.textfile import PathLike
from kinrank.errors import DataError
from kinrank.registry import import_extra

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

_LATE = 0.8  # share of the time after which clicks are held out
_BATCH = 1_000_000
# Every text is normalized once and replaced by a number, because there are far fewer queries than impressions.
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
    (['alien', 'alien'], ['d7', 'd9'], [1, 2, 1], [1, 0, 1])
    """
    with open_clicks(files, options) as log:
        return log.counts(cascade=cascade)


@dataclass(frozen=True)
class ClickLog:
    """A click log in a temporary database, as `open_clicks` yields it."""

    database: DuckDBPyConnection
    """The database, with the relations ``impressions`` and ``query_times`` of `kinrank.clicks.clean`."""
    options: LogOptions
    """What was read and what was dropped."""
    funnel: Funnel
    """Counts of the rows at each stage."""

    def counts(self, *, cascade: bool = False) -> ClickCounts:
        """Count impressions and clicks by query, document and rank; see `read_clicks`. Call it once."""
        return _count_cells(self.database, self.options, self.funnel, cascade=cascade)


def check_files(files: Sequence[PathLike]) -> list[Path]:
    """Return the paths of the files of a log. Raise if one is missing."""
    for file in files:
        if not Path(file).is_file():
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
                f"{chosen.memory} of memory are not enough for this log: allow more (memory=, --memory), or count "
                "fewer files at a time"
            ) from error
        except duckdb.Error as error:
            raise DataError(f"cannot read {', '.join(map(str, paths))}: {error}") from error


def _create_impressions(database: DuckDBPyConnection, paths: list[Path], options: LogOptions, funnel: Funnel) -> None:
    kind = log_format(database, paths, options)
    if kind == "table":
        clean_rows(database, table_rows(database, paths, options, funnel), options, funnel)
        return
    (create_ubi if kind == "ubi" else create_metarank)(database, paths)
    clean_lists(database, options, funnel)


def _count_cells(database: DuckDBPyConnection, options: LogOptions, funnel: Funnel, *, cascade: bool) -> ClickCounts:
    """Count the impressions by query, document and rank in one pass, together with those that are dropped."""
    texts = _number_texts(database)
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
    return collect_cells(cells.to_arrow_reader(_BATCH), texts, funnel, few)


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


def _number_texts(database: DuckDBPyConnection) -> pa.Array:
    """Create the relation ``texts`` (query, text, code) and return the normalized texts by their codes."""
    # In two steps: DuckDB would push the filter on normalized texts down to every row.
    database.execute("CREATE TABLE queries AS SELECT DISTINCT query FROM query_times")
    database.execute(f"""
        CREATE TABLE texts AS
        SELECT query, text, CAST(dense_rank() OVER (ORDER BY text) - 1 AS INTEGER) AS code
        FROM (SELECT query, {_NORMALIZED} AS text FROM queries) WHERE text <> ''""")
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
