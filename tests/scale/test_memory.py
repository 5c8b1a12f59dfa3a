"""Training KinRanker with memory from blocks: the parts and the model of `fit`, the same bytes whatever fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import kinrank
from kinrank import KinRanker, QuerySet
from kinrank.errors import DataError
from kinrank.memory.evidence import Evidence
from kinrank.scale import Processes, TrainingProgress, train
from tests.scale.conftest import REMEMBERED_ROWS, REMEMBERING, ChaoticExecutor, model_bytes

ALL = clone(REMEMBERING).set_params(settings={**REMEMBERING.settings, "tree_queries": 10_000})
N_SHARDS = 4


pytestmark = pytest.mark.usefixtures("small_shards")


def assert_same_model(trained: KinRanker, fitted: KinRanker) -> None:
    expected = fitted.get_state()
    for name, array in trained.get_state().items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.mark.parametrize("split", [{}, {"group_column": "topic"}, {"time_column": "day"}])
def test_one_block_gives_the_model_of_fit(split: dict[str, str], known: QuerySet, tmp_path: Path) -> None:
    topic = np.array([" ".join(text.split()[:2]) for text in known.query_columns["text"]])
    some = known[:400].replace(query_columns={**known[:400].query_columns, "topic": topic[:400]})
    some = some.replace(query_columns={name: each for name, each in some.query_columns.items() if name != "vector"})
    some.save(tmp_path / "judged")
    settings = clone(ALL).set_params(**split)
    trained, fitted = train(tmp_path / "judged", tmp_path / "model", settings), clone(settings).fit(some)
    assert fitted.memory_ is not None
    assert_same_model(trained, fitted)
    assert_same_model(kinrank.load(tmp_path / "model"), fitted)
    without_time = [[(record.part, record.kept, record.gain) for record in each.parts_] for each in (trained, fitted)]
    assert without_time[0] == without_time[1]
    assert [line.partition(",")[0] for line in trained.remarks()] == [
        line.partition(",")[0] for line in fitted.remarks()
    ]


def test_trees_of_a_sample_see_the_memory_of_all_queries(known: QuerySet, tmp_path: Path) -> None:
    some = known[:400].replace(query_columns={"text": known[:400].query_columns["text"]})
    some.save(tmp_path / "judged")
    trained, fitted = train(tmp_path / "judged", tmp_path / "model", REMEMBERING), clone(REMEMBERING).fit(some)
    assert len(trained.memory_.memory) == 400
    assert_same_model(trained, fitted)


def test_evidence_counts_as_in_a_fit(known: QuerySet, tmp_path: Path) -> None:
    some = known[:400].replace(query_columns={"text": known[:400].query_columns["text"]})
    some.save(tmp_path / "judged")
    texts = np.repeat(some.query_columns["text"], some.sizes)
    evidence = Evidence.from_cells(texts, some.doc_id, np.full(some.n_rows, 9.0), 6.0 * some.grades)
    evidence.save(tmp_path / "evidence")
    settings = clone(REMEMBERING).set_params(evidence=str(tmp_path / "evidence"))
    trained, fitted = train(tmp_path / "judged", tmp_path / "model", settings), clone(settings).fit(some)
    assert_same_model(trained, fitted)
    np.testing.assert_array_equal(kinrank.load(tmp_path / "model").predict(some), fitted.predict(some))
    some.replace(doc_id=None).save(tmp_path / "nameless")
    with pytest.raises(DataError, match="or leave out the evidence"):
        train(tmp_path / "nameless", tmp_path / "other", settings)


def test_kin_are_found_by_vectors_too(remembered: Path, known: QuerySet, tmp_path: Path) -> None:
    trained = train(remembered, tmp_path / "model", ALL, block_rows=REMEMBERED_ROWS)
    fitted = clone(ALL).fit(known[:400])
    assert [record.part for record in trained.parts_] == [record.part for record in fitted.parts_]
    assert "kin by meaning" in {record.part for record in trained.parts_}
    assert trained.score(known[400:]) == pytest.approx(fitted.score(known[400:]), abs=0.02)


def test_memory_keeps_a_sample_of_too_many_queries(remembered: Path, known: QuerySet, tmp_path: Path) -> None:
    trained = train(remembered, tmp_path / "model", REMEMBERING, block_rows=REMEMBERED_ROWS, most_known=250)
    assert 250 <= len(trained.memory_.memory) < 400
    assert trained.score(known[400:]) > 0.7


def test_reports_and_bytes_do_not_depend_on_order_and_repetition(
    remembered: Path, remembering_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    reports: list[TrainingProgress] = []
    settings = {"block_rows": REMEMBERED_ROWS, "progress": reports.append}
    train(remembered, tmp_path / "model", REMEMBERING, executor=ChaoticExecutor(2), **settings)
    assert model_bytes(tmp_path / "model") == remembering_bytes
    assert [each.done for each in reports if each.stage == "memory"] == list(range(1, N_SHARDS + 2))


@pytest.mark.parametrize("finished", [1, 3])
def test_an_interrupted_job_goes_on(
    finished: int, remembered: Path, remembering_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    done: list[TrainingProgress] = []

    def stop(report: TrainingProgress) -> None:
        done.append(report)
        if [each.stage for each in done].count("memory") == finished:
            raise KeyboardInterrupt

    settings = {"block_rows": REMEMBERED_ROWS, "job": tmp_path / "job"}
    with pytest.raises(KeyboardInterrupt):
        train(remembered, tmp_path / "model", REMEMBERING, executor=ChaoticExecutor(1), progress=stop, **settings)
    names = {file.name for file in (tmp_path / "job").iterdir()}
    answers = sorted(name for name in names if name.startswith(("answers-", "parts")))
    assert len(answers) >= finished
    (tmp_path / "job" / answers[0]).write_bytes(b"PK\x03\x04 and then nothing")
    (tmp_path / "job" / "known-1.npz").unlink()
    for shard in (tmp_path / "job").glob("shard-*"):
        shard.write_bytes(b"")
    train(remembered, tmp_path / "model", REMEMBERING, **settings)
    assert model_bytes(tmp_path / "model") == remembering_bytes


@pytest.mark.slow
def test_processes_give_the_same_bytes(remembered: Path, remembering_bytes: dict[str, bytes], tmp_path: Path) -> None:
    train(remembered, tmp_path / "model", REMEMBERING, block_rows=REMEMBERED_ROWS, executor=Processes(2))
    assert model_bytes(tmp_path / "model") == remembering_bytes
