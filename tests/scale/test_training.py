"""Training from blocks: the same model as in memory, the same bytes whoever works, restarts, errors that say where."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.exceptions import NotFittedError

import kinrank
from kinrank import CellRanker, QuerySet
from kinrank.errors import DataError, FileFormatError, JobError, ParameterError
from kinrank.rankers.cells import training as cell_training
from kinrank.registry import import_extra
from kinrank.scale import Processes, TrainingProgress, train
from tests.scale.conftest import (
    BEFORE,
    BLOCK_ROWS,
    PIECES,
    SETTINGS,
    Chaotic,
    blocks_kept,
    damaged,
    model_bytes,
    plan_alone,
)


def test_one_block_gives_the_bytes_of_fitting_in_memory(queries: QuerySet, judged: Path, tmp_path: Path) -> None:
    CellRanker(**SETTINGS.get_params(deep=False)).fit(queries[:600]).save(tmp_path / "fitted")
    train(judged, tmp_path / "trained", SETTINGS)
    assert model_bytes(tmp_path / "trained") == model_bytes(tmp_path / "fitted")
    queries[:600].save(tmp_path / "folder")
    train(tmp_path / "folder", tmp_path / "mapped", SETTINGS)
    assert model_bytes(tmp_path / "mapped") == model_bytes(tmp_path / "fitted")


def test_many_blocks_give_the_model_of_memory(
    queries: QuerySet, judged: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    batches: list[TrainingProgress] = []
    trained = train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, progress=batches.append)
    assert model_bytes(tmp_path / "model") == undisturbed
    fitted = CellRanker(**SETTINGS.get_params(deep=False)).fit(queries[:600])
    np.testing.assert_allclose(trained.weights(queries[600:]), fitted.weights(queries[600:]), atol=1e-6)
    assert trained.memory_.counts.sum() == 600
    assert [batch.level for batch in batches] == sorted(batch.level for batch in batches)
    assert sum(batch.n_rows for batch in batches) == 6000
    assert {batch.total for batch in batches if batch.level == 0} == {33}
    assert max(batch.level for batch in batches) == 2
    assert not (tmp_path / "model.job").exists()


@pytest.mark.parametrize("seed", range(4))
def test_order_and_repetition_change_no_byte(
    seed: int, judged: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, executor=Chaotic(seed))
    assert model_bytes(tmp_path / "model") == undisturbed


@pytest.mark.parametrize("dies_after", [0, 3, 33, 34, 35, 41, 69, 70])
def test_a_job_goes_on_where_it_was(
    dies_after: int, judged: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    settings = {"block_rows": BLOCK_ROWS, "job": tmp_path / "job"}
    with pytest.raises(KeyboardInterrupt):
        train(judged, tmp_path / "model", SETTINGS, executor=Chaotic(1, dies_after), **settings)
    done: list[TrainingProgress] = []
    train(judged, tmp_path / "model", SETTINGS, progress=done.append, **settings)
    assert model_bytes(tmp_path / "model") == undisturbed
    assert len(done) == PIECES - max(0, dies_after - BEFORE)


def test_a_damaged_piece_is_made_again(judged: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    settings = {"block_rows": BLOCK_ROWS, "job": tmp_path / "job"}
    with pytest.raises(KeyboardInterrupt):
        train(judged, tmp_path / "model", SETTINGS, executor=Chaotic(2, BEFORE + 33 + 1), **settings)
    pieces = sorted((tmp_path / "job").glob("sums-0-*.npz"))
    assert len(pieces) == 33
    damaged = bytearray(pieces[5].read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    pieces[5].write_bytes(damaged)
    pieces[7].write_bytes(b"")
    pieces[9].unlink()
    train(judged, tmp_path / "model", SETTINGS, **settings)
    assert model_bytes(tmp_path / "model") == undisturbed


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 and then nothing"])
@pytest.mark.parametrize("name", ["plan", "ids-4"])
def test_a_damaged_plan_or_list_of_ids_is_made_again(
    name: str, damage: bytes, judged: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    settings = {"block_rows": BLOCK_ROWS, "job": tmp_path / "job"}
    with pytest.raises(KeyboardInterrupt):
        train(judged, tmp_path / "model", SETTINGS, executor=Chaotic(2, BEFORE + 33 + 1), **settings)
    (tmp_path / "job" / f"{name}.npz").write_bytes(damage)
    done: list[TrainingProgress] = []
    train(judged, tmp_path / "model", SETTINGS, progress=done.append, **settings)
    assert model_bytes(tmp_path / "model") == undisturbed
    assert {batch.level for batch in done} == {1, 2}  # no block is summed again


def test_a_folder_with_nothing_but_hidden_files_is_taken(
    judged: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / ".job.json.somewhere.123").write_text("{")  # left by a job that was killed while it began
    (job / ".nfs0001").touch()
    train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, job=job)
    assert model_bytes(tmp_path / "model") == undisturbed


@pytest.mark.slow
def test_processes_change_no_byte(judged: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    train(judged, tmp_path / "model", SETTINGS, block_rows=BLOCK_ROWS, executor=Processes(2))
    assert model_bytes(tmp_path / "model") == undisturbed


def test_models_trained_alike_merge(queries: QuerySet, tmp_path: Path) -> None:
    queries[:300].save(tmp_path / "first")
    queries[300:600].save(tmp_path / "second")
    first = train(tmp_path / "first", tmp_path / "a", SETTINGS)
    second = train(tmp_path / "second", tmp_path / "b", first, alike=True)
    union = first.fit_alike(queries[:600])
    np.testing.assert_allclose(first.merge(second).weights(queries[600:]), union.weights(queries[600:]), atol=1e-6)
    assert isinstance(kinrank.load(tmp_path / "b"), CellRanker)


def test_other_features_are_not_trained_alike(queries: QuerySet, tmp_path: Path) -> None:
    fitted = CellRanker(**SETTINGS.get_params(deep=False)).fit(queries[:300])
    names = [*queries.feature_names[1::-1], *queries.feature_names[2:]]
    queries[300:600].replace(feature_names=names).save(tmp_path / "turned")
    with pytest.raises(DataError, match=r"^the features are in another order than in fit: expected"):
        train(tmp_path / "turned", tmp_path / "model", fitted, alike=True)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        train(tmp_path / "turned", tmp_path / "model", SETTINGS, alike=True)
    assert not (tmp_path / "model.job").exists()


def test_a_corrupt_block_is_named_and_the_rest_is_kept(
    judged: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    data, model = shutil.copytree(judged, tmp_path / "data"), tmp_path / "model"
    plan_alone(data, model)
    bad = data / "part-1.parquet"
    complaint = f"^{re.escape(str(bad))}: row group 9 cannot be read as Parquet"
    with damaged(bad, 9), pytest.raises(FileFormatError, match=complaint):
        train(data, model, SETTINGS, block_rows=BLOCK_ROWS)
    assert not model.exists()
    assert blocks_kept(model) == set(range(15))  # 11 of the first file, 4 of the second
    done: list[TrainingProgress] = []
    train(data, model, SETTINGS, block_rows=BLOCK_ROWS, progress=done.append)
    assert len(done) == PIECES - 15
    assert model_bytes(model) == undisturbed


@pytest.mark.parametrize(("sample_rows", "kept"), [(7000, 0), (2000, 6)], ids=["in the sample", "beside the sample"])
def test_a_bad_row_is_named_with_its_block(
    sample_rows: int, kept: int, queries: QuerySet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_training, "SAMPLE_ROWS", sample_rows)
    X = queries.X.copy()
    X[3456, 2] = np.nan
    file = tmp_path / "judged.parquet"
    pq.write_table(queries.replace(X=X).to_table(), file, row_group_size=500)
    complaint = "row groups 6 to 6: feature 'f3' is missing (NaN) in candidate 7 of query 345: pass missing="
    with pytest.raises(DataError, match=f"^{re.escape(f'{file}, {complaint}')}"):
        train(file, tmp_path / "model", SETTINGS, block_rows=500)
    assert blocks_kept(tmp_path / "model") == set(range(kept))


@pytest.mark.parametrize("text", [True, False])
def test_a_query_in_two_blocks_is_refused(
    text: bool, queries: QuerySet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_training, "SAMPLE_ROWS", 2000)  # a sample of everything would notice by itself
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


def test_what_makes_no_sense_is_refused_before_any_work(judged: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        train(tmp_path / "nowhere", tmp_path / "model", SETTINGS)
    with pytest.raises(ParameterError, match="n_workers must be at least 1, got 0"):
        Processes(0)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "letter.txt").write_text("dear")
    with pytest.raises(JobError, match=r"is not empty and has no job\.json of a job"):
        train(judged, tmp_path / "model", SETTINGS, job=tmp_path / "job")


def test_a_model_is_written_here_and_nowhere_else(
    judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=r"^model must be a folder of this machine, .* got 's3://bucket/model'"):
        train(judged, "s3://bucket/model", SETTINGS, job=tmp_path / "job")
    assert not list(tmp_path.iterdir())


def test_the_folder_of_another_job_is_refused(judged: Path, tmp_path: Path) -> None:
    settings = {"block_rows": BLOCK_ROWS, "job": tmp_path / "job"}
    with pytest.raises(KeyboardInterrupt):
        train(judged, tmp_path / "model", SETTINGS, executor=Chaotic(1, 5), **settings)
    with pytest.raises(JobError, match=r"belongs to another job \(different ranker\)"):
        train(judged, tmp_path / "model", CellRanker(60, n_cells=13), **settings)


def test_data_and_job_on_another_file_system(judged: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    memory = import_extra("fsspec", "ray").filesystem("memory")
    for file in judged.iterdir():
        memory.pipe(f"/bucket/judged/{file.name}", file.read_bytes())
    settings = {"block_rows": BLOCK_ROWS, "job": "memory://bucket/job"}
    with pytest.raises(KeyboardInterrupt):
        train("memory://bucket/judged", tmp_path / "model", SETTINGS, executor=Chaotic(1, 50), **settings)
    assert memory.exists("/bucket/job/job.json")
    done: list[TrainingProgress] = []
    train("memory://bucket/judged", tmp_path / "model", SETTINGS, progress=done.append, **settings)
    assert model_bytes(tmp_path / "model") == undisturbed
    assert len(done) == PIECES - (50 - BEFORE)
    assert not memory.exists("/bucket/job")
