"""On a Ray cluster of three nodes: nodes, workers and drivers die, a block is corrupt; the bytes do not change."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster

from kinrank import ClusterRanker, KnnRanker, QuerySet, choose_neighbors
from kinrank.errors import FileFormatError, JobError, ParameterError
from kinrank.parallel import use_executor
from kinrank.scale import RayCluster, TrainingProgress, train
from kinrank.study.tuning import Plan, tune
from tests.scale.conftest import BLOCK_ROWS, PIECES, SETTINGS, blocks_kept, damaged, model_bytes, plan_alone

pytestmark = [pytest.mark.slow, pytest.mark.alone]

MEMORY = 100 * 1024 * 1024


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes of one core."""
    # Ray's workers are nicer than everyone: in a suite that keeps every core busy they would never have a turn.
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("RAY_worker_niceness", "0")
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": MEMORY})
    for _ in range(2):
        nodes.add_node(num_cpus=1, object_store_memory=MEMORY)
    with RayCluster(nodes.address):
        nodes.wait_for_nodes()
        yield nodes
    assert not ray.is_initialized()
    nodes.shutdown()
    monkeypatch.undo()


@pytest.fixture
def workers(cluster: Cluster) -> RayCluster:
    return RayCluster(cluster.address)


def test_three_nodes_change_no_byte(
    workers: RayCluster, judged: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    assert ray.cluster_resources()["CPU"] == 3
    train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, executor=workers)
    assert model_bytes(tmp_path / "model") == undisturbed


def test_a_node_is_killed_in_the_middle(
    cluster: Cluster, workers: RayCluster, judged: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    doomed = cluster.add_node(num_cpus=2, object_store_memory=MEMORY)
    cluster.wait_for_nodes()
    killed: list[int] = []

    def kill(batch: TrainingProgress) -> None:
        if batch.level == 0 and batch.done == 8:
            for started in (process for some in doomed.all_processes.values() for process in some):
                os.kill(started.process.pid, signal.SIGKILL)
                killed.append(started.process.pid)

    train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, executor=workers, progress=kill)
    assert killed
    assert model_bytes(tmp_path / "model") == undisturbed
    cluster.remove_node(doomed, allow_graceful=False)


@dataclass
class Deadly:
    """Kills the worker that it runs in, the first so many times that it is called, or is called with a certain item."""

    function: Callable[[Any], Any]
    graves: Path
    deaths: int
    item: int | None

    def __call__(self, item: Any) -> Any:
        for number in range(self.deaths if self.item in (None, item) else 0):
            try:
                (self.graves / str(number)).touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return self.function(item)


class DeadlyCluster(RayCluster):
    def __init__(self, address: str, graves: Path, deaths: int, item: int | None = None, **settings: Any) -> None:
        super().__init__(address, **settings)
        self.graves, self.deaths, self.item = graves, deaths, item
        graves.mkdir()

    def map_unordered(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        return super().map_unordered(Deadly(function, self.graves, self.deaths, self.item), items)


def test_workers_are_killed_ten_times(
    cluster: Cluster, judged: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    plan_alone(judged, tmp_path / "model")
    deadly = DeadlyCluster(cluster.address, tmp_path / "graves", 10)
    done: list[TrainingProgress] = []
    train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, executor=deadly, progress=done.append)
    assert len(list((tmp_path / "graves").iterdir())) == 10
    assert len(done) == PIECES
    assert model_bytes(tmp_path / "model") == undisturbed


def test_a_piece_that_always_kills_its_worker_is_given_up_and_the_rest_kept(
    cluster: Cluster, workers: RayCluster, judged: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    plan_alone(judged, model)
    deadly = DeadlyCluster(cluster.address, tmp_path / "graves", 1000, item=20, retries=1)
    with pytest.raises(JobError, match=r"^item 20 was given up after 1 retries, its worker died each time"):
        train(judged, model, SETTINGS, block_rows=BLOCK_ROWS, executor=deadly)
    assert len(list((tmp_path / "graves").iterdir())) == 2
    assert not model.exists()
    go_on(workers, judged, model, without=20)
    assert model_bytes(model) == undisturbed


def go_on(workers: RayCluster, data: Path, model: Path, without: int) -> None:
    """Finish a job that stopped at a block: those before it, which were not under way any more, are not done again."""
    kept = blocks_kept(model)
    assert without not in kept
    assert len(kept) >= 4
    done: list[TrainingProgress] = []
    train(data, model, SETTINGS, block_rows=BLOCK_ROWS, executor=workers, progress=done.append)
    assert len(done) <= PIECES - len(kept)


def test_a_corrupt_block_is_named_and_mended(
    workers: RayCluster, judged: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    data, model = shutil.copytree(judged, tmp_path / "data"), tmp_path / "model"
    plan_alone(data, model)
    bad = data / "part-1.parquet"
    complaint = f"^{re.escape(str(bad))}: row group 9 cannot be read as Parquet"
    with damaged(bad, 9), pytest.raises(FileFormatError, match=complaint):
        train(data, model, SETTINGS, block_rows=BLOCK_ROWS, executor=workers)
    go_on(workers, data, model, without=15)
    assert model_bytes(model) == undisturbed


DRIVER = """
import sys, time
from kinrank.scale import RayCluster, train
from tests.scale.conftest import BLOCK_ROWS, SETTINGS
address, data, model = sys.argv[1:]
train(data, model, SETTINGS, block_rows=BLOCK_ROWS, executor=RayCluster(address), progress=lambda _: time.sleep(0.2))
"""


def test_the_driver_is_killed_and_the_job_started_again(
    cluster: Cluster, workers: RayCluster, judged: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", DRIVER, cluster.address, str(judged), str(tmp_path / "model")]
    driver = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    job = tmp_path / "model.job"
    patience = time.monotonic() + 120
    while len(list(job.glob("sums-0-*.npz"))) < 8:
        assert driver.poll() is None, "the driver ended by itself"
        assert time.monotonic() < patience
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert not (tmp_path / "model").exists()
    done: list[TrainingProgress] = []
    train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, executor=workers, progress=done.append)
    assert model_bytes(tmp_path / "model") == undisturbed
    assert len(done) <= PIECES - 8


def test_loops_of_rankers_run_on_the_cluster(workers: RayCluster, queries: QuerySet) -> None:
    train_set, test = queries[:300], queries[600:]
    rankers = [
        KnnRanker(30, mode="offline-2", reference="reference"),
        ClusterRanker(mode="select", n_clusters=5, learner="rankrls", reference="reference", relevant_from=2),
    ]
    for ranker in rankers:
        here = ranker.fit(train_set).predict(test)
        with use_executor(workers):
            np.testing.assert_array_equal(ranker.fit(train_set).predict(test), here)
    online = KnnRanker(30).fit(train_set)
    with use_executor(workers):
        choice = choose_neighbors(online, test, [10, 30])
    assert choice.quality == choose_neighbors(online, test, [10, 30]).quality


def test_a_study_is_tuned_on_the_cluster(workers: RayCluster, queries: QuerySet, tmp_path: Path) -> None:
    plan = Plan(["single", "knn"], n_trials=4, folds=3)
    here = tune(queries[:300], tmp_path / "here", plan)
    with use_executor(workers):
        there = tune(queries[:300], tmp_path / "there", plan)
    assert [(trial.key, trial.quality) for trial in there.trials] == [
        (trial.key, trial.quality) for trial in here.trials
    ]


@pytest.mark.parametrize("given", [True, False])
def test_a_session_of_somebody_else_is_used_and_left_open(cluster: Cluster, given: bool) -> None:
    with RayCluster(cluster.address) if given else RayCluster() as workers:
        assert list(workers.map_unordered(abs, [-1])) == [(0, 1)]
    assert ray.is_initialized()
    assert ray.get_runtime_context().gcs_address == cluster.address


@pytest.mark.parametrize("address", ["local", "127.0.0.1:1"])
def test_another_cluster_than_that_of_the_open_session_is_refused(cluster: Cluster, address: str) -> None:
    message = f"^no session at '{address}' while one is open at '{cluster.address}': "
    with pytest.raises(ParameterError, match=message):
        list(RayCluster(address).map_unordered(abs, [-1]))
    with pytest.raises(ParameterError, match=message):
        RayCluster(address).__enter__()


def test_a_cluster_that_is_not_there_is_said() -> None:
    code = "from kinrank.scale import RayCluster; RayCluster('127.0.0.1:1').__enter__()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "no Ray cluster at '127.0.0.1:1'" in done.stderr
