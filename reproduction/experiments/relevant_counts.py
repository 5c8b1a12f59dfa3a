"""Local models, Figure 4: queries by number of relevant documents, and the shares of the difficulty levels.

The paper calls a query hard if it has fewer than 4 relevant documents and easy if it has more than 20. Its shares,
however, match 20 or more, so both are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kinrank.data.queryset import QuerySet
from reproduction.data_folder import DataFolder, letor_files
from reproduction.difficulty import LEVELS, difficulty_levels
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.experiments.cluster_methods import COLLECTIONS

HARD_BELOW, EASY_FROM = 4, (20, 21)


def counted(collection: str, data: DataFolder) -> TaskResult:
    """Count queries by number of relevant documents, and the percentage of queries at each level."""
    queries = QuerySet.concat([test for _, _, test in data.letor_folds(collection)])
    relevant = np.add.reduceat(queries.grades >= 1, queries.offsets[:-1])
    shares = {}
    for easy in EASY_FROM:
        levels = difficulty_levels(queries.grades, queries.offsets, hard_below=HARD_BELOW, easy_above=easy - 1)
        shares[f"easy from {easy}"] = {name: round(100 * float(np.mean(levels == name)), 1) for name in LEVELS}
    histogram = {str(count): queries for count, queries in sorted(Counter(relevant.tolist()).items())}
    return TaskResult({"queries": len(queries), "percent": shares, "by relevant documents": histogram})


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the counts of each collection."""
    return {collection: result.figures for collection, result in results.items()}


EXPERIMENT = Experiment(
    "relevant-counts",
    "local-models",
    {collection: Task(partial(counted, collection), letor_files(collection), 0.02) for collection in COLLECTIONS},
    summary,
)
