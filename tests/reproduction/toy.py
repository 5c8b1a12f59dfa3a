"""A toy experiment that runs instantly."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, Task, TaskResult

FILE = "numbers.txt"


def read(task: int, data: DataFolder) -> TaskResult:
    """Multiply the numbers of the file by `task`. Every call leaves a file behind."""
    numbers = np.loadtxt(data.path / FILE, ndmin=1)
    (data.path / f"called-{task}-{os.getpid()}-{os.urandom(4).hex()}").touch()
    return TaskResult({"z": task, "a": task, "process": os.getpid()}, {"per query, of each": task * numbers})


def fail(data: DataFolder) -> TaskResult:
    raise ZeroDivisionError("on purpose")


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    sums = {name: float(each.values["per query, of each"].sum()) for name, each in results.items()}
    return {"sum": sums, 1: 2, "order": [name for each in results.values() for name in each.figures]}


EXPERIMENT = Experiment("toy", "sser", {f"task {i}, of 3": Task(partial(read, i), (FILE,)) for i in (1, 2, 3)}, summary)
FAILING = Experiment("toy", "sser", {**EXPERIMENT.tasks, "last": Task(fail, (FILE,), minutes=0.01)}, summary)


def folder(path: Path) -> DataFolder:
    path.mkdir()
    (path / FILE).write_text("1\n2\n")
    return DataFolder(path)


def calls(data: DataFolder) -> int:
    return len(list(data.path.glob("called-*")))
