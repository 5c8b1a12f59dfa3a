"""Results of finished tasks, one checksummed folder each, so that an interrupted run can resume."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import kinrank
from kinrank import folder
from kinrank.data.files import changed_keys
from kinrank.errors import DamagedFolderError
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, TaskResult, Values

KIND = "task-result"
TimedResult = tuple[TaskResult, dict[str, float]]
"""The result of a task, and its ``cpu`` and ``wall`` seconds."""


class ResultCache:
    """Stores the results of tasks on disk.

    Parameters
    ----------
    path
        The cache folder. Created when the first result is stored.
    data
        The data that the tasks read. Results from other data or another version of kinrank are ignored.
    """

    def __init__(self, path: Path, data: DataFolder) -> None:
        self.path = path
        self.data = data

    def store(self, experiment: Experiment, task: str, result: TaskResult, seconds: dict[str, float]) -> TimedResult:
        """Write a result atomically and return it as `load` would."""
        # Figures are stored as text because a manifest sorts its keys, and tables and curves depend on their order.
        meta = {**self._key(experiment, task), "figures": json.dumps(result.figures), "seconds": seconds}
        # Method names are not valid file names, so the arrays are numbered and the names go into the metadata.
        meta["values"] = list(result.values)
        arrays = {f"values{i}": np.asarray(values) for i, values in enumerate(result.values.values())}
        folder.write(self._folder(experiment, task), KIND, meta, arrays)
        return _read(meta, arrays)

    def load(self, experiment: Experiment, task: str) -> TimedResult | None:
        """Return the cached result of a task, or None if it is missing, damaged or outdated."""
        path = self._folder(experiment, task)
        if not path.exists():
            return None
        try:
            meta, arrays = folder.read(path, KIND)
        except DamagedFolderError:
            shutil.rmtree(path)  # a kinrank folder, so it is safe to delete, and it would block the next write
            return None
        key = self._key(experiment, task)
        if changed_keys(key, {name: meta.get(name) for name in key}):
            return None
        return _read(meta, arrays)

    def _key(self, experiment: Experiment, task: str) -> dict[str, Any]:
        return {
            "experiment": experiment.name,
            "task": task,
            "kinrank": kinrank.__version__,
            "data": self.data.checksums(experiment.tasks[task].needs),
        }

    def _folder(self, experiment: Experiment, task: str) -> Path:
        # Letters, digits and dashes only: "1,500 + 400, seed 1" becomes "1-500-400-seed-1".
        words = "".join(letter if letter.isalnum() else " " for letter in task).split()
        return self.path / experiment.name / "-".join(words)


def _read(meta: Mapping[str, Any], arrays: Mapping[str, Values]) -> TimedResult:
    values = {name: np.array(arrays[f"values{i}"]) for i, name in enumerate(meta["values"])}
    return TaskResult(json.loads(meta["figures"]), values), meta["seconds"]
