"""Run tasks in several processes and cache each result as soon as it is finished."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from threadpoolctl import threadpool_limits

from kinrank.parallel import Executor, Processes, Serial
from reproduction.cache import ResultCache, TimedResult
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, TaskResult

Job = tuple[Experiment, str]


@dataclass(frozen=True)
class Measurement:
    """The figures of an experiment.

    Attributes
    ----------
    figures : dict
        The figures after a round trip through JSON: all keys are strings.
    seconds : dict of str to float
        ``cpu`` and ``wall`` time, summed over tasks.
    """

    figures: dict[str, Any]
    seconds: dict[str, float]


def require_files(experiments: Iterable[Experiment], data: DataFolder) -> None:
    """Raise an error that lists every missing data file, before any work starts."""
    data.require(name for experiment in experiments for task in experiment.tasks.values() for name in task.needs)


def measure(
    experiments: Iterable[Experiment],
    cache: ResultCache,
    *,
    jobs: int = 1,
    on_done: Callable[[Experiment, str], None] = lambda *_: None,
) -> dict[str, Measurement]:
    """Run all tasks that are not cached, and return the figures of every experiment by name.

    Parameters
    ----------
    experiments
        The experiments.
    cache
        Where results are stored, and the data that tasks read.
    jobs
        Number of processes. With 1, the tasks run in this process.
    on_done
        Called with the experiment and the task name when a task is finished or found in the cache.
    """
    wanted = list(experiments)
    require_files(wanted, cache.data)
    finished: dict[tuple[str, str], TimedResult] = {}
    todo: list[Job] = []
    for experiment in wanted:
        for task in experiment.tasks:
            cached = cache.load(experiment, task)
            if cached is None:
                todo.append((experiment, task))
                continue
            finished[experiment.name, task] = cached
            on_done(experiment, task)
    todo.sort(key=lambda job: -job[0].tasks[job[1]].minutes)  # a long task started last would run alone at the end
    for (experiment, task), (result, seconds) in _run(todo, cache.data, jobs):
        # Use the result as stored, so that a resumed run and an uninterrupted one give the same figures.
        finished[experiment.name, task] = cache.store(experiment, task, result, seconds)
        on_done(experiment, task)
    return {experiment.name: _summarize(experiment, finished) for experiment in wanted}


def _summarize(experiment: Experiment, finished: dict[tuple[str, str], TimedResult]) -> Measurement:
    tasks = {task: finished[experiment.name, task] for task in experiment.tasks}
    figures = experiment.summary({task: result for task, (result, _) in tasks.items()})
    seconds = {kind: round(sum(each[kind] for _, each in tasks.values()), 1) for kind in ("cpu", "wall")}
    return Measurement(json.loads(json.dumps(figures)), seconds)


def _run(todo: list[Job], data: DataFolder, jobs: int) -> Iterator[tuple[Job, TimedResult]]:
    executor: Executor = Serial() if jobs == 1 else Processes(jobs)
    computes = [experiment.tasks[task].compute for experiment, task in todo]
    for position, result in executor.map_unordered(partial(_timed, data), computes):
        yield todo[position], result


def _timed(data: DataFolder, compute: Callable[[DataFolder], TaskResult]) -> TimedResult:
    wall, cpu = time.perf_counter(), time.process_time()
    with threadpool_limits(1):
        result = compute(data)
    return result, {
        "wall": round(time.perf_counter() - wall, 3),
        "cpu": round(time.process_time() - cpu, 3),
    }
