"""Simulated click logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kinrank.clicks import ClickCounts, read_clicks
from kinrank.datasets import make_two_camps, simulate_clicks

Simulate = Callable[..., ClickCounts]


@pytest.fixture(scope="session")
def simulate(tmp_path_factory: pytest.TempPathFactory) -> Simulate:
    """Return a function that simulates a log and counts it."""
    folder: Path = tmp_path_factory.mktemp("logs")
    queries = make_two_camps(n_queries=300, n_docs=15)
    queries = queries.replace(doc_id=queries.doc_id.astype(str))

    def run(*, cascade: bool = False, **settings: Any) -> ClickCounts:
        settings = {"n_lists": 60, "tail": 0.5, "depth": 5, **settings}
        log = simulate_clicks(queries, queries.X[:, 0], **settings)
        file = folder / "log.parquet"
        pq.write_table(log, file)
        return read_clicks([file], cascade=cascade)

    return run
