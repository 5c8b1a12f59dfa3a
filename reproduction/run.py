"""Pieces of work done by several processes, each kept as soon as it is finished."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from threadpoolctl import threadpool_limits

from kinrank.parallel import Executor, Processes, Serial
from reproduction.data_folder import DataFolder
from reproduction.keep import Keeper, Kept
from reproduction.part import Findings, Part

Job = tuple[Part, str]


@dataclass(frozen=True)
class Measured:
    """The figures of a part.

    Attributes
    ----------
    figures : dict
        As JSON reads them: keys are text.
    seconds : dict of str to float
        ``cpu`` and ``wall``, summed over pieces.
    """

    figures: dict[str, Any]
    seconds: dict[str, float]


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_files(parts: Iterable[Part], data: DataFolder) -> None:
    """Find out before any work that a file is missing; the error names all of them."""
    data.require(name for part in parts for piece in part.pieces.values() for name in piece.needs)


def measure(
    parts: Iterable[Part],
    keeper: Keeper,
    *,
    jobs: int = 1,
    done: Callable[[Part, str], None] = lambda *_: None,
) -> dict[str, Measured]:
    """Do what is not kept yet, and give the figures of every part by its name.

    Parameters
    ----------
    parts
        The experiments.
    keeper
        Where finished pieces are and go, and the data they read.
    jobs
        How many processes; with 1 the work is done in this one.
    done
        Called for every piece, with its part and its name, when it is finished or found kept.
    """
    wanted = list(parts)
    require_files(wanted, keeper.data)
    finished: dict[tuple[str, str], Kept] = {}
    todo: list[Job] = []
    for part in wanted:
        for piece in part.pieces:
            kept = keeper.kept(part, piece)
            if kept is None:
                todo.append((part, piece))
                continue
            finished[part.name, piece] = kept
            done(part, piece)
    todo.sort(key=lambda job: -job[0].pieces[job[1]].minutes)  # a long one started last would end alone
    for (part, piece), (findings, seconds) in _worked(todo, keeper.data, jobs):
        # What is summed up is what was kept: a run that goes on finds the same as one that was never stopped.
        finished[part.name, piece] = keeper.keep(part, piece, findings, seconds)
        done(part, piece)
    return {part.name: _summed(part, finished) for part in wanted}


def _summed(part: Part, finished: dict[tuple[str, str], Kept]) -> Measured:
    pieces = {piece: finished[part.name, piece] for piece in part.pieces}
    figures = part.summary({piece: findings for piece, (findings, _) in pieces.items()})
    seconds = {kind: round(sum(each[kind] for _, each in pieces.values()), 1) for kind in ("cpu", "wall")}
    return Measured(json.loads(json.dumps(figures)), seconds)


def _worked(todo: list[Job], data: DataFolder, jobs: int) -> Iterator[tuple[Job, Kept]]:
    executor: Executor = Serial() if jobs == 1 else Processes(jobs)
    computes = [part.pieces[piece].compute for part, piece in todo]
    for position, kept in executor.map_unordered(partial(_work, data), computes):
        yield todo[position], kept


def _work(data: DataFolder, compute: Callable[[DataFolder], Findings]) -> Kept:
    wall, cpu = time.perf_counter(), time.process_time()
    with threadpool_limits(1):
        findings = compute(data)
    return findings, {
        "wall": round(time.perf_counter() - wall, 3),
        "cpu": round(time.process_time() - cpu, 3),
    }
