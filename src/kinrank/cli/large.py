"""Commands with ``--ray`` or ``--workers``; ``kinrank train`` reads from disk then, block by block."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import cast

from kinrank.cli import console
from kinrank.cli.inputs import announce, check_added_rows, check_features
from kinrank.cli.options import EXAMPLES, OnLeak, table_columns
from kinrank.data.parquet import ParquetBlocks
from kinrank.data.tables import ColumnNames
from kinrank.errors import ParameterError
from kinrank.parallel import Executor, Serial
from kinrank.rankers import Ranker
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.kin.ranker import KinRanker
from kinrank.scale import Processes, RayCluster, TrainingProgress
from kinrank.scale.training import open_blocks, train


def train_large(
    data: str,
    model: str,
    name: str,
    ranker: Ranker,
    validate: str | None,
    ray: str | None,
    workers: int | None,
    job: str | None,
    leaks: OnLeak,
    judgments_through: int | None,
) -> None:
    """Train with `kinrank.scale.train` and report the cost."""
    if not ranker.capabilities.streams:
        raise ParameterError(
            f"ranker {name!r} cannot train from disk: with --ray or --workers, use --ranker kin or cells"
        )
    if validate is not None:
        raise ParameterError("--validate needs the data in memory: leave it out, then run kinrank compare")
    columns = table_columns.get()
    _check_first_queries(data, leaks, columns)
    start, spent, rows = time.perf_counter(), 0.0, 0
    with ExitStack() as stack:
        executor = stack.enter_context(chosen_executor(ray, workers))
        advance = stack.enter_context(console.progress("training"))

        def count(batch: TrainingProgress) -> None:
            nonlocal spent, rows
            spent, rows = spent + batch.seconds, rows + batch.n_rows
            advance(1)

        trained = train(
            data,
            model,
            cast("KinRanker | CellRanker", ranker),
            executor=executor,
            job=job,
            progress=count,
            n_examples=EXAMPLES,
            judgments_through=judgments_through,
            **columns,
        )
    cells = (trained.local_ if isinstance(trained, KinRanker) else trained).model_.training_set
    held = int(cells.counts.sum())
    console.info(f"{data}: {held:,} queries, {rows:,} rows read in this run, {spent:.1f} s of worker time")
    console.info(
        f"{model}: ranker {name!r}, {len(cells.counts):,} cells, fitted in {time.perf_counter() - start:.1f} s"
    )
    for line in trained.remarks():
        console.info(f"{model}: {line}")


@contextmanager
def chosen_executor(ray: str | None, workers: int | None) -> Iterator[Executor]:
    """Yield what runs the tasks of a command with ``--ray`` or ``--workers``."""
    if ray is not None and workers is not None:
        raise ParameterError("--ray and --workers cannot be combined")
    if ray is not None:
        with RayCluster(ray) as cluster:
            yield cluster
    else:
        yield Processes(workers) if workers is not None and workers > 1 else Serial()


def _check_first_queries(data: str, leaks: OnLeak, columns: ColumnNames) -> None:
    """Look for features that are none, and that give the grade away, in the queries that are read first."""
    blocks = open_blocks(data, **columns)
    first = blocks.head()
    announce(first, f"{data}, the first queries")
    check_features(first, data, named=columns["features"] is not None or not isinstance(blocks, ParquetBlocks))
    if check_added_rows(first, leaks) is not None and leaks is OnLeak.drop:
        raise ParameterError("--leaks drop needs the data in memory: drop these candidates first, or use --leaks warn")
