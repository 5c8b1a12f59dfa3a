"""How long one query takes, each entrant in turn."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.study.comparison import Fittable
from kinrank.study.report.contents import Timing


def time_rankers(rankers: Mapping[str, Fittable], queries: QuerySet) -> tuple[Timing, ...]:
    """Time rankers on one query at a time, taking turns, so that a busy machine is busy for all of them.

    Parameters
    ----------
    rankers
        Fitted, by name.
    queries
        What to rank. Each ranker ranks the first query once before the clock runs.
    """
    for ranker in rankers.values():
        ranker.predict(queries[:1])
    spent: dict[str, list[float]] = {name: [] for name in rankers}
    for query in queries:
        for name, ranker in rankers.items():
            start = time.perf_counter()
            ranker.predict(query)
            spent[name].append(1000 * (time.perf_counter() - start))
    return tuple(Timing(name, float(np.median(ms)), float(np.quantile(ms, 0.95))) for name, ms in spent.items())
