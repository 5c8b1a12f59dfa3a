"""Write what people looked at and chose in click logs as evidence, day by day and out of core."""

from __future__ import annotations

import hashlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.clicks._counts import ClickCounts, Funnel
from kinrank.clicks.examination import Examination, estimate_examination
from kinrank.clicks.read import ClickLog, LogOptions, check_files, open_clicks, scalar
from kinrank.data.files import PathLike
from kinrank.data.hashes import NO_TEXTS, IdHashes, TextTable, hash_arrow, query_keys
from kinrank.errors import DataError
from kinrank.folder import OnWait, locked
from kinrank.memory.evidence import NO_DAY, Evidence, latest_day, write_sorted_cells
from kinrank.parallel import Executor, Serial, map_ordered

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


_BATCH = 1_000_000
_ENDS = 1 << 20  # bytes at the beginning and at the end of a file that identify it
_DAY = 86_400


def write_evidence(
    log: ClickLog,
    examination: Examination,
    path: PathLike,
    files: Sequence[PathLike] = (),
    *,
    judged: Evidence | None = None,
    on_wait: OnWait = lambda _: None,
) -> Evidence:
    r"""Add the looks and choices of a click log to a folder of evidence.

    A look is an impression, counted by how likely its rank is examined: the slope of the examination model. A choice
    is a click, or the value of an action, less the offset of the model. What the folder has of other logs is kept and
    not read again.

    Parameters
    ----------
    log
        The log, from `kinrank.clicks.read.open_clicks`.
    examination
        How ranks are examined, as estimated from this log or from an earlier one.
    path
        The folder. It is created if it does not exist.
    files
        The files of the log, to refuse those that the folder has already.
    judged
        Human judgments to put in place of those of the folder; see `Evidence.with_judgments`.
    on_wait
        Called before waiting for another process that adds to the folder; see `kinrank.folder.locked`.

    Returns
    -------
    Evidence
        The folder with the log added.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from kinrank.clicks.examination import estimate_examination
    >>> from kinrank.clicks.read import open_clicks
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "log.csv").write_text(
    ...     "query,session,document,rank,clicked\n"
    ...     "Alien,s1,d7,1,1\nalien ,s2,d7,2,0\nalien,s2,d9,1,1\n")
    >>> with open_clicks([folder / "log.csv"]) as log:
    ...     examination = estimate_examination(log.counts(), "none")
    ...     write_evidence(log, examination, folder / "evidence")
    Evidence(1 queries, 2 cells)
    """
    target = Path(path)
    with locked(target, on_wait):
        before, prints = evidence_before_logs(target, files)
        meta = {"logs": prints, "examination": _as_json(examination)}
        ids = _ChosenIds()
        cells = _cells(log, examination, ids)
        if before is None:
            write_sorted_cells(target, cells, meta, ids.table)
        else:
            with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.resolve().parent) as staging:
                added = write_sorted_cells(Path(staging) / "added", cells, meta, ids.table)
                before.save_merged(added, target)
        if judged is not None:
            Evidence.open(target).with_judgments(judged).save(target)
    return Evidence.open(target)


def stored_examination(path: PathLike) -> Examination | None:
    """Return how ranks were examined in the log that was last added to a folder of evidence; None without one.

    One night is often too short to estimate it.
    """
    known = _opened(Path(path))
    stored = None if known is None else known.meta.get("examination")
    if stored is None:
        return None
    slope, offset = np.array(stored["slope"]), np.array(stored["offset"])
    verdict = "Examination of ranks as in the log that was added before."
    fits = stored.get("fits", True)
    return Examination(stored["model"], np.array(stored["ranks"]), slope, offset, slope, slope, verdict, fits=fits)


def examination_for(counts: ClickCounts, model: str, path: PathLike | None) -> Examination:
    """Estimate how ranks are examined; if the log is too small for it, take that of the evidence it is added to."""
    try:
        return estimate_examination(counts, model)
    except DataError:
        stored = None if path is None else stored_examination(path)
        if stored is None or stored.model != model:
            raise
        return stored


class _ChosenIds:
    """Collects the ids of documents that were chosen, batch by batch."""

    def __init__(self) -> None:
        self._parts: list[TextTable] = []

    def add(self, documents: pa.Array, choices: pa.Array) -> None:
        chosen = documents.filter(pc.greater(choices, 0)).unique()
        hashes = hash_arrow(chosen)[0]
        self._parts.append(TextTable.of_hashes(hashes, chosen.to_pylist()))

    def table(self) -> TextTable:
        return reduce(TextTable.joined, self._parts, NO_TEXTS)


def _cells(log: ClickLog, examination: Examination, ids: _ChosenIds) -> Iterator[list[NDArray[Any]]]:
    """Yield the cells of a log in the order of a folder: DuckDB counts and sorts, also beyond memory."""
    database = log.database
    hashed = _hashed_cells(log, examination, ids)
    if "client" in hashed.schema.names:
        database.execute("""
            CREATE TABLE votes AS
            SELECT query, document, day, client, sum(looks) / sum(n) AS looks, sum(choices) / sum(n) AS choices
            FROM hashed GROUP BY query, document, day, client HAVING sum(hashed.looks) > 0""")
        cells = database.sql(f"{_sum_of_crowds(log)} ORDER BY 1, 2, 3")
    else:
        cells = database.sql("""
            SELECT query, document, day, CAST(sum(looks) AS FLOAT), CAST(sum(choices) AS FLOAT)
            FROM hashed GROUP BY query, document, day HAVING sum(hashed.looks) > 0 ORDER BY 1, 2, 3""")
    for batch in cells.to_arrow_reader(_BATCH):
        yield [column.to_numpy(zero_copy_only=False) for column in batch.columns]


def _hashed_cells(log: ClickLog, examination: Examination, ids: _ChosenIds) -> pa.RecordBatchReader:
    """Return looks and choices by query, document and day, in any order; queries and documents are hashes.

    Different spellings of a query are different rows, which only their sum makes one: nothing may be left out here
    because nobody looked. Days to come are left out. If the log names its clients, they are counted apart, with the
    number n of their impressions.
    """
    looks, choices = _by_impression(examination)
    clients = scalar(log.database, "SELECT count(*) FROM (SELECT 1 FROM impressions WHERE client IS NOT NULL LIMIT 1)")
    by_client = "hash(coalesce(client, list)) AS client, count(*) AS n," if clients else ""
    batches = (
        log.database.cursor()
        .sql(f"""
        SELECT query, document, CAST(coalesce(time // {_DAY}, {NO_DAY}) AS INTEGER) AS day, {by_client}
            CAST(sum({looks}) AS FLOAT) AS looks, CAST(sum({choices}) AS FLOAT) AS choices
        FROM {_impressions(log.database, examination)}
        WHERE reason IS NULL AND trim(query) <> '' AND coalesce(time, 0) < {_DAY * (latest_day() + 1)} GROUP BY ALL""")
        .to_arrow_reader(_BATCH)
    )
    types = [pa.uint64(), pa.uint64(), *batches.schema.types[2:]]
    schema = pa.schema(list(zip(batches.schema.names, types, strict=True)))

    def hashed() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids.add(batch[1], batch["choices"])
            columns = [_query_hashes(batch[0]), hash_arrow(batch[1])[0], *batch.columns[2:]]
            yield pa.record_batch(columns, schema)

    return pa.RecordBatchReader.from_batches(schema, hashed())


def _sum_of_crowds(log: ClickLog) -> str:
    """Return the SQL of the sum over clients, without queries of too few clients.

    Each client has one impression of a document a day: the mean of its impressions.
    """
    fewest = log.options.min_clients
    few = f"SELECT query FROM votes GROUP BY query HAVING count(DISTINCT client) < {fewest}"
    left_out = scalar(log.database, f"SELECT count(*) FROM ({few})")
    if left_out:
        log.funnel.notes.append(f"{left_out:,} queries of fewer than {fewest} clients are no evidence")
    return f"""
        SELECT query, document, day, CAST(sum(looks) AS FLOAT) AS looks, CAST(sum(choices) AS FLOAT) AS choices
        FROM votes WHERE query NOT IN ({few}) GROUP BY ALL"""


def _query_hashes(texts: pa.Array) -> IdHashes:
    """Return the hashes of query texts, normalized; most are so already."""
    hashes, normal = hash_arrow(texts)
    others = np.flatnonzero(~normal)
    if len(others):
        encoded = texts.take(pa.array(others)).dictionary_encode()
        keys = query_keys(np.array(encoded.dictionary.to_pylist(), dtype=np.str_))
        hashes[others] = keys[encoded.indices.to_numpy()]
    return hashes


def _impressions(database: DuckDBPyConnection, examination: Examination) -> str:
    if examination.model != "cascade":
        return "impressions"
    database.execute("""
        CREATE TABLE IF NOT EXISTS last_clicks AS SELECT list, max(rank) AS last FROM impressions
        WHERE clicked AND reason IS NULL GROUP BY list""")
    return "impressions LEFT JOIN last_clicks USING (list)"


def _by_impression(examination: Examination) -> tuple[str, str]:
    """Return the SQL of the looks and choices of an impression."""
    ranks = np.arange(int(examination.ranks[-1]) + 1)
    slope, offset = examination.at(ranks)
    looks = _by_rank(slope)
    if examination.model == "cascade":
        looks = f"CASE WHEN rank <= coalesce(last, rank) THEN {looks} ELSE 0e0 END"
    return looks, f"CASE WHEN {_by_rank(slope)} > 0 THEN reward - ({_by_rank(offset)}) ELSE 0e0 END"


def _by_rank(values: Float64) -> str:
    if not values[1:].any():
        return "0e0"
    # With an exponent they are numbers of floating point; others are decimals, which are slow.
    cases = " ".join(f"WHEN {rank} THEN {value:.17e}" for rank, value in enumerate(values.tolist()) if rank)
    return f"CASE rank {cases} ELSE 0e0 END"


def evidence_before_logs(path: PathLike, files: Sequence[PathLike]) -> tuple[Evidence | None, list[str]]:
    """Return the evidence that logs are to be added to, None if there is none yet, and what identifies each file.

    Raise if the path is no folder of evidence, or if a file is missing, in it already, or given twice.
    """
    before = _opened(Path(path))
    known = set() if before is None else set(before.meta.get("logs", []))
    seen: dict[str, Path] = {}
    for file in check_files(files):
        number = _fingerprint(file)
        if number in known:
            raise DataError(f"{file}: the evidence has this log already: add each log once, or write a new folder")
        if number in seen:
            raise DataError(f"{file}: the same log as {seen[number]}: pass one of them")
        seen[number] = file
    return before, list(seen)


def _opened(path: Path) -> Evidence | None:
    return Evidence.open(path) if path.exists() and any(path.iterdir()) else None


def _fingerprint(file: Path) -> str:
    """Return what identifies the content of a file, without reading all of it."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        parts = [stream.read(_ENDS)]
        stream.seek(max(0, size - _ENDS))
        parts.append(stream.read())
    return hashlib.sha256(b"".join([str(size).encode(), *parts])).hexdigest()


def _as_json(examination: Examination) -> dict[str, Any]:
    return {
        "model": examination.model,
        "fits": examination.fits,
        "ranks": examination.ranks.tolist(),
        "slope": examination.slope.tolist(),
        "offset": examination.offset.tolist(),
    }


# --- add many logs to a folder of evidence: one task for each log, then one for each share of the queries -------------
#
# Queries are shared out by their hashes. The sum of a share over all logs fits in memory, and the shares follow one
# another in the folder.


_CELLS_OF_SHARE = 10_000_000
_HASHES = 1 << 64


def add_logs(
    logs: Sequence[Sequence[PathLike]],
    path: PathLike,
    model: str = "swaps",
    options: LogOptions | None = None,
    *,
    executor: Executor | None = None,
    progress: Callable[[Funnel], None] = lambda _: None,
    on_wait: OnWait = lambda _: None,
) -> Evidence:
    """Add logs to a folder of evidence, as `write_evidence` does one after the other.

    The examination of ranks is estimated from each log, or that of the folder if the log is too small. A client is
    recognized within a log only, so let each log be a day.

    Parameters
    ----------
    logs
        The files of each log; see `kinrank.clicks.read.read_clicks`.
    path
        The folder. It is created if it does not exist. All workers must see the folder that it is in.
    model
        How ranks are examined; see `kinrank.clicks.examination.estimate_examination`.
    options
        What to read and what to drop.
    executor
        Runs the tasks.
    progress
        Called with what was read and dropped of each log.
    on_wait
        Called before waiting for another process that adds to the folder, once the logs are counted; see
        `kinrank.folder.locked`.
    """
    target, workers = Path(path), executor or Serial()
    given = [file for files in logs for file in files]
    evidence_before_logs(target, given)  # before long logs are counted
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.resolve().parent) as staging:
        count = _LogTask(staging, str(target), model, options or LogOptions())
        for _, funnel in workers.map_unordered(count, [(i, list(map(str, files))) for i, files in enumerate(logs)]):
            progress(funnel)
        with locked(target, on_wait):
            before, _ = evidence_before_logs(target, given)
            counted = [str(count.folder(i)) for i in range(len(logs))]
            return _write_sum(target, counted if before is None else [str(target), *counted], staging, workers)


def _write_sum(target: Path, sources: list[str], staging: str, workers: Executor) -> Evidence:
    """Write the sum of folders of evidence."""
    opened = [Evidence.open(source) for source in sources]
    n_shares = -(-sum(evidence.n_cells for evidence in opened) // _CELLS_OF_SHARE)
    bounds = [_HASHES * share // max(n_shares, 1) for share in range(max(n_shares, 1) + 1)]
    merge = _ShareTask(staging, sources)
    shares = map_ordered(workers, merge, list(itertools.pairwise(bounds)))
    described = reduce(Evidence.merged, (_between(evidence, 0, 0, evidence.ids) for evidence in opened))
    return write_sorted_cells(target, map(_cells_of, shares), described.meta, lambda: described.ids)


@dataclass(frozen=True)
class _LogTask:
    """Turns a log into a folder of evidence."""

    staging: str
    base: str
    model: str
    options: LogOptions

    def folder(self, number: int) -> Path:
        return Path(self.staging) / f"log-{number}"

    def __call__(self, item: tuple[int, list[str]]) -> Funnel:
        number, files = item
        with open_clicks(files, self.options) as log:
            examination = examination_for(log.counts(cascade=self.model == "cascade"), self.model, self.base)
            shutil.rmtree(self.folder(number), ignore_errors=True)  # of a worker that died
            write_evidence(log, examination, self.folder(number), files)
            return log.funnel


@dataclass(frozen=True)
class _ShareTask:
    """Adds up a range of hashes over all logs."""

    staging: str
    sources: list[str]

    def __call__(self, bounds: tuple[int, int]) -> str:
        parts = (_between(Evidence.open(source), *bounds) for source in self.sources)
        folder = str(Path(self.staging) / f"share-{bounds[0]}")
        reduce(Evidence.merged, parts).save(folder)
        return folder


def _between(evidence: Evidence, low: int, high: int, ids: TextTable = NO_TEXTS) -> Evidence:
    """Return the evidence of queries whose hash is in a range."""
    arrays = evidence.get_state()
    query, offsets = arrays["query"], arrays["offsets"]
    first = np.searchsorted(query, np.uint64(low))
    last = len(query) if high == _HASHES else np.searchsorted(query, np.uint64(high))
    start, stop = offsets[first], offsets[last]
    cells = {name: arrays[name][start:stop] for name in ("document", "day", "looks", "choices")}
    described = evidence.meta | {"days": evidence.days}
    bounds = {"query": query[first:last], "offsets": offsets[first : last + 1] - start}
    return Evidence(bounds | cells, described, ids)


def _cells_of(folder: str) -> list[NDArray[Any]]:
    """Return the arrays of a share, one value for each cell."""
    arrays = Evidence.open(folder).get_state()
    query = np.repeat(arrays["query"], np.diff(arrays["offsets"]))
    return [query, *(arrays[name] for name in ("document", "day", "looks", "choices"))]
