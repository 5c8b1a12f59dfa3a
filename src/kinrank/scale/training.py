"""Train a `CellRanker` from blocks of judged queries: one resumable pass, with a reproducible result."""

from __future__ import annotations

import hashlib
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

import kinrank
from kinrank.arrays import State
from kinrank.data.blocks import Blocks, FolderBlocks
from kinrank.data.id_hashes import IdHashes
from kinrank.data.parquet_blocks import ParquetBlocks
from kinrank.data.queryset import QuerySet
from kinrank.data.textfile import PathLike
from kinrank.errors import DamagedFolderError, DataError, ParameterError
from kinrank.folder import MANIFEST
from kinrank.parallel import Executor, Serial
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.cells.statistics import CellStatistics
from kinrank.rankers.cells.training import FAN_IN, CellPlan, rows_per_block
from kinrank.rankers.persistence import settings_of
from kinrank.scale.folder import JobFolder
from kinrank.scale.repeated_queries import check_no_repeated_queries, query_hashes


@dataclass(frozen=True)
class TrainingProgress:
    """Report on one finished task of a training job.

    Attributes
    ----------
    level : int
        0 for the sums of a block, 1 and above for sums of sums.
    done, total : int
        Finished and total number of tasks of the level.
    n_rows : int
        Rows read by the task.
    seconds, cpu_seconds : float
        Wall-clock and CPU time of the task.
    peak_mb : float
        Peak memory of the process that ran the task, over its lifetime.
    """

    level: int
    done: int
    total: int
    n_rows: int
    seconds: float
    cpu_seconds: float
    peak_mb: float


def train(
    data: PathLike,
    model: PathLike,
    ranker: CellRanker,
    *,
    reuse_cells: bool = False,
    executor: Executor | None = None,
    job: PathLike | None = None,
    block_rows: int | None = None,
    qid: str = "qid",
    y: str = "y",
    doc_id: str = "doc_id",
    progress: Callable[[TrainingProgress], None] | None = None,
) -> CellRanker:
    """Train a `CellRanker` on any number of judged queries on disk and write a model folder.

    Scales, description and cells are fitted to a sample of the queries. The data are then read once, block by block,
    and the sums of each block are written to the job folder. A job that was interrupted resumes when it is started
    again. The bytes of the model depend only on the data and the settings, not on the executor or on failures.

    Parameters
    ----------
    data
        A folder of judged queries (from `QuerySet.save`), or Parquet: a file, a folder, or a URI that Arrow or fsspec
        can open. In Parquet, the rows of a query must be adjacent.
    model
        Path of the model folder to write, on this machine.
    ranker
        The settings. It is not modified.
    reuse_cells
        Reuse scaling, description and cells of `ranker`, which must be fitted, so that the two can be merged.
    executor
        Runs the tasks: ``Serial()`` (the default), ``Processes(n)`` or ``RayCluster(address)``.
    job
        Folder for intermediate results, which all workers must share; defaults to ``MODEL.job``. It is deleted at the
        end.
    block_rows
        Approximate number of rows per block; by default chosen from the number of cells.
    qid, y, doc_id
        Column names in Parquet files.
    progress
        Called after each finished task.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from kinrank.datasets import make_two_camps
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> camps = make_two_camps(n_queries=60, seed=0)
    >>> camps.save(folder / "judged")
    >>> train(folder / "judged", folder / "model", CellRanker(10, n_cells=6)).score(camps) > 0.9
    True
    """
    if "://" in os.fspath(model):
        raise ParameterError(
            f"model must be a local folder, got {os.fspath(model)!r}: give a local path and copy the folder afterwards"
        )
    executor = executor or Serial()
    blocks = open_blocks(data, block_rows, ranker.n_cells, qid=qid, y=y, doc_id=doc_id)
    plan = None
    if reuse_cells:
        check_is_fitted(ranker)
        ranker.check_features(blocks.feature_names)
        plan = ranker.plan_
    identity = {
        "kinrank": kinrank.__version__,
        "ranker": settings_of(ranker),
        "data": hashlib.sha256(blocks.fingerprint().encode()).hexdigest(),
        "fan_in": FAN_IN,
        "plan": None if plan is None else plan.digest(),
    }
    folder = JobFolder(f"{os.fspath(model)}.job" if job is None else job, identity)
    trained: CellRanker = clone(ranker)
    trained.n_features_in_, trained.feature_names_ = len(blocks.feature_names), blocks.feature_names
    plan = plan or _read_or_make_plan(folder, trained, blocks, executor)
    tree = SumTree(plan, blocks, folder)
    memory = tree.run(executor, progress or (lambda _: None))
    check_no_repeated_queries(blocks, tree.hashes)
    trained.set_cells(plan, memory)
    trained.save(model)
    folder.delete()
    return trained


def open_blocks(
    data: PathLike, block_rows: int | None, n_cells: int, *, qid: str = "qid", y: str = "y", doc_id: str = "doc_id"
) -> Blocks:
    """Open the data as blocks of about `block_rows` rows, by default chosen from the number of cells."""
    local = Path(data) if "://" not in os.fspath(data) else None
    if local is not None and not local.exists():
        raise DataError(f"{local}: no such file or folder: check the path")
    blocks: Blocks
    if local is not None and (local / MANIFEST).exists():
        blocks = FolderBlocks(data, 1 << 62)
    else:
        blocks = ParquetBlocks(data, 1 << 62, qid=qid, y=y, doc_id=doc_id)
    return blocks.split(block_rows or rows_per_block(n_cells, len(blocks.feature_names)))


def _read_or_make_plan(folder: JobFolder, ranker: CellRanker, blocks: Blocks, executor: Executor) -> CellPlan:
    """Return the plan of an interrupted job, or a new one if it is missing or damaged."""
    try:
        return ranker.restore_plan(folder.read("plan"))
    except DamagedFolderError:
        plan = ranker.plan_cells(blocks, executor)
        folder.write("plan", plan.get_state())
        return plan


@dataclass(frozen=True, eq=False)
class SumTree:
    """Sums of all blocks as a tree: each node adds up to `FAN_IN` nodes of the level below, in order.

    A node is the same no matter where and how often it is computed. A missing or damaged node is computed again,
    together with the nodes below it.
    """

    plan: CellPlan
    blocks: Blocks
    folder: JobFolder

    def sizes(self) -> list[int]:
        """Return the number of nodes of each level; the last level has one."""
        sizes = [len(self.blocks)]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // FAN_IN))
        return sizes

    def run(self, executor: Executor, progress: Callable[[TrainingProgress], None]) -> CellStatistics:
        """Compute all nodes not in the folder yet and return the root."""
        sizes = self.sizes()
        existing = self.folder.names()
        levels = [{_name(level, node) for node in range(size)} for level, size in enumerate(sizes)]
        complete = [level for level, names in enumerate(levels) if names <= existing]
        for level in range(max(complete, default=-1) + 1, len(sizes)):
            missing = [node for node in range(sizes[level]) if _name(level, node) not in existing]
            done = sizes[level] - len(missing)
            for _, (n_rows, seconds, cpu, peak) in executor.map_unordered(partial(self.make, level), missing):
                done += 1
                progress(TrainingProgress(level, done, sizes[level], n_rows, seconds, cpu, peak))
            if level:
                self.folder.delete(levels[level - 1] & self.folder.names())
        memory = self._empty()
        memory.merge_packed(self.node(len(sizes) - 1, 0))
        return memory

    def make(self, level: int, node: int) -> tuple[int, float, float, float]:
        """Compute and write one node; return its rows, wall-clock seconds, CPU seconds, and peak memory in MB."""
        wall, cpu = time.perf_counter(), time.process_time()
        self._compute(level, node)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        n_rows = self.blocks.n_rows(node) if level == 0 else 0
        return n_rows, time.perf_counter() - wall, time.process_time() - cpu, peak

    def node(self, level: int, node: int) -> State:
        """Read one node, or compute it again if it is missing or damaged."""
        try:
            return self.folder.read(_name(level, node))
        except DamagedFolderError:
            return self._compute(level, node)

    def hashes(self, block: int) -> IdHashes:
        """Read the query hashes of a block, or compute them again if they are missing or damaged."""
        try:
            return self.folder.read(f"ids-{block}")["hashes"]
        except DamagedFolderError:
            return self._write_hashes(block, [query_hashes(part.qid) for part in self.blocks.read(block)])

    def _compute(self, level: int, node: int) -> State:
        if level == 0:
            sums = self._sum_block(node)
        else:
            memory = self._empty()
            first, last = node * FAN_IN, min((node + 1) * FAN_IN, self.sizes()[level - 1])
            for child in range(first, last):
                memory.merge_packed(self.node(level - 1, child))
            sums = memory.pack()
        self.folder.write(_name(level, node), sums)
        return sums

    def _sum_block(self, block: int) -> State:
        """Sum a block and write the hashes of its queries."""
        hashes: list[IdHashes] = []

        def read() -> Iterator[QuerySet]:
            for part in self.blocks.read(block):
                hashes.append(query_hashes(part.qid))
                yield part

        with self.blocks.error_context(block):
            sums = self.plan.sums(read()).pack()
        self._write_hashes(block, hashes)
        return sums

    def _write_hashes(self, block: int, parts: list[IdHashes]) -> IdHashes:
        hashes: IdHashes = np.concatenate([np.empty(0, dtype=np.uint64), *parts])
        self.folder.write(f"ids-{block}", {"hashes": hashes})
        return hashes

    def _empty(self) -> CellStatistics:
        return CellStatistics.empty(self.plan.learner, len(self.plan.tree), len(self.blocks.feature_names))


def _name(level: int, node: int) -> str:
    return f"sums-{level}-{node}"
