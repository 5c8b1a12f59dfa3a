"""Training on a Ray cluster of three nodes gives the same bytes despite killed nodes, workers and drivers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from ray.cluster_utils import Cluster
from sklearn.base import clone

from kinrank import ClusterRanker, KnnRanker, QuerySet, choose_neighbors
from kinrank.clicks import choices
from kinrank.clicks.choices import add_logs
from kinrank.clicks.counting import UNIT, FirstPass
from kinrank.clicks.log import partitions
from kinrank.clicks.partitions import count_partitions
from kinrank.datasets import make_two_camps, simulate_clicks
from kinrank.errors import FileFormatError, JobError, ParameterError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.parallel import use_executor
from kinrank.scale import RayCluster, TrainingProgress, train
from tests.scale.conftest import (
    BLOCK_ROWS,
    KIN,
    N_TASKS,
    REMEMBERED_ROWS,
    REMEMBERING,
    SETTINGS,
    damaged,
    interrupt_after_plan,
    model_bytes,
    summed_blocks,
)

pytestmark = [pytest.mark.slow, pytest.mark.alone]

MEMORY = 100 * 1024 * 1024


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Start three nodes with one core each."""
    # Ray lowers the priority of its workers, so they would starve in a test suite that keeps every core busy.
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


def test_three_nodes_give_the_same_bytes(
    workers: RayCluster, judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    assert ray.cluster_resources()["CPU"] == 3
    train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, executor=workers)
    assert model_bytes(tmp_path / "model") == reference_bytes


def test_killed_node_does_not_change_the_result(
    cluster: Cluster, workers: RayCluster, judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    killer = NodeKiller(cluster, "sums", 8)
    train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, executor=workers, progress=killer)
    assert killer.killed
    assert model_bytes(tmp_path / "model") == reference_bytes
    killer.clean_up()


class NodeKiller:
    """Adds a node with two cores, and kills all of its processes when some tasks of a stage are finished."""

    def __init__(self, cluster: Cluster, stage: str, done: int) -> None:
        self.cluster, self.stage, self.done = cluster, stage, done
        self.node = cluster.add_node(num_cpus=2, object_store_memory=MEMORY)
        self.killed: list[int] = []
        cluster.wait_for_nodes()

    def __call__(self, report: TrainingProgress) -> None:
        if (report.stage, report.level, report.done) == (self.stage, 0, self.done):
            for started in (process for some in self.node.all_processes.values() for process in some):
                os.kill(started.process.pid, signal.SIGKILL)
                self.killed.append(started.process.pid)

    def clean_up(self) -> None:
        self.cluster.remove_node(self.node, allow_graceful=False)


def test_nodes_killed_during_sums_and_trees_do_not_change_kin(
    cluster: Cluster, workers: RayCluster, judged: Path, tmp_path: Path
) -> None:
    # Trees that take a second each, so that some are being trained when the node is killed.
    trees = LambdaMART(n_trees=200, n_leaves=15, min_rows_in_leaf=5, n_threads=1)
    kin = clone(KIN).set_params(settings={**KIN.settings, "n_members": 8}, trees=trees)
    train(judged, tmp_path / "here", kin, block_rows=BLOCK_ROWS)
    killers = [NodeKiller(cluster, "sums", 8), NodeKiller(cluster, "trees", 1)]

    def kill(report: TrainingProgress) -> None:
        for killer in killers:
            killer(report)

    train(judged, tmp_path / "model", kin, block_rows=BLOCK_ROWS, executor=workers, progress=kill)
    assert all(killer.killed for killer in killers)
    assert model_bytes(tmp_path / "model") == model_bytes(tmp_path / "here")
    for killer in killers:
        killer.clean_up()


@pytest.mark.usefixtures("small_shards")
def test_nodes_killed_while_shards_answer_do_not_change_memory(
    cluster: Cluster, workers: RayCluster, remembered: Path, remembering_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    killer = NodeKiller(cluster, "memory", 1)
    settings = {"block_rows": REMEMBERED_ROWS, "progress": killer}
    train(remembered, tmp_path / "model", REMEMBERING, executor=workers, **settings)
    assert killer.killed
    assert model_bytes(tmp_path / "model") == remembering_bytes
    killer.clean_up()


@dataclass
class Deadly:
    """Kills its worker the first `deaths` times that it is called (with `item`, if given)."""

    function: Callable[[Any], Any]
    deaths_folder: Path
    deaths: int
    item: int | None

    def __call__(self, item: Any) -> Any:
        for number in range(self.deaths if self.item in (None, item) else 0):
            try:
                (self.deaths_folder / str(number)).touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return self.function(item)


class DeadlyCluster(RayCluster):
    def __init__(
        self, address: str, deaths_folder: Path, deaths: int, item: int | None = None, **settings: Any
    ) -> None:
        super().__init__(address, **settings)
        self.deaths_folder, self.deaths, self.item = deaths_folder, deaths, item
        deaths_folder.mkdir()

    def map_unordered(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        return super().map_unordered(Deadly(function, self.deaths_folder, self.deaths, self.item), items)


def test_ten_killed_workers_do_not_change_the_result(
    cluster: Cluster, judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    interrupt_after_plan(judged, tmp_path / "model")
    deadly = DeadlyCluster(cluster.address, tmp_path / "deaths_folder", 10)
    done: list[TrainingProgress] = []
    train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, executor=deadly, progress=done.append)
    assert len(list((tmp_path / "deaths_folder").iterdir())) == 10
    assert len(done) == N_TASKS
    assert model_bytes(tmp_path / "model") == reference_bytes


def test_killed_workers_do_not_change_evidence(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    camps = make_two_camps(n_queries=40, n_docs=8)
    named = camps.replace(doc_id=camps.doc_id.astype(str), query_columns={"text": camps.qid.astype(str)})
    logs = [tmp_path / f"{number}.parquet" for number in range(6)]
    for seed, file in enumerate(logs):
        pq.write_table(simulate_clicks(named, named.X[:, 0], n_lists=3, depth=4, seed=seed), file)
    expected = add_logs([[file] for file in logs], tmp_path / "expected", "none")
    monkeypatch.setattr(choices, "_CELLS_OF_SHARE", expected.n_cells // 2)
    deadly = DeadlyCluster(cluster.address, tmp_path / "deaths_folder", 3)
    added = add_logs([[file] for file in logs], tmp_path / "evidence", "none", executor=deadly)
    assert len(list((tmp_path / "deaths_folder").iterdir())) == 3
    for name, values in expected.get_state().items():
        np.testing.assert_array_equal(added.get_state()[name], values)


def test_killed_workers_do_not_change_cells(cluster: Cluster, tmp_path: Path) -> None:
    log, first = tmp_path / "log", FirstPass(slope=(UNIT, UNIT // 3), offset=(0, UNIT // 7))
    for bucket in range(4):
        folder = log / "impressions" / "day=2026-10-01" / f"bucket={bucket}"
        folder.mkdir(parents=True)
        rows = [
            {
                "list": f"{bucket}-{number}",
                "query": f"query {bucket}",
                "client": f"{number % 7}",
                "documents": ["a", "b"],
            }
            for number in range(50)
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / "lists.parquet")
    count_partitions(log, tmp_path / "expected", first)
    deadly = DeadlyCluster(cluster.address, tmp_path / "deaths_folder", 3)
    count_partitions(log, tmp_path / "cells", first, executor=deadly)
    assert len(list((tmp_path / "deaths_folder").iterdir())) == 3
    for partition in partitions(log):
        found, expected = (pq.read_table(tmp_path / name / partition.name) for name in ("cells", "expected"))
        assert found.num_rows == 2
        assert found.equals(expected)


def test_task_that_always_kills_its_worker_raises_and_keeps_the_rest(
    cluster: Cluster, workers: RayCluster, judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    interrupt_after_plan(judged, model)
    deadly = DeadlyCluster(cluster.address, tmp_path / "deaths_folder", 1000, item=20, max_retries=1)
    with pytest.raises(JobError, match=r"^item 20 failed after 1 retries because its worker died each time"):
        train(judged, model, SETTINGS, block_rows=BLOCK_ROWS, executor=deadly)
    assert len(list((tmp_path / "deaths_folder").iterdir())) == 2
    assert not model.exists()
    resume(workers, judged, model, without=20)
    assert model_bytes(model) == reference_bytes


def resume(workers: RayCluster, data: Path, model: Path, without: int) -> None:
    """Finish a job that failed at a block, without repeating the finished ones."""
    kept = summed_blocks(model)
    assert without not in kept
    assert len(kept) >= 4
    done: list[TrainingProgress] = []
    train(data, model, SETTINGS, block_rows=BLOCK_ROWS, executor=workers, progress=done.append)
    assert len(done) <= N_TASKS - len(kept)


def test_corrupt_block_raises_and_can_be_resumed(
    workers: RayCluster, judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    data, model = shutil.copytree(judged, tmp_path / "data"), tmp_path / "model"
    interrupt_after_plan(data, model)
    bad = data / "part-1.parquet"
    message = f"^{re.escape(str(bad))}: row group 9 cannot be read as Parquet"
    with damaged(bad, 9), pytest.raises(FileFormatError, match=message):
        train(data, model, SETTINGS, block_rows=BLOCK_ROWS, executor=workers)
    resume(workers, data, model, without=15)
    assert model_bytes(model) == reference_bytes


DRIVER = """
import sys, time
from kinrank.scale import RayCluster, train
from tests.scale.conftest import BLOCK_ROWS, SETTINGS, summed_blocks
address, data, model = sys.argv[1:]
def hang_after_eight(_):
    if len(summed_blocks(model)) >= 8:
        print("hangs", flush=True)
        time.sleep(3600)
train(data, model, SETTINGS, block_rows=BLOCK_ROWS, executor=RayCluster(address), progress=hang_after_eight)
"""


def test_job_resumes_after_its_driver_is_killed(
    cluster: Cluster, workers: RayCluster, judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", DRIVER, cluster.address, str(judged), str(tmp_path / "model")]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert "hangs\n" in driver.stdout, "the driver exited"
        driver.kill()
    assert not (tmp_path / "model").exists()
    done: list[TrainingProgress] = []
    train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, executor=workers, progress=done.append)
    assert model_bytes(tmp_path / "model") == reference_bytes
    assert len(done) <= N_TASKS - 8


def test_rankers_fitted_on_the_cluster_are_the_same(workers: RayCluster, queries: QuerySet) -> None:
    train_set, test = queries[:300], queries[600:]
    rankers = [
        KnnRanker(30, mode="offline-2", reference="reference"),
        ClusterRanker(mode="select", n_clusters=5, learner="rankrls", reference="reference", relevant_from=2),
    ]
    for ranker in rankers:
        expected = ranker.fit(train_set).predict(test)
        with use_executor(workers):
            np.testing.assert_array_equal(ranker.fit(train_set).predict(test), expected)
    online = KnnRanker(30).fit(train_set)
    with use_executor(workers):
        choice = choose_neighbors(online, test, [10, 30])
    assert choice.quality == choose_neighbors(online, test, [10, 30]).quality


@pytest.mark.parametrize("given", [True, False])
def test_open_session_is_used_and_left_open(cluster: Cluster, given: bool) -> None:
    with RayCluster(cluster.address) if given else RayCluster() as workers:
        assert list(workers.map_unordered(abs, [-1])) == [(0, 1)]
    assert ray.is_initialized()
    assert ray.get_runtime_context().gcs_address == cluster.address


@pytest.mark.parametrize("address", ["local", "127.0.0.1:1"])
def test_another_cluster_than_the_open_session_raises(cluster: Cluster, address: str) -> None:
    message = f"^cannot connect to '{address}' while a session is open at '{cluster.address}': "
    with pytest.raises(ParameterError, match=message):
        list(RayCluster(address).map_unordered(abs, [-1]))
    with pytest.raises(ParameterError, match=message):
        RayCluster(address).__enter__()


def test_unreachable_cluster_raises() -> None:
    code = "from kinrank.scale import RayCluster; RayCluster('127.0.0.1:1').__enter__()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "no Ray cluster at '127.0.0.1:1'" in done.stderr
