"""Write what people looked at and chose in a click log as evidence, day by day and out of core."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.clicks.examination import Examination
from kinrank.clicks.read import ClickLog
from kinrank.data.evidence import NO_DAY, Evidence, write_sorted_cells
from kinrank.data.evidence_kernel import hash_arrow
from kinrank.data.textfile import PathLike
from kinrank.data.texts import normalize_text
from kinrank.errors import DataError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BATCH = 1_000_000
_ENDS = 1 << 20  # bytes at the beginning and at the end of a file that identify it
_DAY = 86_400


def write_evidence(log: ClickLog, examination: Examination, path: PathLike, files: Sequence[PathLike] = ()) -> Evidence:
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
    prints = [_fingerprint(Path(file)) for file in files]
    target = Path(path)
    before = Evidence.open(target) if target.exists() and any(target.iterdir()) else None
    if before is not None:
        _check_new(before, prints, files)
    meta = {"logs": prints, "examination": _as_json(examination)}
    if before is None:
        return write_sorted_cells(target, _cells(log, examination), meta)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.resolve().parent) as staging:
        added = write_sorted_cells(Path(staging) / "added", _cells(log, examination), meta)
        before.save_merged(added, target)
    return Evidence.open(target)


def stored_examination(path: PathLike) -> Examination | None:
    """Return how ranks were examined in the log that was last added to a folder of evidence; None without one.

    One night is often too short to estimate it.
    """
    if not Path(path).is_dir() or not any(Path(path).iterdir()):
        return None
    stored = Evidence.open(path).meta.get("examination")
    if stored is None:
        return None
    slope, offset = np.array(stored["slope"]), np.array(stored["offset"])
    verdict = "Examination of ranks as in the log that was added before."
    fits = stored.get("fits", True)
    return Examination(stored["model"], np.array(stored["ranks"]), slope, offset, slope, slope, verdict, fits=fits)


def _cells(log: ClickLog, examination: Examination) -> Iterator[list[NDArray[Any]]]:
    """Yield the cells of a log in the order of a folder."""
    database = log.database
    database.execute(f"""
        CREATE TABLE looked AS
        SELECT query, document, coalesce(time // {_DAY}, {NO_DAY}) AS day, {_summed(examination)}
        FROM {_impressions(database, examination)}
        WHERE reason IS NULL AND trim(query) <> '' GROUP BY ALL HAVING looks > 0""")
    for name in ("query", "document"):
        _create_hashes(database, name)
    sorted_cells = database.sql("""
        SELECT q.hash AS query, d.hash AS document, CAST(day AS INTEGER) AS day, looks, choices
        FROM looked JOIN query_hashes AS q USING (query) JOIN document_hashes AS d USING (document)
        ORDER BY 1, 2, 3""")
    for batch in sorted_cells.to_arrow_reader(_BATCH):
        yield [column.to_numpy(zero_copy_only=False) for column in batch.columns]


def _impressions(database: DuckDBPyConnection, examination: Examination) -> str:
    if examination.model != "cascade":
        return "impressions"
    database.execute("""
        CREATE TABLE IF NOT EXISTS last_clicks AS SELECT list, max(rank) AS last FROM impressions
        WHERE clicked AND reason IS NULL GROUP BY list""")
    return "impressions LEFT JOIN last_clicks USING (list)"


def _summed(examination: Examination) -> str:
    """Return the SQL of the looks and choices of a cell."""
    ranks = np.arange(int(examination.ranks[-1]) + 1)
    slope, offset = examination.at(ranks)
    looks = _by_rank(slope)
    if examination.model == "cascade":
        looks = f"CASE WHEN rank <= coalesce(last, rank) THEN {looks} ELSE 0 END"
    choices = f"CASE WHEN {_by_rank(slope)} > 0 THEN reward - ({_by_rank(offset)}) ELSE 0 END"
    return f"sum({looks}) AS looks, sum({choices}) AS choices"


def _by_rank(values: Float64) -> str:
    if not values[1:].any():
        return "0"
    cases = " ".join(f"WHEN {rank} THEN {value!r}" for rank, value in enumerate(values.tolist()) if rank)
    return f"CASE rank {cases} ELSE 0 END"


def _create_hashes(database: DuckDBPyConnection, name: str) -> None:
    """Create a table with the hash of each query or document: there are far fewer of them than cells."""
    texts = database.sql(f"SELECT DISTINCT {name} FROM looked").to_arrow_table()[name].combine_chunks()
    if isinstance(texts, pa.ChunkedArray):
        texts = pa.concat_arrays(texts.chunks)
    same = texts if name == "document" else pa.array([normalize_text(text) for text in texts.to_pylist()])
    hashed = pa.table({name: texts, "hash": hash_arrow(same)})  # noqa: F841 - DuckDB reads it by its name
    database.execute(f"CREATE TABLE {name}_hashes AS SELECT * FROM hashed")


def _fingerprint(file: Path) -> str:
    """Return what identifies the content of a file, without reading all of it."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        parts = [stream.read(_ENDS)]
        stream.seek(max(0, size - _ENDS))
        parts.append(stream.read())
    return hashlib.sha256(b"".join([str(size).encode(), *parts])).hexdigest()


def _check_new(before: Evidence, prints: Sequence[str], files: Sequence[PathLike]) -> None:
    known = set(before.meta.get("logs", []))
    for number, file in zip(prints, files, strict=True):
        if number in known:
            raise DataError(f"{file}: the evidence has this log already: add each log once, or write a new folder")


def _as_json(examination: Examination) -> dict[str, Any]:
    return {
        "model": examination.model,
        "fits": examination.fits,
        "ranks": examination.ranks.tolist(),
        "slope": examination.slope.tolist(),
        "offset": examination.offset.tolist(),
    }
