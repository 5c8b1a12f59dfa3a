from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinrank import QuerySet, read_parquet
from kinrank.engines import _logger as logger
from kinrank.engines._logger import CandidateSource, FeatureLogger, LogCounts, ResumableLog
from kinrank.engines.base import Hits, LoggedFeatures, RetryingPool
from kinrank.errors import DataError, EngineBusyError, EngineRefusedError, EngineTimeoutError, JobError, ParameterError
from kinrank.serve._search import Searcher
from tests.engines.toy import ToyEngine, toy_judgments
from tests.processes import wait_until


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logger, "QUERIES_PER_PART", 2)


def write(
    out: Path,
    engine: ToyEngine,
    judged: QuerySet | None = None,
    candidates: CandidateSource = "judged",
    retry_for: float = 5.0,
) -> LogCounts:
    log = ResumableLog(out, judged or toy_judgments(), FeatureLogger(engine, candidates=candidates, top=4))
    return log.write(RetryingPool(3, retry_for=retry_for, first_pause=0.001), lambda _: None)


@pytest.mark.parametrize("name", ["logged.parquet", "logged"])
def test_judged_documents_are_logged_and_missing_values_counted(tmp_path: Path, name: str):
    counts = write(tmp_path / name, ToyEngine())
    assert counts == LogCounts(7, 14, absent_documents=7, missing={"number": 0, "even": 7})
    logged = read_parquet(tmp_path / name) if name.endswith("parquet") else QuerySet.open(tmp_path / name)
    assert logged.qid.tolist() == [f"q{i}" for i in range(7)]
    assert logged.doc_id is not None
    assert logged.doc_id.tolist() == ["d0", "d3"] * 7
    assert logged.grades.tolist() == [1, 0] * 7
    np.testing.assert_array_equal(logged.X, [[0, 1], [3, np.nan]] * 7)
    assert logged.query_columns["text"].tolist() == [f"text {i}" for i in range(7)]
    assert not list(tmp_path.glob("*.parts"))


def test_top_documents_of_the_engine_are_candidates(tmp_path: Path):
    top = write(tmp_path / "top.parquet", ToyEngine(), candidates="top")
    assert (top.documents, top.unfound_documents, top.unjudged_documents) == (28, 7, 14)
    first = read_parquet(tmp_path / "top.parquet")[0]
    assert first.judged.tolist() == [True, False, False, True]
    assert first.grades.tolist() == [1, 0, 0, 0]


def test_default_logs_what_a_service_ranks():
    settings = signature(Searcher.search).parameters
    logger = FeatureLogger(ToyEngine())
    assert (logger.candidates, logger.top) == ("top", settings["window"].default)


@pytest.mark.parametrize("weight", [None, 0.0, 0.2])
def test_unjudged_hits_of_weighted_judgments_get_a_small_weight(tmp_path: Path, weight: float | None):
    weighted = toy_judgments().replace(sample_weight=np.full(21, 0.5, dtype=np.float32))
    given = {} if weight is None else {"unjudged_weight": weight}
    logger = FeatureLogger(ToyEngine(), top=4, **given)
    ResumableLog(tmp_path / "top.parquet", weighted, logger).write(RetryingPool(1), lambda _: None)
    first = read_parquet(tmp_path / "top.parquet")[0]
    small = 0.05 if weight is None else weight
    assert first.row_weights.tolist() == pytest.approx([0.5, small, small, 0.5])
    assert len(first.only_weighted().X) == (2 if weight == 0.0 else 4)


def test_judgments_without_weights_give_every_hit_the_same(tmp_path: Path):
    write(tmp_path / "top.parquet", ToyEngine(), candidates="top")
    assert read_parquet(tmp_path / "top.parquet").sample_weight is None


def test_log_with_another_weight_of_unjudged_hits_is_another_log(tmp_path: Path):
    out = tmp_path / "logged.parquet"
    with pytest.raises(EngineRefusedError, match="gone"):
        write(out, ToyEngine({"text 5": [EngineRefusedError("gone")]}), candidates="top")
    logger = FeatureLogger(ToyEngine(), top=4, unjudged_weight=0.2)
    with pytest.raises(JobError, match=r"another log \(different settings\)"):
        ResumableLog(out, toy_judgments(), logger).write(RetryingPool(1), lambda _: None)


def test_partial_search_results_are_not_logged(tmp_path: Path):
    class PartialEngine(ToyEngine):
        def search_complete(self, query: str, **_: object) -> Hits:
            raise EngineBusyError("partial response")

    with pytest.raises(EngineBusyError, match="partial response"):
        write(tmp_path / "top.parquet", PartialEngine(), candidates="top", retry_for=0.01)


def test_log_of_a_busy_engine_is_complete_and_identical(tmp_path: Path):
    plain = write(tmp_path / "plain.parquet", ToyEngine())
    failures = {f"text {i}": [EngineBusyError("429"), EngineTimeoutError("slow")] for i in range(0, 7, 2)}
    assert write(tmp_path / "busy.parquet", ToyEngine(failures)) == plain
    assert (tmp_path / "busy.parquet").read_bytes() == (tmp_path / "plain.parquet").read_bytes()


def test_stopped_log_is_resumed(tmp_path: Path):
    out = tmp_path / "logged.parquet"
    with pytest.raises(EngineRefusedError, match="index is gone"):
        write(out, ToyEngine({"text 5": [EngineRefusedError("index is gone")]}))
    assert not out.exists()
    again = ToyEngine()
    counts = write(out, again)
    assert sorted(again.logged_queries) == ["text 4", "text 5", "text 6"]
    assert counts == LogCounts(7, 14, absent_documents=7, missing={"number": 0, "even": 7})
    write(tmp_path / "plain.parquet", ToyEngine())
    assert out.read_bytes() == (tmp_path / "plain.parquet").read_bytes()


def test_interrupt_ends_the_pause_before_a_retry(tmp_path: Path):
    pool = RetryingPool(3, retry_for=2e6, first_pause=1e6)

    def interrupt(_: int) -> None:
        wait_until(lambda: pool.retries)
        raise KeyboardInterrupt

    busy = ToyEngine({"text 1": [EngineBusyError("429")]})
    with pytest.raises(KeyboardInterrupt):
        ResumableLog(tmp_path / "logged.parquet", toy_judgments(), FeatureLogger(busy)).write(pool, interrupt)


def test_parts_of_another_log_raise(tmp_path: Path):
    out = tmp_path / "logged.parquet"
    with pytest.raises(EngineRefusedError, match="gone"):
        write(out, ToyEngine({"text 5": [EngineRefusedError("gone")]}))
    with pytest.raises(JobError, match=r"another log \(different settings\).*delete the folder"):
        write(out, ToyEngine(), candidates="top")
    with pytest.raises(JobError, match=r"another log \(different judgments\)"):
        write(out, ToyEngine(), toy_judgments(6))
    weighted = toy_judgments()
    with pytest.raises(JobError, match=r"another log \(different judgments\)"):
        write(out, ToyEngine(), weighted.replace(sample_weight=np.full(weighted.n_rows, 0.5, dtype=np.float32)))
    other_index = ToyEngine()
    other_index.index_name = "other-toys"
    with pytest.raises(JobError, match=r"another log \(different index\)"):
        write(out, other_index)


def test_queries_without_a_document_in_the_index_are_counted(tmp_path: Path):
    judged = toy_judgments()
    assert judged.doc_id is not None
    partly_absent = judged.replace(doc_id=np.where(np.arange(21) < 6, "d77", judged.doc_id))
    counts = write(tmp_path / "some.parquet", ToyEngine(), partly_absent)
    assert (counts.queries, counts.empty_queries, counts.documents) == (5, 2, 10)
    absent = judged.replace(doc_id=np.full(21, "d77"))
    with pytest.raises(DataError, match="none of the 7 candidates is in the index"):
        write(tmp_path / "none.parquet", ToyEngine(), absent)


def test_log_works_once_the_documents_are_indexed(tmp_path: Path):
    class EmptyEngine(ToyEngine):
        def log(self, query: str, doc_ids: Sequence[str], **options: Any) -> LoggedFeatures:
            logged = super().log(query, doc_ids, **options)
            return LoggedFeatures(np.full_like(logged.values, np.nan), np.zeros_like(logged.found))

    with pytest.raises(DataError, match="none of the 21 candidates is in the index"):
        write(tmp_path / "logged.parquet", EmptyEngine())
    # The same index after its documents were added: the identity must not change with the class.
    filled = ToyEngine()
    filled.identity = EmptyEngine().identity  # type: ignore[method-assign]
    assert write(tmp_path / "logged.parquet", filled).documents == 14


def test_parts_of_an_unknown_log_are_not_used(tmp_path: Path):
    out = tmp_path / "logged.parquet"
    with pytest.raises(EngineRefusedError, match="gone"):
        write(out, ToyEngine({"text 5": [EngineRefusedError("gone")]}))
    (tmp_path / "logged.parquet.parts" / "log.json").unlink()
    again = ToyEngine()
    write(out, again)
    assert len(again.logged_queries) == 7


def test_interrupt_while_parts_are_removed_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(folder: Path) -> None:
        (folder / "part-000001.parquet").unlink()
        raise KeyboardInterrupt

    out = tmp_path / "logged.parquet"
    with monkeypatch.context() as patch:
        patch.setattr(logger.shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write(out, ToyEngine())
    assert write(out, ToyEngine()).queries == len(read_parquet(out)) == 7


def test_invalid_queries_and_settings_raise(tmp_path: Path):
    with pytest.raises(DataError, match="no column 'text'"):
        write(tmp_path / "x.parquet", ToyEngine(), toy_judgments().replace(query_columns={}))
    with pytest.raises(DataError, match="judged documents have no ids"):
        write(tmp_path / "y.parquet", ToyEngine(), toy_judgments().replace(doc_id=None))
    with pytest.raises(ParameterError, match="candidates must be"):
        FeatureLogger(ToyEngine(), candidates="all")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="top must be at least 1, got 0"):
        FeatureLogger(ToyEngine(), candidates="top", top=0)
    with pytest.raises(ParameterError, match="unjudged_weight must be between 0 and 1, got -1"):
        FeatureLogger(ToyEngine(), unjudged_weight=-1.0)
