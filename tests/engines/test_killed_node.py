"""One of three nodes is killed. For OpenSearch, run python -m benchmarks engine_faults."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.engine_faults import Killing, identical, log, log_during_kill
from kinrank import read_parquet
from kinrank.engines import connect
from kinrank.engines.base import LoggedFeatures
from tests.engines.toy import ToyEngine, toy_judgments

ADDRESS = "elasticsearch+http://127.0.0.1:9200,127.0.0.1:9201,127.0.0.1:9202"


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.thorough  # takes a minute, and three nodes
def test_log_is_complete_and_searches_succeed_while_a_node_is_killed():
    with connect(f"{ADDRESS}/none") as engine:
        cluster = engine._send("GET", "/_cluster/health", {}, None, 10.0)  # type: ignore[attr-defined]
    assert cluster["number_of_nodes"] == 3, "start it with scripts/engine start elasticsearch --nodes 3"
    figures = log_during_kill(ADDRESS, "elasticsearch", 9200, n_queries=400)
    assert figures["queries logged"] == figures["queries requested"]
    assert figures["documents logged"] == figures["documents requested"]
    assert figures["same as undisturbed"] is True
    assert figures["requests in flight at the kill"] > 0
    assert figures["searches answered"] > 0
    assert figures["searches failed"] == []
    # While a replica fails, the engine returns partial results. A search accepts them, a log retries.
    assert figures["searches with fewer hits"] <= figures["searches answered"] / 100


class HoldingEngine(ToyEngine):
    """Holds requests from the start of the kill until it is done."""

    killing: Killing

    def log(self, *args: object, **options: object) -> LoggedFeatures:
        if self.killing.thread.ident is not None:
            self.killing.thread.join()
        return super().log(*args, **options)  # type: ignore[arg-type]


def test_kill_happens_while_requests_are_in_flight(tmp_path: Path):
    judged = toy_judgments(60)
    engine = HoldingEngine()
    with subprocess.Popen(["sleep", "600"]) as victim:
        engine.killing = Killing(engine, victim.pid, after=20)
        counts, _ = log(engine, judged, tmp_path / "killed.parquet", engine.killing)
    assert victim.returncode == -signal.SIGKILL
    assert engine.killing.caught
    assert counts.queries == 60


def test_logs_are_compared_bit_by_bit(tmp_path: Path):
    judged = toy_judgments(60)
    # A log has no documents that are missing in the index, so it is compared with itself instead of the judgments.
    log(ToyEngine(), judged, tmp_path / "undisturbed.parquet")
    undisturbed = read_parquet(tmp_path / "undisturbed.parquet")
    assert identical(undisturbed, undisturbed, undisturbed)
    changed = undisturbed.X.copy()
    changed[-1, 0] = np.nextafter(changed[-1, 0], np.float32(9))
    assert not identical(undisturbed.replace(X=changed), undisturbed, undisturbed)
    assert not identical(undisturbed[:-1], undisturbed, undisturbed[:-1])
