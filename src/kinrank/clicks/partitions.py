"""Count the folder of a log partition by partition, and write the cells as evidence.

The cells of a partition are a file, which is written again if a file of the partition, or the first pass, is another
one. Nothing else is remembered: to count twice, or in several jobs at once, changes nothing. What is counted depends on
the files of the log alone: forget a person by leaving them out of the files, and count again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from kinrank.clicks.choices import examination_of, examination_to_json, sorted_cells
from kinrank.clicks.counting import KEYS, UNIT, FirstPass, create_cells, create_functions
from kinrank.clicks.examination import Examination
from kinrank.clicks.log import SHOWN, Partition, clicks_in, each_once, lists_in, partitions
from kinrank.clicks.read import ClickLog, LogOptions, open_database
from kinrank.data.files import PathLike
from kinrank.data.hashes import TextTable, hash_arrow
from kinrank.errors import DataError
from kinrank.folder import OnWait, locked
from kinrank.memory.evidence import Evidence, write_sorted_cells
from kinrank.parallel import Executor, Serial

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_STORED = "first-pass.json"
_FINGERPRINT = b"kinrank.partition"
# A document that a list has twice was seen at its first place.
_FIRST_PLACES = """CASE WHEN list_unique(documents) = len(documents) THEN documents
    ELSE list_filter(documents, lambda document, place: list_position(documents, document) = place) END"""


# --- the first pass: how ranks are examined, and whom to leave out ----------------------------------------------------


def fit_first_pass(log: ClickLog, examination: Examination) -> FirstPass:
    """Return what counting has to know of a log whose rows were read."""
    create_functions(log.database)
    bots = log.database.sql("SELECT text_hash(client) AS client FROM bots").to_arrow_table()["client"]
    return FirstPass.of(examination, bots.to_numpy())


def save_first_pass(cells: PathLike, first: FirstPass, examination: Examination) -> None:
    """Store the first pass next to the cells that are counted by it."""
    stored = {"version": first.version, "first_pass": first.to_json(), "examination": examination_to_json(examination)}
    with _replacing(Path(cells) / _STORED) as file:
        file.write_text(json.dumps(stored))


def stored_first_pass(cells: PathLike) -> tuple[FirstPass, Examination] | None:
    """Return what `save_first_pass` stored; None without it."""
    file = Path(cells) / _STORED
    if not file.exists():
        return None
    stored = json.loads(file.read_text())
    return FirstPass.from_json(stored["first_pass"]), examination_of(stored["examination"])


# --- count ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counted:
    """What counting a log did."""

    partitions: int
    """How many partitions the log has."""
    changed: int
    """How many of them were counted; the others were so before."""


def count_partitions(
    log: PathLike,
    cells: PathLike,
    first: FirstPass,
    options: LogOptions | None = None,
    *,
    executor: Executor | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Counted:
    """Count the partitions of a log that changed, and drop the cells of those that are gone.

    Parameters
    ----------
    log
        The folder of the log.
    cells
        The folder with a file for each partition. It is created if it does not exist.
    first
        What is known of the whole log.
    options
        Which ranks and actions count, how many clients are enough, and the limits of DuckDB.
    executor
        Runs the tasks, one for each partition that changed. All workers must see both folders.
    progress
        Called with the number of partitions after each one.
    """
    chosen, target, found = options or LogOptions(), Path(cells), partitions(log)
    target.mkdir(parents=True, exist_ok=True)
    count = _CountTask(str(target), first, chosen)
    changed = [partition for partition in found if not count.is_done(partition)]
    for _ in (executor or Serial()).map_unordered(count, changed):
        progress(1)
    names = {partition.name for partition in found}
    for file in target.glob("*.parquet"):
        if file.name not in names:
            file.unlink(missing_ok=True)
    return Counted(len(found), len(changed))


@dataclass(frozen=True)
class _CountTask:
    """Counts a partition and writes its cells."""

    cells: str
    first: FirstPass
    options: LogOptions

    def is_done(self, partition: Partition) -> bool:
        file = Path(self.cells) / partition.name
        if not file.exists():
            return False
        known = (pq.read_metadata(file).metadata or {}).get(_FINGERPRINT, b"")
        return bool(known.decode() == self._fingerprint(partition))

    def _fingerprint(self, partition: Partition) -> str:
        """Return what is another text if the cells may be others."""
        settings = [self.options.min_clients, self.options.max_rank, max(self.options.actions.values())]
        return hashlib.sha256(json.dumps([partition.fingerprint(), self.first.version, settings]).encode()).hexdigest()

    def __call__(self, partition: Partition) -> None:
        fingerprint = self._fingerprint(partition)  # before the files are read
        with open_database(self.options) as database:
            table = counted_partition(database, partition, self.first, self.options)
        described = {**(table.schema.metadata or {}), _FINGERPRINT: fingerprint.encode()}
        with _replacing(Path(self.cells) / partition.name) as file:
            # Hashes that hardly ever repeat take longer with a dictionary, and no less space.
            dictionary = ["query", "day", "id"]
            pq.write_table(table.replace_schema_metadata(described), file, use_dictionary=dictionary)


def counted_partition(
    database: DuckDBPyConnection, partition: Partition, first: FirstPass, options: LogOptions
) -> pa.Table:
    """Return the cells of a partition, with those who asked the query and those who chose the document.

    Of the clients there are as many as are enough: the `min_clients` lowest hashes. So many of a union are the lowest
    of its parts, so that people are counted over several days without anyone being counted twice. ``id`` is the id of a
    document that was clicked.
    """
    create_functions(database)
    top, fewest = max(options.actions.values()), options.min_clients
    database.register("excluded", pa.table({"client": pa.array(first.excluded, pa.uint64())}))
    database.execute(f"""
        CREATE OR REPLACE TEMP TABLE hashed AS
        SELECT text_hash(list) AS list, query_hash(query) AS query, text_hash(coalesce(client, list)) AS client,
            {_FIRST_PLACES} AS documents
        FROM (SELECT * REPLACE (documents[:{options.max_rank}] AS documents) FROM ({lists_in(partition.lists)}))""")
    database.execute(f"""
        CREATE OR REPLACE TEMP VIEW lists AS FROM ({each_once("hashed")}) ANTI JOIN excluded USING (client)""")
    database.execute(f"""
        CREATE OR REPLACE TEMP TABLE actions AS
        SELECT text_hash(list) AS list, text_hash(document) AS document, document AS id,
            CAST(round(least(value, {top}) / {top} * {UNIT}) AS BIGINT) AS value
        FROM ({clicks_in(partition.clicks)}) WHERE value > 0""")
    # A client who asked once has no other impression of any document.
    database.execute(f"""
        CREATE OR REPLACE TEMP VIEW shown AS
        SELECT list, query, document, client, {partition.day} AS day, rank, value IS NOT NULL AS clicked,
            coalesce(value, 0) AS value, several IS NULL AS alone
        FROM (SELECT * REPLACE (text_hash(document) AS document)
                FROM (SELECT list, query, client, several, {SHOWN} FROM lists LEFT JOIN (
                    SELECT client, query, true AS several FROM lists GROUP BY client, query HAVING count(*) > 1
                ) USING (client, query)))
            LEFT JOIN actions USING (list, document)""")
    create_cells(database, "shown", first)
    return database.sql(f"""
        SELECT cells.*, people, coalesce(choosers, []) AS choosers, id
        FROM cells JOIN (
            SELECT query, min(client, {fewest}) AS people FROM (SELECT DISTINCT query, client FROM lists) GROUP BY query
        ) USING (query) LEFT JOIN (
            SELECT query, document, min(client, {fewest}) AS choosers, any_value(id) AS id FROM (
                SELECT DISTINCT query, document, client, id
                FROM lists JOIN actions USING (list) WHERE list_contains(documents, id))
            GROUP BY query, document
        ) USING (query, document) ORDER BY {KEYS}""").to_arrow_table()


def enough(keys: str, people: str, min_clients: int) -> str:
    """Return the SQL of what has enough people, by some keys, in the relation ``counted`` with a column of people.

    Examples
    --------
    >>> import duckdb
    >>> with duckdb.connect() as database:
    ...     asked = "(VALUES (1, [7]), (1, [8]), (2, [7]), (2, [7])) AS t (query, people)"
    ...     _ = database.execute(f"CREATE TABLE counted AS FROM {asked}")
    ...     database.execute(enough("query", "people", 2)).fetchall()
    [(1,)]
    """
    one_cell = f"SELECT DISTINCT {keys} FROM counted WHERE len({people}) >= {min_clients}"
    others = f"counted ANTI JOIN ({one_cell}) USING ({keys})"
    return f"""
        {one_cell} UNION SELECT {keys} FROM (SELECT {keys}, unnest({people}) AS client FROM {others})
        GROUP BY {keys} HAVING count(DISTINCT client) >= {min_clients}"""


def write_counted(
    log: PathLike,
    cells: PathLike,
    path: PathLike,
    first: FirstPass,
    examination: Examination,
    options: LogOptions | None = None,
    *,
    on_wait: OnWait = lambda _: None,
) -> Evidence:
    """Write the cells of all partitions of a log as a folder of evidence, in place of what the folder had.

    Queries that fewer than `min_clients` clients asked, over all days of the log, are no evidence; a document that
    fewer chose for the query is lowered by it but not lifted. A list without a client is of a client of its own.
    """
    target, chosen = Path(path), options or LogOptions()
    files = [str(Path(cells) / partition.name) for partition in partitions(log)]
    with locked(target, on_wait), open_database(chosen) as database:
        known = Evidence.open(target) if target.exists() and any(target.iterdir()) else None
        if known is not None and "first_pass" not in known.meta:
            raise DataError(f"{path} has logs that were added one by one: choose another folder")
        database.execute(f"CREATE TEMP VIEW counted AS FROM read_parquet({files})")
        for name, keys, people in (("asked", "query", "people"), ("chosen", "query, document", "choosers")):
            database.execute(f"CREATE TEMP TABLE {name} AS {enough(keys, people, chosen.min_clients)}")
        database.execute("""
            CREATE TEMP VIEW kept AS
            SELECT counted.*, lifted IS NULL AS few
            FROM counted SEMI JOIN asked USING (query)
                LEFT JOIN (SELECT *, true AS lifted FROM chosen) USING (query, document)""")
        ids = database.sql("SELECT DISTINCT id FROM kept WHERE id IS NOT NULL ORDER BY id").to_arrow_table()["id"]
        table = TextTable.of_hashes(hash_arrow(ids.combine_chunks())[0], ids.to_pylist())
        meta = {"logs": [], "examination": examination_to_json(examination), "first_pass": first.version}
        return write_sorted_cells(target, sorted_cells(database, "kept", "bool_and(few)"), meta, lambda: table)


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield a file that takes the place of another one, whole, at the end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", dir=target.parent)
    os.close(handle)
    try:
        yield Path(name)
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)
