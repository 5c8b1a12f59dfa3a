"""The folder of a log of searches and clicks, by day and bucket.

::

    LOG/impressions/day=2026-10-01/bucket=3/NAME.parquet    list, query, client, documents (best first)
    LOG/clicks/day=2026-10-01/bucket=3/NAME.parquet         list, document, value (1 if there is no such column)

Files are only added, and hold one row for each list, or click. A *partition* is the lists of one day and bucket, and
the clicks of that day and of the next one: people who search before midnight may click after it. All lists of a query
on a day are in one bucket. Buckets are optional, for clicks also if lists have them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from kinrank.data.files import PathLike
from kinrank.errors import DataError
from kinrank.memory.evidence import latest_day

IMPRESSIONS, CLICKS = "impressions", "clicks"
SHOWN = """unnest(documents) AS document, generate_subscripts(documents, 1) AS rank"""
"""The SQL of the documents of a list, and their ranks."""
_EPOCH, _SECONDS = date(1970, 1, 1).toordinal(), 86_400


@dataclass(frozen=True)
class Partition:
    """The lists of one day and bucket, and the clicks that may be on them."""

    day: int
    """Days since 1970."""
    bucket: str
    """The name of the bucket's folder; empty without buckets."""
    lists: tuple[str, ...]
    clicks: tuple[str, ...]
    """Files."""

    @property
    def name(self) -> str:
        """The name of the file of its cells."""
        return f"{date.fromordinal(self.day + _EPOCH).isoformat()}{self.bucket and f'-{self.bucket}'}.parquet"

    def fingerprint(self) -> list[tuple[str, int, int]]:
        """Return what is another value if a file was added or written again."""
        files = sorted({*self.lists, *self.clicks})
        return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in zip(files, map(os.stat, files), strict=True)]


def is_log(path: PathLike) -> bool:
    """Return whether a path is the folder of a log."""
    return (Path(path) / IMPRESSIONS).is_dir()


def partitions(log: PathLike, *, whole_days: bool = False) -> list[Partition]:
    """Return the partitions of a log, in the order of days and buckets, or its days. Days to come are left out."""
    root, found = Path(log), []
    for folder in sorted((root / IMPRESSIONS).glob("day=*")):
        day = _day(folder)
        if day > latest_day():
            continue
        later = [root / CLICKS / f"day={date.fromordinal(each + _EPOCH).isoformat()}" for each in (day, day + 1)]
        buckets = [] if whole_days else sorted(each.name for each in folder.glob("bucket=*"))
        if buckets and parquet_files(folder, deep=False):
            raise DataError(f"{folder} has files next to buckets: move them into a bucket, or leave out buckets")
        for bucket in buckets or [""]:
            # Clicks need no buckets: who sends them may not know the query.
            clicks = [file for each in later for file in parquet_files(each, deep=not bucket)]
            if bucket:
                clicks += [file for each in later for file in parquet_files(each / bucket)]
            lists = parquet_files(folder / bucket)
            if lists:
                found.append(Partition(day, bucket, tuple(lists), tuple(clicks)))
    if not found:
        raise DataError(f"{log} has no files {IMPRESSIONS}/day=YYYY-MM-DD/NAME.parquet: pass the folder of a log")
    return found


def _day(folder: Path) -> int:
    with suppress(ValueError):
        return date.fromisoformat(folder.name.removeprefix("day=")).toordinal() - _EPOCH
    raise DataError(f"{folder}: no day: name the folder as in day=2026-10-01")


def parquet_files(folder: Path, *, deep: bool = True) -> list[str]:
    """Return the Parquet files in a folder, and in its subfolders if `deep`; none if there is no folder."""
    return sorted(str(file) for file in folder.glob("**/*.parquet" if deep else "*.parquet"))


def lists_in(files: Sequence[str]) -> str:
    """Return the SQL of the lists in files: list, query, client and documents. A list may be there several times."""
    return f"""
        SELECT * FROM ({_columns(files, list="VARCHAR", query="VARCHAR", client="VARCHAR", documents="VARCHAR[]")})
        WHERE list IS NOT NULL AND trim(query) <> '' AND documents IS NOT NULL"""


def clicks_in(files: Sequence[str]) -> str:
    """Return the SQL of the clicks in files: list, document and the highest value."""
    columns = _columns(files, list="VARCHAR", document="VARCHAR", value="DOUBLE")
    return f"""
        SELECT list, document, max(coalesce(value, 1)) AS value FROM ({columns})
        WHERE list IS NOT NULL AND document IS NOT NULL GROUP BY list, document"""


def each_once(lists: str) -> str:
    """Return the SQL of lists, each once; those that are there several times are few, and only they are grouped.

    Rows of a list that differ give the least of each column, whatever their order.
    """
    repeated = f"SELECT list FROM {lists} GROUP BY list HAVING count(*) > 1"
    columns = "query, client, documents"
    least = ", ".join(f"min({name}) AS {name}" for name in columns.split(", "))
    return f"""
        SELECT list, {columns} FROM {lists} ANTI JOIN ({repeated}) USING (list) UNION ALL
        SELECT list, {least} FROM {lists} SEMI JOIN ({repeated}) USING (list) GROUP BY list"""


def rows_of_log(log: PathLike) -> str:
    """Return the SQL of a log as a table of impressions, with the columns that `kinrank.clicks.read` takes."""
    days = [
        f"""
        SELECT query, list AS session, document, rank, value AS clicked, {day.day * _SECONDS} AS time, client,
            CAST(NULL AS VARCHAR) AS explored
        FROM (SELECT query, list, client, {SHOWN} FROM ({each_once(f"({lists_in(day.lists)})")}))
            LEFT JOIN ({clicks_in(day.clicks)}) USING (list, document)"""
        for day in partitions(log, whole_days=True)
    ]
    return " UNION ALL ".join(days)


def _columns(files: Sequence[str], **types: str) -> str:
    """Return the SQL of some columns of files; those that a file does not have are NULL."""
    none = "SELECT " + ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in types.items()) + " WHERE false"
    if not files:
        return none
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    return f"""
        {none} UNION ALL BY NAME
        SELECT COLUMNS(lambda name: name IN {tuple(types)}) FROM read_parquet([{listed}], union_by_name = true)"""
