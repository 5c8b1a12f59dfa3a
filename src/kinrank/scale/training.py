"""Train a ranker from blocks of judged queries: one resumable pass, with a reproducible result."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, Unpack, cast

import numpy as np
from sklearn.base import clone

import kinrank
from kinrank.data.blocks import Blocks, FolderBlocks
from kinrank.data.files import PathLike
from kinrank.data.parquet import ParquetBlocks
from kinrank.data.queryset import QuerySet
from kinrank.data.tables import ColumnNames
from kinrank.errors import DamagedFolderError, DataError, ParameterError
from kinrank.folder import MANIFEST
from kinrank.parallel import Executor, Serial, TaskCost
from kinrank.rankers._local.texts import EncodedBlocks, encode_texts, fit_encoder_on_blocks, has_meaning
from kinrank.rankers.base import PARTS
from kinrank.rankers.cells._training import FAN_IN, CellPlan, rows_per_block
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.kin._chosen import check_findable
from kinrank.rankers.kin._fitting import KinFitting
from kinrank.rankers.kin._parts import can_remember
from kinrank.rankers.kin._settings import MOST_CELLS, cell_part, check_settings, tree_sample, tree_settings
from kinrank.rankers.kin._trees import TreeSample, n_columns_seen, weights_differ
from kinrank.rankers.kin.ranker import KinRanker
from kinrank.rankers.kin.settings import KinSettings
from kinrank.rankers.registry import RANKERS
from kinrank.scale._known import KnownSample
from kinrank.scale._memory import MOST_KNOWN, MemoryJob
from kinrank.scale._sum_tree import JobFolder, StoredQueries, SumTree, TrainingProgress, check_no_repeated_queries
from kinrank.store import encode

R = TypeVar("R", CellRanker, KinRanker)


def train(
    data: PathLike,
    model: PathLike,
    ranker: R,
    *,
    executor: Executor | None = None,
    job: PathLike | None = None,
    block_rows: int | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
    n_examples: int = 0,
    judgments_through: int | None = None,
    most_known: int = MOST_KNOWN,
    **columns: Unpack[ColumnNames],
) -> R:
    """Train a `KinRanker` or `CellRanker` on any number of judged queries on disk and write a model folder.

    Scales, description and cells are fitted to a sample of the queries. The data are then read once, block by block,
    and the sums of each block are written to the job folder, for `KinRanker` also the queries that trees learn from and
    what memory keeps of all queries. Memory has the parts that pay on the former, as in `KinRanker.fit`. A job that was
    interrupted resumes when it is started again. The bytes of the model depend only on the data and the settings, not
    on the executor or on failures.

    Parameters
    ----------
    data
        A folder of judged queries (from `QuerySet.save`), or Parquet: a file, a folder, or a URI that Arrow or fsspec
        can open. In Parquet, the rows of a query must be adjacent.
    model
        Path of the model folder to write, on this machine.
    ranker
        The settings. It is not modified.
    executor
        Runs the tasks: ``Serial()`` (the default), ``Processes(n)`` or ``RayCluster(address)``.
    job
        Folder for intermediate results, which all workers must share; defaults to ``MODEL.job``. It is deleted at the
        end.
    block_rows
        Approximate number of rows per block; by default chosen from the number of cells.
    progress
        Called after each finished task.
    n_examples
        Number of training queries to save with the model, for the self-test of a service.
    judgments_through
        Revision of a service's judgments in the data; see `Ranker.save`.
    most_known
        How many queries memory keeps at most, next to those that trees learn from: an evenly spaced sample of more.
    columns
        What to read from Parquet files, as in `QuerySet.from_table`.

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
    whole = open_blocks(data, 1 << 62, 1, **columns)
    n_queries = whole.n_queries()
    settings: CellRanker | KinRanker = clone(ranker)
    settings.learned_from_ = None  # the ids of these queries are not kept
    kin = settings if isinstance(settings, KinRanker) else None
    if kin is not None:
        set_sizes(kin, whole, n_queries)
    cells: CellRanker = clone(settings) if isinstance(settings, CellRanker) else cell_part(settings)
    blocks = whole.split(block_rows or rows_per_block(cells.n_cells, len(whole.feature_names)))
    identity = {
        "kinrank": kinrank.__version__,
        "ranker": _changed_settings(ranker),
        "query_log": _digest(ranker.get_params().get("encoder__log") or ()),
        "data": _digest([blocks.fingerprint()]),
        "fan_in": FAN_IN,
        "most_known": most_known,
    }
    folder = JobFolder(f"{os.fspath(model)}.job" if job is None else job, identity)
    report = progress or (lambda _: None)
    for part in (settings, cells):
        part.n_features_in_, part.feature_names_ = len(blocks.feature_names), blocks.feature_names
    read = blocks
    if kin is not None:
        fit_to_texts(kin, blocks, executor, folder)
        read = with_vectors(kin, blocks)
    plan = _read_or_make_plan(folder, cells, read, executor)
    sample = None if kin is None else tree_sample(kin, n_queries)
    known = None if kin is None or sample is None else known_sample(kin, blocks, sample, most_known / n_queries)
    tree = SumTree(plan, read, folder, sample, known)
    cells.set_cells(plan, tree.run(executor, report))
    check_no_repeated_queries(blocks, tree.hashes)
    trained: CellRanker | KinRanker = cells
    if kin is not None:
        trained = _fit_kin(kin, cells, tree, executor, _Reporter(report))
    examples = blocks.head()[:n_examples] if n_examples else None
    trained.save(model, examples=examples, judgments_through=judgments_through)
    folder.delete()
    return cast(R, trained)


def _fit_kin(kin: KinRanker, cells: CellRanker, tree: SumTree, executor: Executor, report: _Reporter) -> KinRanker:
    """Fit memory and trees, given the sums over cells of all queries."""
    kept = StoredQueries(tree)
    job, stored, columns = None, None, None
    if tree.known is not None and len(kept):
        job = MemoryJob(tree, tree.known.keys, kin.group_column, kin.time_column, kin.seed)
        stored, kin.parts_, columns = job.columns(executor, report)
    fitting = KinFitting(kin, tree.folder, executor, report, memory=stored)
    fitted = fitting.fit_to_cells(cells, kept)
    queries = QuerySet.concat([kept(block) for block in range(len(kept))])
    kin.set_model(fitted, unseen=queries.qid[:0])
    if job is not None and stored is not None:
        kin.memory_ = job.remembered()
    kin.learn_choices(queries, columns)
    return kin


def known_sample(kin: KinRanker, blocks: Blocks, trees: TreeSample, share: float) -> KnownSample | None:
    """Return how to choose the queries that memory keeps; None if it cannot pay, as in `KinRanker.fit`."""
    first = blocks.head()
    if not kin.memory or not tree_settings(kin).learns or weights_differ(first) or not can_remember(first):
        return None
    meaning = has_meaning(kin.encoder_, encode_texts(kin.encoder_, first[:1]))
    return KnownSample(trees, min(share, 1.0), tuple(kin.keys or ()), kin.time_column, meaning)


def _changed_settings(ranker: CellRanker | KinRanker) -> dict[str, Any]:
    """Return the name of a ranker and its settings that differ from the defaults, ready for JSON."""
    settings = encode(ranker.storable_params(), PARTS)
    defaults = encode(type(ranker)().storable_params(), PARTS)
    changed = {name: value for name, value in settings.items() if value != defaults[name]}
    return {"ranker": RANKERS.name_of(type(ranker)), "settings": changed}


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


@dataclass(frozen=True)
class _Reporter:
    """Reports on the stages after the sums."""

    report: Callable[[TrainingProgress], None]

    def __call__(self, stage: str, done: int, total: int, cost: TaskCost) -> None:
        self.report(TrainingProgress(stage, 0, done, total, 0, cost.seconds, cost.cpu_seconds, cost.peak_mb))


def open_blocks(
    data: PathLike, block_rows: int | None = None, n_cells: int = 1, **columns: Unpack[ColumnNames]
) -> Blocks:
    """Open the data as blocks of about `block_rows` rows, by default chosen from the number of cells."""
    local = Path(data) if "://" not in os.fspath(data) else None
    if local is not None and not local.exists():
        raise DataError(f"{local}: no such file or folder: check the path")
    blocks: Blocks
    if local is not None and (local / MANIFEST).exists():
        blocks = FolderBlocks(data, 1 << 62)
    else:
        blocks = ParquetBlocks(data, 1 << 62, **columns)
    return blocks.split(block_rows or rows_per_block(n_cells, len(blocks.feature_names)))


def _read_or_make_plan(folder: JobFolder, ranker: CellRanker, blocks: Blocks, executor: Executor) -> CellPlan:
    """Return the plan of an interrupted job, or a new one if it is missing or damaged."""
    try:
        return ranker.restore_plan(folder.read("plan"))
    except DamagedFolderError:
        plan = ranker.plan_cells(blocks, executor)
        folder.write("plan", plan.get_state())
        return plan


TREE_QUERIES = 50_000
"""Number of queries that trees learn from, if it is not set: more gain nothing measurable."""
TREE_VALUES = 300_000_000
"""Upper limit of the numbers that trees see of these queries, 1.2 GB. A worker needs 2.8 GB then."""


def set_sizes(kin: KinRanker, blocks: Blocks, n_queries: int) -> None:
    """Choose the number of cells and of queries for the trees that suit training from disk, unless they are set."""
    settings = KinSettings.of(kin.settings)
    if settings.n_cells is None:
        settings = replace(settings, n_cells=int(np.clip(n_queries // 10, 1, MOST_CELLS)))
    if settings.tree_queries is None:
        values = blocks.total_rows() / n_queries * n_columns_seen(len(blocks.feature_names), bool(kin.local))
        settings = replace(settings, tree_queries=int(np.clip(TREE_VALUES / max(values, 1.0), 1, TREE_QUERIES)))
    kin.settings = settings


def fit_to_texts(kin: KinRanker, blocks: Blocks, executor: Executor, store: JobFolder) -> None:
    """Check settings against the queries, and fit the encoder to a sample of their texts, if they have any."""
    first = blocks.head()
    check_settings(kin, first)
    if kin.evidence is not None:
        check_findable(first)
    kin.encoder_ = fit_encoder_on_blocks(kin.encoder, blocks, executor, store)


def with_vectors(kin: KinRanker, blocks: Blocks) -> Blocks:
    """Return the queries with the vectors that the fitted encoder gives them, if there is one."""
    return blocks if kin.encoder_ is None else EncodedBlocks(blocks, kin.encoder_)
