"""Add many logs to a folder of evidence: one task for each log, then one for each share of the queries.

Queries are shared out by their hashes. The sum of a share over all logs fits in memory, and the shares follow one
another in the folder.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.clicks.choices import evidence_before_logs, examination_for, write_evidence
from kinrank.clicks.funnel import Funnel
from kinrank.clicks.options import LogOptions
from kinrank.clicks.read import open_clicks
from kinrank.data.text_table import NO_TEXTS, TextTable
from kinrank.data.textfile import PathLike
from kinrank.folder import OnWait, locked
from kinrank.memory.evidence import Evidence, write_sorted_cells
from kinrank.parallel import Executor, Serial, map_ordered

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
