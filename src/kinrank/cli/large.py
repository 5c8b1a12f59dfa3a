"""``kinrank train`` with ``--ray`` or ``--workers``: data that are read block by block, by many."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import cast

from kinrank.cli import messages
from kinrank.errors import ParameterError
from kinrank.parallel import Executor, Serial
from kinrank.rankers import Ranker
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.scale import Processes, RayCluster, TrainingProgress
from kinrank.scale.training import train


def train_large(
    data: str,
    model: str,
    name: str,
    ranker: Ranker,
    validate: str | None,
    ray: str | None,
    workers: int | None,
    job: str | None,
) -> None:
    """Train and say what it took; see `kinrank.scale.train`."""
    if not ranker.capabilities.streams:
        raise ParameterError(f"ranker {name!r} cannot train from disk: with --ray or --workers, use --ranker cells")
    if ray is not None and workers is not None:
        raise ParameterError("--ray and --workers: give one of them")
    if validate is not None:
        raise ParameterError("--validate needs the data in memory: measure with kinrank rank and kinrank evaluate")
    start, spent, rows = time.perf_counter(), 0.0, 0
    with ExitStack() as stack:
        executor: Executor = Serial()
        if ray is not None:
            executor = stack.enter_context(RayCluster(ray))
        elif workers is not None and workers > 1:
            executor = Processes(workers)
        advance = stack.enter_context(messages.working("summing blocks"))

        def tell(batch: TrainingProgress) -> None:
            nonlocal spent, rows
            spent, rows = spent + batch.seconds, rows + batch.n_rows
            advance(1)

        trained = train(data, model, cast(CellRanker, ranker), executor=executor, job=job, progress=tell)
    held = int(trained.training_set_.counts.sum())
    messages.say(f"{data}: {held:,} queries, {rows:,} rows read now, {spent:.1f} s of workers")
    messages.say(
        f"{model}: ranker {name!r}, {len(trained.qid_):,} cells, learned in {time.perf_counter() - start:.1f} s"
    )
