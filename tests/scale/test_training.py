"""Training from blocks: reproducible bytes, resuming, and errors that name the block."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

from kinrank import CellRanker, QuerySet
from kinrank.errors import DataError, FileFormatError, JobError, ParameterError
from kinrank.rankers.cells import _training as cell_training
from kinrank.registry import import_extra
from kinrank.scale import Processes, TrainingProgress, train
from tests.scale.conftest import (
    BEFORE,
    BLOCK_ROWS,
    N_TASKS,
    SETTINGS,
    ChaoticExecutor,
    damaged,
    interrupt_after_plan,
    model_bytes,
    summed_blocks,
)


def test_one_block_gives_the_bytes_of_fit(queries: QuerySet, judged: Path, tmp_path: Path) -> None:
    CellRanker(**SETTINGS.get_params(deep=False)).fit(queries[:600]).save(tmp_path / "fitted")
    train(judged, tmp_path / "trained", SETTINGS)
    assert model_bytes(tmp_path / "trained") == model_bytes(tmp_path / "fitted")
    queries[:600].save(tmp_path / "folder")
    train(tmp_path / "folder", tmp_path / "mapped", SETTINGS)
    assert model_bytes(tmp_path / "mapped") == model_bytes(tmp_path / "fitted")


def test_many_blocks_give_the_model_of_fit(
    queries: QuerySet, judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    reports: list[TrainingProgress] = []
    trained = train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, progress=reports.append)
    assert model_bytes(tmp_path / "model") == reference_bytes
    fitted = CellRanker(**SETTINGS.get_params(deep=False)).fit(queries[:600])
    np.testing.assert_allclose(trained.weights(queries[600:]), fitted.weights(queries[600:]), atol=1e-6)
    assert trained.model_.training_set.counts.sum() == 600
    assert [report.level for report in reports] == sorted(report.level for report in reports)
    assert sum(report.n_rows for report in reports) == 6000
    assert {report.total for report in reports if report.level == 0} == {33}
    assert max(report.level for report in reports) == 2
    assert not (tmp_path / "model.job").exists()


@pytest.mark.parametrize("seed", range(4))
def test_task_order_and_repetition_do_not_change_bytes(
    seed: int, judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, executor=ChaoticExecutor(seed))
    assert model_bytes(tmp_path / "model") == reference_bytes


@pytest.mark.parametrize("fails_after", [0, 3, 33, 34, 35, 41, 69, 70])
def test_interrupted_job_resumes(
    fails_after: int, judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    settings = {"block_rows": BLOCK_ROWS, "job": tmp_path / "job"}
    with pytest.raises(KeyboardInterrupt):
        train(judged, tmp_path / "model", SETTINGS, executor=ChaoticExecutor(1, fails_after), **settings)
    done: list[TrainingProgress] = []
    train(judged, tmp_path / "model", SETTINGS, progress=done.append, **settings)
    assert model_bytes(tmp_path / "model") == reference_bytes
    assert len(done) == N_TASKS - max(0, fails_after - BEFORE)


def test_damaged_sums_are_computed_again(judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path) -> None:
    settings = {"block_rows": BLOCK_ROWS, "job": tmp_path / "job"}
    with pytest.raises(KeyboardInterrupt):
        train(judged, tmp_path / "model", SETTINGS, executor=ChaoticExecutor(2, BEFORE + 33 + 1), **settings)
    sums = sorted((tmp_path / "job").glob("sums-0-*.npz"))
    assert len(sums) == 33
    content = bytearray(sums[5].read_bytes())
    content[len(content) // 2] ^= 0xFF
    sums[5].write_bytes(content)
    sums[7].write_bytes(b"")
    sums[9].unlink()
    train(judged, tmp_path / "model", SETTINGS, **settings)
    assert model_bytes(tmp_path / "model") == reference_bytes


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 and then nothing"])
@pytest.mark.parametrize("name", ["plan", "ids-4"])
def test_damaged_plan_or_hashes_are_computed_again(
    name: str, damage: bytes, judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    settings = {"block_rows": BLOCK_ROWS, "job": tmp_path / "job"}
    with pytest.raises(KeyboardInterrupt):
        train(judged, tmp_path / "model", SETTINGS, executor=ChaoticExecutor(2, BEFORE + 33 + 1), **settings)
    (tmp_path / "job" / f"{name}.npz").write_bytes(damage)
    done: list[TrainingProgress] = []
    train(judged, tmp_path / "model", SETTINGS, progress=done.append, **settings)
    assert model_bytes(tmp_path / "model") == reference_bytes
    assert {report.level for report in done} == {1, 2}  # no block is summed again


def test_folder_with_only_hidden_files_is_accepted(
    judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / ".job.json.somewhere.123").write_text("{")  # left by a job that was killed at the start
    (job / ".nfs0001").touch()
    train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, job=job)
    assert model_bytes(tmp_path / "model") == reference_bytes


@pytest.mark.slow
def test_processes_give_the_same_bytes(judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path) -> None:
    train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, executor=Processes(2))
    assert model_bytes(tmp_path / "model") == reference_bytes


def test_corrupt_block_raises_and_keeps_the_rest(
    judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    data, model = shutil.copytree(judged, tmp_path / "data"), tmp_path / "model"
    interrupt_after_plan(data, model)
    bad = data / "part-1.parquet"
    message = f"^{re.escape(str(bad))}: row group 9 cannot be read as Parquet"
    with damaged(bad, 9), pytest.raises(FileFormatError, match=message):
        train(data, model, SETTINGS, block_rows=BLOCK_ROWS)
    assert not model.exists()
    assert summed_blocks(model) == set(range(15))  # 11 of the first file, 4 of the second
    done: list[TrainingProgress] = []
    train(data, model, SETTINGS, block_rows=BLOCK_ROWS, progress=done.append)
    assert len(done) == N_TASKS - 15
    assert model_bytes(model) == reference_bytes


@pytest.mark.parametrize(("sample_rows", "kept"), [(7000, 0), (2000, 6)], ids=["in the sample", "outside the sample"])
def test_error_in_a_row_names_its_block(
    sample_rows: int, kept: int, queries: QuerySet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_training, "SAMPLE_ROWS", sample_rows)
    X = queries.X.copy()
    X[3456, 2] = np.nan
    file = tmp_path / "judged.parquet"
    pq.write_table(queries.replace(X=X).to_table(), file, row_group_size=500)
    message = "row groups 6 to 6: feature 'f3' is missing (NaN) in candidate 7 of query 345: pass missing="
    with pytest.raises(DataError, match=f"^{re.escape(f'{file}, {message}')}"):
        train(file, tmp_path / "model", clone(SETTINGS).set_params(missing="error"), block_rows=500)
    assert summed_blocks(tmp_path / "model") == set(range(kept))


@pytest.mark.parametrize("text", [True, False])
def test_query_in_two_blocks_raises(
    text: bool, queries: QuerySet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_training, "SAMPLE_ROWS", 2000)  # a larger sample would detect it earlier
    ids = np.array([f"q{i}" for i in range(len(queries))]) if text else queries.qid.copy()
    table = queries.replace(qid=ids).to_table()
    rows = np.r_[0:3000, 4000:4010, 3000:4000, 4010:5000]
    again = pa.concat_tables([table.take(rows), table.slice(15, 5), table.slice(5000)])
    pq.write_table(again, tmp_path / "judged.parquet", row_group_size=500)
    name = "'q1'" if text else "1"
    with pytest.raises(
        DataError, match=f"^query {name} is in two places, .*row groups 0 to 0 and .*row groups 10 to 10"
    ):
        train(tmp_path / "judged.parquet", tmp_path / "model", SETTINGS, block_rows=500)


def test_bad_arguments_raise(judged: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        train(tmp_path / "nowhere", tmp_path / "model", SETTINGS)
    with pytest.raises(ParameterError, match="n_workers must be at least 1, got 0"):
        Processes(0)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "letter.txt").write_text("dear")
    with pytest.raises(JobError, match=r"is not empty and has no job\.json of a job"):
        train(judged, tmp_path / "model", SETTINGS, job=tmp_path / "job")


def test_remote_model_path_raises(judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=r"^model must be a local folder, got 's3://bucket/model'"):
        train(judged, "s3://bucket/model", SETTINGS, job=tmp_path / "job")
    assert not list(tmp_path.iterdir())


def test_folder_of_another_job_raises(judged: Path, tmp_path: Path) -> None:
    settings = {"block_rows": BLOCK_ROWS, "job": tmp_path / "job"}
    with pytest.raises(KeyboardInterrupt):
        train(judged, tmp_path / "model", SETTINGS, executor=ChaoticExecutor(1, 5), **settings)
    with pytest.raises(JobError, match=r"belongs to another job \(different ranker\)"):
        train(judged, tmp_path / "model", CellRanker(60, n_cells=13), **settings)


def test_data_and_job_can_be_on_another_file_system(
    judged: Path, reference_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    memory = import_extra("fsspec", "ray").filesystem("memory")
    for file in judged.iterdir():
        memory.pipe(f"/bucket/judged/{file.name}", file.read_bytes())
    settings = {"block_rows": BLOCK_ROWS, "job": "memory://bucket/job"}
    with pytest.raises(KeyboardInterrupt):
        train("memory://bucket/judged", tmp_path / "model", SETTINGS, executor=ChaoticExecutor(1, 50), **settings)
    assert memory.exists("/bucket/job/job.json")
    done: list[TrainingProgress] = []
    train("memory://bucket/judged", tmp_path / "model", SETTINGS, progress=done.append, **settings)
    assert model_bytes(tmp_path / "model") == reference_bytes
    assert len(done) == N_TASKS - (50 - BEFORE)
    assert not memory.exists("/bucket/job")
