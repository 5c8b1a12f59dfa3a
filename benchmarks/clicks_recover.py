"""Propensities of simulated users are recovered at 10^6 impressions; other users are flagged, frozen ranks refused.

Users click on the judged lists of MSRD and mwmbl, shown in the order of one feature with some noise. The largest error
of the curve over ten ranks relative to the truth, 1/k, by model; whether the test of fit warns for each kind of user;
and the answer if the ranking never changes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.common import judged_text, log_progress, msrd
from kinrank import QuerySet
from kinrank.clicks import ClickCounts, read_clicks
from kinrank.clicks.examination import estimate_examination
from kinrank.datasets import simulate_clicks
from kinrank.errors import DataError

IMPRESSIONS = 1_000_000
DEPTH = 10
ENGINE = "bm25_all"


def simulated(queries: QuerySet, **settings: Any) -> ClickCounts:
    """Return the counts of a log of about a million impressions."""
    column = queries.feature_names.index(ENGINE)
    lists = IMPRESSIONS / DEPTH / len(queries) / np.exp(0.5)  # the mean of the heavy tail is exp(1/2) times its median
    log = simulate_clicks(queries, queries.X[:, column], n_lists=lists, depth=DEPTH, seed=1, **settings)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log.parquet"
        pq.write_table(log, file)
        return read_clicks([file])


def run() -> dict[str, Any]:
    """Measure both collections."""
    figures: dict[str, Any] = {}
    train = msrd()["train"]
    collections = {"msrd": train[:: len(train) // 2000].replace(query_columns={}), "mwmbl": judged_text("mwmbl")[0]}
    for name, queries in collections.items():
        queries = queries.replace(query_columns={}, doc_id=np.arange(queries.n_rows).astype(str))
        position = simulated(queries)
        found = estimate_examination(position)
        error = float(np.abs(found.slope * found.ranks - 1).max())
        warned = {
            user: bool(estimate_examination(simulated(queries, user=user)).warnings) for user in ("cascade", "trust")
        }
        warned["position"] = bool(estimate_examination(position).warnings)
        try:
            estimate_examination(simulated(queries, shuffle=0.0))
            frozen = "estimated"
        except DataError as error:
            frozen = str(error).partition(":")[0]
        figures[name] = {
            "impressions": int(position.impressions.sum()),
            "largest error": round(error, 4),
            "warned": warned,
            "frozen ranking": frozen,
        }
        log_progress(f"{name}: {figures[name]}")
    return figures
