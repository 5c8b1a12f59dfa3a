"""Sums of all blocks, computed once each, in an order that does not depend on who computes them."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyarrow import fs

from kinrank.arrays import State
from kinrank.data.blocks import Blocks
from kinrank.data.files import PathLike, claim_folder, filesystem_of, write_atomically
from kinrank.data.hashes import IdHashes, hash_ids
from kinrank.data.queryset import QuerySet
from kinrank.errors import DamagedFolderError, DataError
from kinrank.parallel import Executor, TaskCost, start_measuring
from kinrank.rankers.cells._training import FAN_IN, CellPlan, CellStatistics
from kinrank.rankers.kin._trees import JudgedBlocks, TreeSample
from kinrank.scale._known import KnownQueries, KnownSample

# --- folder for the intermediate results of a job, so that an interrupted job can be resumed --------------------------


class JobFolder:
    """Intermediate results by name, on any file system that Arrow or fsspec can open and all workers share.

    `job` is everything that the results depend on, as JSON values by name. The folder of another job raises `JobError`.
    """

    def __init__(self, path: PathLike, job: Mapping[str, Any]) -> None:
        self.path = os.fspath(path)
        self.filesystem, self.root = filesystem_of(path)
        claim_folder(path, "job.json", job, "job")

    def names(self) -> set[str]:
        """Return the names of the finished results."""
        files = self.filesystem.get_file_info(fs.FileSelector(self.root))
        return {info.base_name.removesuffix(".npz") for info in files if info.base_name.endswith(".npz")}

    def write(self, name: str, state: State) -> None:
        """Write a result atomically."""
        buffer = io.BytesIO()
        arrays: dict[str, Any] = dict(state)
        np.savez(buffer, **arrays)
        write_atomically(self.filesystem, f"{self.root}/{name}.npz", buffer.getbuffer())

    def read(self, name: str) -> State:
        """Read a result; raise `DamagedFolderError` if it is missing or fails its checksums."""
        try:
            with np.load(io.BytesIO(self._read(f"{name}.npz")), allow_pickle=False) as arrays:
                return {key: arrays[key] for key in arrays.files}
        except (zipfile.BadZipFile, ValueError, EOFError, KeyError, OSError) as error:
            raise DamagedFolderError(
                f"{self.path}: {name}.npz is damaged or missing ({error}): delete it and start the job again"
            ) from error

    def delete(self, names: set[str] | None = None) -> None:
        """Delete some results, or the whole folder."""
        if names is None:
            self.filesystem.delete_dir(self.root)
        else:
            for name in names:
                self.filesystem.delete_file(f"{self.root}/{name}.npz")

    def _read(self, file: str) -> bytes:
        with self.filesystem.open_input_file(f"{self.root}/{file}") as stream:
            content: bytes = stream.read()
        return content


# --- detect queries that occur in two blocks, without holding all ids in memory ---------------------------------------


_BITS = 4  # one of 16 passes for each value of the leading bits: 0.3 GB for 10^8 queries
# 2^64 / golden ratio spreads consecutive numbers evenly. It is odd, so products of different numbers differ.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def query_hashes(qid: NDArray[Any]) -> IdHashes:
    """Return a 64-bit hash of each id, evenly distributed; hashes of different whole numbers always differ."""
    if qid.dtype.kind in "iu":
        return qid.astype(np.int64).view(np.uint64) * _FACTOR
    return hash_ids(qid)


def check_no_repeated_queries(blocks: Blocks, hashes: Callable[[int], IdHashes]) -> None:
    """Raise if a query occurs in more than one place.

    `hashes` returns those of a block; the data are read again only if two hashes are equal.
    """
    for leading in range(1 << _BITS):
        parts = [each[each >> np.uint64(64 - _BITS) == leading] for each in map(hashes, range(len(blocks)))]
        ends = np.cumsum([len(part) for part in parts])
        together = np.concatenate(parts)
        order = np.argsort(together, kind="stable")
        ranked = together[order]
        for place in np.flatnonzero(ranked[1:] == ranked[:-1]):
            owners = np.searchsorted(ends, order[place : place + 2], side="right")
            _compare(blocks, ranked[place], owners.tolist())


def _compare(blocks: Blocks, hashed: np.uint64, places: Sequence[int]) -> None:
    """Raise if two ids with the same hash are equal; different texts can share a hash by chance."""
    first, second = (
        [query for part in blocks.read(block) for query in part.qid[query_hashes(part.qid) == hashed].tolist()]
        for block in places
    )
    shared = (
        set(first) & set(second) if places[0] != places[1] else {query for query in first if first.count(query) > 1}
    )
    if shared:
        raise DataError(
            f"query {shared.pop()!r} is in two places, {blocks.name(places[0])} and {blocks.name(places[1])}: rows of "
            "a query must be adjacent, so sort the data by query"
        )


# --- sums of all blocks, computed once each, in an order that does not depend on who computes them --------------------


@dataclass(frozen=True)
class TrainingProgress:
    """Report on one finished task of a training job."""

    stage: str
    """``"sums"``; for `KinRanker` then ``"memory"`` (one shard of known queries, or the choice of parts),
    ``"tables"`` (what trees see of a block) and ``"trees"``."""
    level: int
    """0 for the sums of a block, 1 and above for sums of sums."""
    done: int
    total: int
    """Finished and total number of tasks of the level."""
    n_rows: int
    """Rows read by the task."""
    seconds: float
    cpu_seconds: float
    """Wall-clock and CPU time of the task."""
    peak_mb: float
    """Peak memory of the process that ran the task, over its lifetime."""


@dataclass(frozen=True, eq=False)
class SumTree:
    """Sums of all blocks as a tree: each node adds up to `FAN_IN` nodes of the level below, in order.

    A node is the same no matter where and how often it is computed. A missing or damaged node is computed again,
    together with the nodes below it.
    """

    plan: CellPlan
    blocks: Blocks
    folder: JobFolder
    sample: TreeSample | None = None
    """The queries to keep for trees, if any."""
    known: KnownSample | None = None
    """The queries to keep for memory, if any."""

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
            for _, (n_rows, cost) in executor.map_unordered(partial(self.make, level), missing):
                done += 1
                spent = (cost.seconds, cost.cpu_seconds, cost.peak_mb)
                progress(TrainingProgress("sums", level, done, sizes[level], n_rows, *spent))
            if level:
                self.folder.delete(levels[level - 1] & self.folder.names())
        memory = self._empty()
        memory.merge_packed(self.node(len(sizes) - 1, 0))
        return memory

    def make(self, level: int, node: int) -> tuple[int, TaskCost]:
        """Compute and write one node; return the number of rows read, and the cost."""
        cost = start_measuring()
        self._compute(level, node)
        return self.blocks.n_rows(node) if level == 0 else 0, cost()

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

    def queries(self, block: int) -> QuerySet:
        """Read the sampled queries of a block, or choose them again if they are missing or damaged."""
        try:
            return QuerySet.from_state(self.folder.read(f"queries-{block}"), self.blocks.feature_names)
        except DamagedFolderError:
            return self._write_queries(block, [self._choose(part) for part in self.blocks.read(block)])

    def known_queries(self, block: int) -> KnownQueries:
        """Read what memory keeps of a block, or take it again if it is missing or damaged."""
        try:
            return KnownQueries.from_state(self.folder.read(f"known-{block}"))
        except DamagedFolderError:
            assert self.known is not None
            return self._write_known(block, [self.known.of(part) for part in self.blocks.read(block)])

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
        """Sum a block; write the hashes of its queries, the queries to keep for trees, and those for memory."""
        hashes: list[IdHashes] = []
        chosen: list[QuerySet] = []
        known: list[KnownQueries] = []

        def read() -> Iterator[QuerySet]:
            for part in self.blocks.read(block):
                hashes.append(query_hashes(part.qid))
                if self.sample is not None:
                    chosen.append(self.sample.of(part))
                if self.known is not None:
                    known.append(self.known.of(part))
                yield part

        with self.blocks.error_context(block):
            sums = self.plan.sums(read()).pack()
        self._write_hashes(block, hashes)
        if self.sample is not None:
            self._write_queries(block, chosen)
        if self.known is not None:
            self._write_known(block, known)
        return sums

    def _choose(self, part: QuerySet) -> QuerySet:
        return part if self.sample is None else self.sample.of(part)

    def _write_queries(self, block: int, parts: list[QuerySet]) -> QuerySet:
        queries = QuerySet.concat(parts)
        self.folder.write(f"queries-{block}", queries.get_state())
        return queries

    def _write_known(self, block: int, parts: list[KnownQueries]) -> KnownQueries:
        known = KnownQueries.concat(parts)
        self.folder.write(f"known-{block}", known.get_state())
        return known

    def _write_hashes(self, block: int, parts: list[IdHashes]) -> IdHashes:
        hashes: IdHashes = np.concatenate([np.empty(0, dtype=np.uint64), *parts])
        self.folder.write(f"ids-{block}", {"hashes": hashes})
        return hashes

    def _empty(self) -> CellStatistics:
        return CellStatistics.empty(self.plan.learner, len(self.plan.tree), len(self.blocks.feature_names))


class StoredQueries(JudgedBlocks):
    """The sampled queries of all blocks, in the job folder."""

    def __init__(self, tree: SumTree) -> None:
        self.tree = tree
        sizes = [len(tree.queries(block)) for block in range(len(tree.blocks))]
        self.blocks = [block for block, size in enumerate(sizes) if size]
        super().__init__([size for size in sizes if size])

    def __call__(self, block: int) -> QuerySet:
        """Return a block."""
        return self.tree.queries(self.blocks[block])


def _name(level: int, node: int) -> str:
    return f"sums-{level}-{node}"
