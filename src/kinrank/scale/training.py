"""Training a ranker of cells from blocks of judged queries: one pass, summed in the order of blocks, restartable."""

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
from kinrank.rankers.cells.memory import CellMemory
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.cells.training import FAN_IN, CellPlan, rows_per_block
from kinrank.rankers.persistence import settings_of
from kinrank.scale.folder import JobFolder
from kinrank.scale.identity import hashes_of, refuse_repeated


@dataclass(frozen=True)
class TrainingProgress:
    """One piece of work that is done.

    Attributes
    ----------
    level : int
        0 for the sums of a block, 1 and more for sums of sums.
    done, total : int
        How many pieces of the level are done, and how many there are.
    n_rows : int
        Rows that were read for it.
    seconds, cpu_seconds : float
        What it took where it was done: by the clock, and of a core.
    peak_mb : float
        The most memory that the process which did it has ever held.
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
    alike: bool = False,
    executor: Executor | None = None,
    job: PathLike | None = None,
    block_rows: int | None = None,
    qid: str = "qid",
    y: str = "y",
    doc_id: str = "doc_id",
    progress: Callable[[TrainingProgress], None] | None = None,
) -> CellRanker:
    """Learn a ranker of cells from judged queries on disk, however many, and write it as a model folder.

    A sample of the queries settles scales, description and cells. Then the data are read once, block by block, and each
    block's sums are written to the job's folder. A job that was stopped, by whatever, goes on where it was when it is
    started again. The model's bytes depend on the data and the settings, not on who did the work, nor on what failed.

    Parameters
    ----------
    data
        A folder of judged queries (`kinrank convert`), or Parquet: a file, a folder, a URI that Arrow or fsspec opens.
        In Parquet the rows of a query must lie together.
    model
        Where to write the model: a folder of the machine that this is called on.
    ranker
        The settings. It is not changed.
    alike
        Take scaling, description and cells from `ranker`, which must be fitted: the result can be merged with it.
    executor
        Who works: this process where not given, ``Processes(n)``, ``RayCluster(address)``.
    job
        A folder for what is done, which every worker must see; ``MODEL.job`` where not given. It is removed at the end.
    block_rows
        About how many rows a block has; by the number of cells where not given.
    qid, y, doc_id
        Columns of Parquet files.
    progress
        Told of every piece that is done.

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
            f"model must be a folder of this machine, for the driver writes it, got {os.fspath(model)!r}: "
            "give a path, and copy the folder afterwards"
        )
    worker = executor or Serial()
    blocks = open_blocks(data, block_rows, ranker.n_cells, qid=qid, y=y, doc_id=doc_id)
    given = None
    if alike:
        check_is_fitted(ranker)
        ranker.check_features(blocks.feature_names)
        given = ranker.plan_
    identity = {
        "kinrank": kinrank.__version__,
        "ranker": settings_of(ranker),
        "data": hashlib.sha256(blocks.fingerprint().encode()).hexdigest(),
        "fan_in": FAN_IN,
        "plan": None if given is None else given.digest(),
    }
    folder = JobFolder(f"{os.fspath(model)}.job" if job is None else job, identity)
    trained: CellRanker = clone(ranker)
    trained.n_features_in_, trained.feature_names_ = len(blocks.feature_names), blocks.feature_names
    plan = given or _settled(folder, trained, blocks, worker)
    tree = SumTree(plan, blocks, folder)
    memory = tree.run(worker, progress or (lambda _: None))
    refuse_repeated(blocks, tree.hashes)
    trained.take_cells(plan, memory)
    trained.save(model)
    folder.delete()
    return trained


def open_blocks(
    data: PathLike, block_rows: int | None, n_cells: int, *, qid: str = "qid", y: str = "y", doc_id: str = "doc_id"
) -> Blocks:
    """The data as blocks of about so many rows, or of as many as suit the number of cells."""
    local = Path(data) if "://" not in os.fspath(data) else None
    if local is not None and not local.exists():
        raise DataError(f"{local}: no such file or folder; check the path")
    blocks: Blocks
    if local is not None and (local / MANIFEST).exists():
        blocks = FolderBlocks(data, 1 << 62)
    else:
        blocks = ParquetBlocks(data, 1 << 62, qid=qid, y=y, doc_id=doc_id)
    return blocks.split(block_rows or rows_per_block(n_cells, len(blocks.feature_names)))


def _settled(folder: JobFolder, ranker: CellRanker, blocks: Blocks, executor: Executor) -> CellPlan:
    """The plan: settled by the job before it was stopped, or now where it is not there or damaged."""
    try:
        return ranker.restore_plan(folder.read("plan"))
    except DamagedFolderError:
        plan = ranker.plan_cells(blocks, executor)
        folder.write("plan", plan.get_state())
        return plan


@dataclass(frozen=True, eq=False)
class SumTree:
    """The sums of all blocks, level by level: each piece adds up to `FAN_IN` pieces of the level below, in order.

    A piece is the same whoever makes it and however often. One that is missing or damaged is made again, with
    whatever lies below it.
    """

    plan: CellPlan
    blocks: Blocks
    folder: JobFolder

    def sizes(self) -> list[int]:
        """How many pieces each level has; the last has one."""
        sizes = [len(self.blocks)]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // FAN_IN))
        return sizes

    def run(self, executor: Executor, progress: Callable[[TrainingProgress], None]) -> CellMemory:
        """Make all pieces that are not there yet, and answer the last."""
        sizes = self.sizes()
        there = self.folder.names()
        wanted = [{_name(level, piece) for piece in range(size)} for level, size in enumerate(sizes)]
        complete = [level for level, names in enumerate(wanted) if names <= there]
        for level in range(max(complete, default=-1) + 1, len(sizes)):
            missing = [piece for piece in range(sizes[level]) if _name(level, piece) not in there]
            done = sizes[level] - len(missing)
            for _, (n_rows, seconds, cpu, peak) in executor.map_unordered(partial(self.make, level), missing):
                done += 1
                progress(TrainingProgress(level, done, sizes[level], n_rows, seconds, cpu, peak))
            if level:
                self.folder.delete(wanted[level - 1] & self.folder.names())
        memory = self._empty()
        memory.merge_packed(self.piece(len(sizes) - 1, 0))
        return memory

    def make(self, level: int, piece: int) -> tuple[int, float, float, float]:
        """Write one piece; answer its rows, seconds, seconds of a core, and the peak memory of the process."""
        wall, cpu = time.perf_counter(), time.process_time()
        self._made(level, piece)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        n_rows = self.blocks.n_rows(piece) if level == 0 else 0
        return n_rows, time.perf_counter() - wall, time.process_time() - cpu, peak

    def piece(self, level: int, piece: int) -> State:
        """One piece, read, or made again where it cannot be."""
        try:
            return self.folder.read(_name(level, piece))
        except DamagedFolderError:
            return self._made(level, piece)

    def hashes(self, block: int) -> IdHashes:
        """The hashes of a block's queries; read, or taken from the data again where they cannot be."""
        try:
            return self.folder.read(f"ids-{block}")["hashes"]
        except DamagedFolderError:
            return self._noted(block, [hashes_of(part.qid) for part in self.blocks.read(block)])

    def _made(self, level: int, piece: int) -> State:
        if level == 0:
            made = self._summed(piece)
        else:
            memory = self._empty()
            first, last = piece * FAN_IN, min((piece + 1) * FAN_IN, self.sizes()[level - 1])
            for below in range(first, last):
                memory.merge_packed(self.piece(level - 1, below))
            made = memory.pack()
        self.folder.write(_name(level, piece), made)
        return made

    def _summed(self, block: int) -> State:
        hashes: list[IdHashes] = []

        def noted() -> Iterator[QuerySet]:
            for part in self.blocks.read(block):
                hashes.append(hashes_of(part.qid))
                yield part

        with self.blocks.error_context(block):
            made = self.plan.sums(noted()).pack()
        self._noted(block, hashes)
        return made

    def _noted(self, block: int, hashes: list[IdHashes]) -> IdHashes:
        """Keep the hashes of a block."""
        together: IdHashes = np.concatenate([np.empty(0, dtype=np.uint64), *hashes])
        self.folder.write(f"ids-{block}", {"hashes": together})
        return together

    def _empty(self) -> CellMemory:
        return CellMemory.empty(self.plan.learner, len(self.plan.tree), len(self.blocks.feature_names))


def _name(level: int, piece: int) -> str:
    return f"sums-{level}-{piece}"
