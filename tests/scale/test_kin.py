"""Training KinRanker from blocks: the model of `fit`, the same bytes whatever fails, resuming."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

import kinrank
from kinrank import KinRanker, QuerySet
from kinrank.errors import DataError, JobError, ParameterError
from kinrank.kin.encoders.ngrams import NgramEncoder
from kinrank.scale import Processes, TrainingProgress, train
from tests.scale.conftest import BEFORE, BLOCK_ROWS, KIN, N_KIN, N_TASKS, TREES, ChaoticExecutor, model_bytes

ALL = clone(KIN).set_params(settings={**KIN.settings, "tree_queries": 1000})  # a sample is taken of each row group


def test_one_block_gives_the_model_of_fit(queries: QuerySet, judged: Path, tmp_path: Path) -> None:
    fitted = clone(ALL).fit(queries[:600]).get_state()
    train(judged, tmp_path / "trained", ALL)
    for name, array in kinrank.load(tmp_path / "trained").get_state().items():
        np.testing.assert_array_equal(array, fitted[name], err_msg=name)


def test_many_blocks_report_all_stages(
    queries: QuerySet, judged: Path, kin_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    reports: list[TrainingProgress] = []
    trained = train(judged, tmp_path / "model", KIN, block_rows=BLOCK_ROWS, progress=reports.append)
    assert model_bytes(tmp_path / "model") == kin_bytes
    assert len(reports) == N_KIN
    assert [each.stage for each in reports] == ["sums"] * N_TASKS + ["tables"] * 33 + ["trees"] * 2
    assert [each.done for each in reports[-2:]] == [1, 2]
    assert all(each.seconds > 0 and each.peak_mb > 0 for each in reports)
    assert trained.local_.model_.training_set.counts.sum() == 600
    assert trained.score(queries[600:]) > 0.6
    assert not (tmp_path / "model.job").exists()


def test_task_order_and_repetition_do_not_change_bytes(
    judged: Path, kin_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    train(judged, tmp_path / "model", KIN, block_rows=BLOCK_ROWS, executor=ChaoticExecutor(1))
    assert model_bytes(tmp_path / "model") == kin_bytes


@pytest.mark.parametrize("fails_after", [20, N_TASKS + 10, N_TASKS + 34])
def test_interrupted_job_resumes(fails_after: int, judged: Path, kin_bytes: dict[str, bytes], tmp_path: Path) -> None:
    settings = {"block_rows": BLOCK_ROWS, "job": tmp_path / "job"}
    with pytest.raises(KeyboardInterrupt):
        train(judged, tmp_path / "model", KIN, executor=ChaoticExecutor(1, BEFORE + fails_after), **settings)
    done: list[TrainingProgress] = []
    train(judged, tmp_path / "model", KIN, progress=done.append, **settings)
    assert model_bytes(tmp_path / "model") == kin_bytes
    assert len(done) == N_KIN - fails_after


def test_damaged_parts_are_computed_again(judged: Path, kin_bytes: dict[str, bytes], tmp_path: Path) -> None:
    settings = {"block_rows": BLOCK_ROWS, "job": tmp_path / "job"}
    with pytest.raises(KeyboardInterrupt):
        train(judged, tmp_path / "model", KIN, executor=ChaoticExecutor(1, BEFORE + N_TASKS + 34), **settings)
    (tmp_path / "job" / "queries-5.npz").write_bytes(b"")
    (tmp_path / "job" / "queries-7.npz").unlink()
    (tmp_path / "job" / "tables-0-3.npz").write_bytes(b"PK\x03\x04 and then nothing")
    (trees,) = (tmp_path / "job").glob("trees-0-*.npz")
    trees.write_bytes(b"")
    train(judged, tmp_path / "model", KIN, **settings)
    assert model_bytes(tmp_path / "model") == kin_bytes


@pytest.mark.slow
def test_processes_give_the_same_bytes(judged: Path, kin_bytes: dict[str, bytes], tmp_path: Path) -> None:
    train(judged, tmp_path / "model", KIN, block_rows=BLOCK_ROWS, executor=Processes(2))
    assert model_bytes(tmp_path / "model") == kin_bytes


def test_cells_and_sample_follow_from_the_number_of_queries(queries: QuerySet, tmp_path: Path) -> None:
    queries[:600].save(tmp_path / "judged")
    trained = train(
        tmp_path / "judged", tmp_path / "model", KinRanker(trees=TREES, settings={"n_members": 2, "n_repeats": 1})
    )
    assert len(trained.local_.qid_) == 60
    assert kinrank.load(tmp_path / "model").settings["n_cells"] == 60


def test_texts_are_encoded_block_by_block(queries: QuerySet, tmp_path: Path) -> None:
    texts = np.array([f"{'blue' if query % 2 else 'red'} shoes {query}" for query in range(300)])
    some = queries[:300].replace(query_columns={"text": texts})
    pq.write_table(some.to_table(), tmp_path / "judged.parquet", row_group_size=500)
    trained = train(tmp_path / "judged.parquet", tmp_path / "model", ALL)
    fitted = clone(ALL).fit(some)
    np.testing.assert_allclose(trained.predict(some), fitted.predict(some), atol=1e-6)
    with pytest.raises(DataError, match="these queries have none: pass query_text="):
        trained.predict(queries[300:])


def test_unknown_group_column_raises_before_the_work(judged: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="group 'movie' is not a query column"):
        train(judged, tmp_path / "model", KinRanker(group_column="movie"))


def test_job_with_another_query_log_is_another_job(queries: QuerySet, tmp_path: Path) -> None:
    queries[:300].save(tmp_path / "judged")
    first, second = (
        KinRanker(encoder=NgramEncoder(log=(text,)), trees=TREES, settings={"n_members": 2}) for text in ("a b", "c d")
    )
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "judged", tmp_path / "model", first, executor=ChaoticExecutor(1, fails_after=0))
    with pytest.raises(JobError, match=r"belongs to another job \(different query_log\)"):
        train(tmp_path / "judged", tmp_path / "model", second)
