"""An experiment: its tasks, and how their results become figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from numpy.typing import NDArray

from reproduction.data_folder import FOLDS, DataFolder, letor_files

Values = NDArray[Any]


@dataclass(frozen=True)
class TaskResult:
    """The result of one task.

    Attributes
    ----------
    figures : dict
        Figures that JSON can represent.
    values : dict of str to array
        One value per query. Significance tests pool them over all tasks.
    """

    figures: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Values] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A unit of work that is computed and cached as a whole, such as one fold of a collection.

    Attributes
    ----------
    compute : callable
        Computes the result in another process, so it must be picklable: a module-level function or a partial of one.
    needs : tuple of str
        The files it reads, relative to the data folder.
    minutes : float
        Approximate time on one core. Long tasks start first, and the progress bar is scaled by it.
    """

    compute: Callable[[DataFolder], TaskResult]
    needs: tuple[str, ...] = ()
    minutes: float = 0.1


def letor_tasks(
    one_fold: Callable[[str, int, DataFolder], TaskResult], minutes: Mapping[str, float]
) -> dict[str, Task]:
    """Return one task per fold of each LETOR collection, given the minutes that a fold of each takes."""
    return {
        _letor_name(collection, fold): Task(partial(one_fold, collection, fold), letor_files(collection), each)
        for collection, each in minutes.items()
        for fold in FOLDS
    }


def results_by_fold(results: Mapping[str, TaskResult], collection: str) -> list[TaskResult]:
    """Return the results of the `letor_tasks` of a collection, in fold order."""
    return [results[_letor_name(collection, fold)] for fold in FOLDS]


def _letor_name(collection: str, fold: int) -> str:
    return f"{collection} fold {fold}"


@dataclass(frozen=True)
class Experiment:
    """One experiment of a paper.

    Attributes
    ----------
    name : str
        Its name, also used in file names.
    paper : str
        The paper, a key of `reproduction.PAPERS`.
    tasks : mapping of str to Task
        The tasks, by name.
    summary : callable
        Computes the figures of the experiment from the results of all tasks.
    """

    name: str
    paper: str
    tasks: Mapping[str, Task]
    summary: Callable[[Mapping[str, TaskResult]], dict[str, Any]]
