"""Write what people looked at and chose in click logs as evidence, day by day and out of core."""

from __future__ import annotations

import hashlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kinrank.clicks._counts import ClickCounts, Funnel
from kinrank.clicks.counting import KEYS, UNIT, FirstPass, create_cells, create_functions
from kinrank.clicks.examination import Examination, estimate_examination
from kinrank.clicks.read import ClickLog, LogOptions, check_files, open_clicks, scalar
from kinrank.data.files import PathLike
from kinrank.data.hashes import NO_TEXTS, TextTable, hash_arrow
from kinrank.errors import DataError
from kinrank.folder import OnWait, locked
from kinrank.memory.evidence import CELLS, NO_DAY, Evidence, latest_day, write_sorted_cells
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
        meta = {"logs": prints, "examination": examination_to_json(examination)}
        cells, ids = _cells(log, FirstPass.of(examination))
        if before is None:
            write_sorted_cells(target, cells, meta, lambda: ids)
        else:
            with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.resolve().parent) as staging:
                added = write_sorted_cells(Path(staging) / "added", cells, meta, lambda: ids)
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
    return examination_of(stored)


def examination_of(stored: Mapping[str, Any]) -> Examination:
    """Return the examination of ranks that `examination_to_json` stored."""
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


def _cells(log: ClickLog, first: FirstPass) -> tuple[Iterator[list[NDArray[Any]]], TextTable]:
    """Return the cells of a log in the order of a folder, and the ids of documents that were clicked.

    DuckDB counts and sorts, also beyond memory. Days to come are left out. If the log names its clients, so are queries
    of too few of them.
    """
    database, fewest = log.database, log.options.min_clients
    create_functions(database)
    clients = bool(
        scalar(database, "SELECT count(*) FROM (SELECT 1 FROM impressions WHERE client IS NOT NULL LIMIT 1)")
    )
    database.execute(f"""
        CREATE OR REPLACE TEMP TABLE counted AS
        SELECT text_hash(list) AS list, query_hash(query) AS query, text_hash(document) AS document,
            CAST(coalesce(time // {_DAY}, {NO_DAY}) AS INTEGER) AS day, rank, clicked,
            CAST(round(reward * {UNIT}) AS BIGINT) AS value,
            {"text_hash(coalesce(client, list))" if clients else "0"} AS client, false AS alone
        FROM impressions
        WHERE reason IS NULL AND trim(query) <> '' AND coalesce(time, 0) < {_DAY * (latest_day() + 1)}""")
    create_cells(database, "counted", first, by_client=clients)
    if clients:
        asked = f"SELECT query FROM counted GROUP BY query HAVING count(DISTINCT client) < {fewest}"
        database.execute(f"CREATE OR REPLACE TEMP TABLE few AS {asked}")
        left_out = scalar(database, "SELECT count(*) FROM few")
        if left_out:
            log.funnel.notes.append(f"{left_out:,} queries of fewer than {fewest} clients are no evidence")
        database.execute("DELETE FROM cells WHERE query IN (FROM few)")
    clicked = database.sql("SELECT DISTINCT document FROM impressions WHERE clicked AND reason IS NULL")
    ids = clicked.to_arrow_table()["document"].combine_chunks()
    return sorted_cells(database, "cells"), TextTable.of_hashes(hash_arrow(ids)[0], ids.to_pylist())


def sorted_cells(database: DuckDBPyConnection, cells: str, few: str = "false") -> Iterator[list[NDArray[Any]]]:
    """Yield cells in the order of a folder of evidence, in batches; equal ones add up before they are rounded.

    `few` is the SQL of whether too few clients chose the document.
    """
    batches = database.sql(f"""
        SELECT {KEYS}, CAST(sum(looks) AS BIGINT), CAST(sum(choices) AS BIGINT), {few} FROM {cells}
        GROUP BY {KEYS} ORDER BY {KEYS}""").to_arrow_reader(_BATCH)
    for batch in batches:
        *keys, looks, choices, doubted = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        yield [*keys, looks / UNIT, choices / UNIT, doubted]


def evidence_before_logs(path: PathLike, files: Sequence[PathLike]) -> tuple[Evidence | None, list[str]]:
    """Return the evidence that logs are to be added to, None if there is none yet, and what identifies each file.

    Raise if the path is no folder of evidence, or if a file is missing, in it already, or given twice.
    """
    before = _opened(Path(path))
    if before is not None and "first_pass" in before.meta:
        raise DataError(f"{path} is counted from the folder of a log: add files to that, or choose another folder")
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


def examination_to_json(examination: Examination) -> dict[str, Any]:
    """Return what is stored of an examination of ranks."""
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
    cells = {name: arrays[name][start:stop] for name in CELLS}
    described = evidence.meta | {"days": evidence.days}
    bounds = {"query": query[first:last], "offsets": offsets[first : last + 1] - start}
    return Evidence(bounds | cells, described, ids)


def _cells_of(folder: str) -> list[NDArray[Any]]:
    """Return the arrays of a share, one value for each cell."""
    arrays = Evidence.open(folder).get_state()
    query = np.repeat(arrays["query"], np.diff(arrays["offsets"]))
    return [query, *(arrays[name] for name in CELLS)]
