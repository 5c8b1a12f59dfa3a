"""Time per query of each entrant."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.study.comparison import Fittable
from kinrank.study.report.contents import Timing


def time_rankers(rankers: Mapping[str, Fittable], queries: QuerySet) -> tuple[Timing, ...]:
    """Time fitted rankers on one query at a time, in turns, so that load on the machine affects all of them.

    Parameters
    ----------
    rankers
        Fitted rankers by name.
    queries
        Queries to rank. Each ranker first ranks one query untimed.
    """
    for ranker in rankers.values():
        ranker.predict(queries[:1])
    milliseconds: dict[str, list[float]] = {name: [] for name in rankers}
    for query in queries:
        for name, ranker in rankers.items():
            start = time.perf_counter()
            ranker.predict(query)
            milliseconds[name].append(1000 * (time.perf_counter() - start))
    return tuple(
        Timing(name, float(np.median(values)), float(np.quantile(values, 0.95)))
        for name, values in milliseconds.items()
    )
