"""A node of three is killed with SIGKILL; for OpenSearch see python -m benchmarks engine_faults."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.engine_faults import Killing, identical, log, survive
from kinrank import read_parquet
from kinrank.engines import connect
from kinrank.engines.base import LoggedFeatures
from tests.engines.toy import ToyEngine, toy_judgments

ADDRESS = "elasticsearch+http://127.0.0.1:9200,127.0.0.1:9201,127.0.0.1:9202"


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.xdist_group("engine")
def test_logging_ends_complete_and_searches_go_on_while_a_node_is_killed():
    with connect(f"{ADDRESS}/none") as engine:
        cluster = engine._send("GET", "/_cluster/health", {}, None, 10.0)  # type: ignore[attr-defined]
    assert cluster["number_of_nodes"] == 3, "start it with scripts/engine start elasticsearch --nodes 3"
    figures = survive(ADDRESS, "elasticsearch", 9200, n_queries=400)
    assert figures["queries logged"] == figures["queries asked"]
    assert figures["documents logged"] == figures["documents asked"]
    assert figures["same as in peace"] is True
    assert figures["requests under way at the kill"] > 0
    assert figures["searches answered"] > 0
    assert figures["searches failed"] == []
    # While a copy of a shard dies, the engine answers from the others: a live search takes that, a log asks again.
    assert figures["searches with fewer hits"] <= figures["searches answered"] / 100


class SlowEngine(ToyEngine):
    def log(self, *words: object, **options: object) -> LoggedFeatures:
        time.sleep(0.01)
        return super().log(*words, **options)  # type: ignore[arg-type]


def test_the_kill_comes_while_requests_are_under_way(tmp_path: Path):
    judged = toy_judgments(60)
    engine = SlowEngine()
    with subprocess.Popen(["sleep", "60"]) as victim:
        killing = Killing(engine, victim.pid, after=20)
        counts, _ = log(engine, judged, tmp_path / "fire.parquet", killing)
    assert victim.returncode == -signal.SIGKILL
    assert killing.caught
    assert counts.queries == 60


def test_a_log_is_compared_to_its_last_value(tmp_path: Path):
    judged = toy_judgments(60)
    # What the toy does not have is left out: its log is compared with what it can log.
    log(ToyEngine(), judged, tmp_path / "peace.parquet")
    peace = read_parquet(tmp_path / "peace.parquet")
    assert identical(peace, peace, peace)
    wrong = peace.X.copy()
    wrong[-1, 0] = np.nextafter(wrong[-1, 0], np.float32(9))
    assert not identical(peace.replace(X=wrong), peace, peace)
    assert not identical(peace[:-1], peace, peace[:-1])
