"""Faults of real engines."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from kinrank import QuerySet
from kinrank.engines import Engine, FeatureSet, connect
from kinrank.engines._logger import FeatureLogger, LogCounts, ResumableLog
from kinrank.engines.base import RetryingPool
from kinrank.engines.lucene import LuceneEngine
from kinrank.errors import (
    EngineBusyError,
    EngineRefusedError,
    EngineTimeoutError,
    EngineUnreachableError,
    MissingIndexError,
    ParameterError,
)
from tests.engines.conftest import OpenEngine, index_body
from tests.engines.engine_sample import FEATURES, QUERY, VECTOR, sample_documents
from tests.engines.fault_proxy import DROP_CONNECTION, faulty_proxy
from tests.processes import PATIENCE

pytestmark = pytest.mark.engine

IDS = [doc_id for doc_id, _ in sample_documents()]


@pytest.fixture
def engine(engine_name: str, open_engine: OpenEngine) -> LuceneEngine:
    engine = open_engine(engine_name)
    engine.index(sample_documents(), settings=index_body(engine_name))
    return engine


def through_proxy(engine: LuceneEngine, url: str) -> Engine:
    return connect(f"{engine.name}+{url}/{engine.index_name}", FeatureSet.parse(FEATURES), timeout=PATIENCE)


def judgments(n_queries: int = 12) -> QuerySet:
    texts = ["red car", "blue house", "old boat", "green tree"]
    return QuerySet.from_arrays(
        np.empty((8 * n_queries, 0)),
        [1, 0] * (4 * n_queries),
        qid=np.repeat([f"q{i}" for i in range(n_queries)], 8),
        doc_id=[IDS[(3 * i + j) % len(IDS)] for i in range(n_queries) for j in range(8)],
        query_columns={
            "text": [texts[i % 4] for i in range(n_queries)],
            "vector": np.tile(np.float32(VECTOR), (n_queries, 1)),
        },
    )


def log(engine: Engine, out: Path, retry_for: float = PATIENCE, timeout: float = PATIENCE) -> tuple[LogCounts, int]:
    pool = RetryingPool(3, retry_for=retry_for, first_pause=0.01)
    counts = ResumableLog(out, judgments(), FeatureLogger(engine, candidates="judged", timeout=timeout)).write(
        pool, lambda _: None
    )
    return counts, pool.retries


@pytest.mark.parametrize("status", [429, 503])
def test_log_through_busy_engine_is_complete_and_identical(engine: LuceneEngine, tmp_path: Path, status: int):
    expected, _ = log(engine, tmp_path / "direct.parquet")
    every_third = lambda number: status if number % 3 == 1 else None  # noqa: E731
    with faulty_proxy(engine.hosts[0], every_third) as url, through_proxy(engine, url) as busy:
        counts, retries = log(busy, tmp_path / "busy.parquet")
    assert retries > 0
    assert counts == expected
    assert (tmp_path / "busy.parquet").read_bytes() == (tmp_path / "direct.parquet").read_bytes()


def test_slow_response_raises_timeout(engine: LuceneEngine):
    release = threading.Event()
    first_waits = lambda number: release if number == 0 else None  # noqa: E731
    with faulty_proxy(engine.hosts[0], first_waits) as url, through_proxy(engine, url) as slow:
        with pytest.raises(EngineTimeoutError, match=r"no response within 0.3 s"):
            slow.search(QUERY, size=3, timeout=0.3)
        release.set()
        assert len(slow.search(QUERY, size=3)) == 3


def test_log_retries_after_timeout(engine: LuceneEngine, tmp_path: Path):
    release = threading.Event()
    third_waits = lambda number: release if number == 2 else None  # noqa: E731
    with faulty_proxy(engine.hosts[0], third_waits) as url, through_proxy(engine, url) as slow:
        counts, retries = log(slow, tmp_path / "slow.parquet", timeout=2.0)
    release.set()
    assert counts.queries == 12
    assert retries >= 1


def test_dropped_connections_do_not_lose_queries(engine: LuceneEngine, tmp_path: Path):
    every_fourth = lambda number: DROP_CONNECTION if number % 4 == 0 else None  # noqa: E731
    with faulty_proxy(engine.hosts[0], every_fourth) as url, through_proxy(engine, url) as dropping:
        counts, _ = log(dropping, tmp_path / "dropped.parquet")
    assert counts.queries == 12


def test_error_is_raised_when_retries_end(engine: LuceneEngine, tmp_path: Path):
    with (
        faulty_proxy(engine.hosts[0], lambda _: 429) as url,
        through_proxy(engine, url) as busy,
        pytest.raises(EngineBusyError, match=r"overloaded \(429, queue is full\)"),
    ):
        log(busy, tmp_path / "busy.parquet", retry_for=0.2)


def test_unreachable_engine_raises(engine_name: str):
    with connect(f"{engine_name}+http://127.0.0.1:9/movies", FeatureSet.parse(FEATURES)) as engine:
        with pytest.raises(EngineUnreachableError, match=r"cannot reach any of http://127.0.0.1:9"):
            engine.search(QUERY, size=3)
        with pytest.raises(EngineUnreachableError, match="cannot reach any of"):
            engine.health()


def test_deleted_index_raises(engine: LuceneEngine, tmp_path: Path):
    assert engine.features(QUERY, IDS[:2], vector=VECTOR).shape[0] == 2
    engine.delete_index()
    for call in (
        engine.health,
        lambda: engine.search(QUERY, size=3),
        lambda: engine.features(QUERY, IDS[:2], vector=VECTOR),
        lambda: engine.apply(QUERY, np.ones(len(engine.feature_names)), size=3, vector=VECTOR),
        lambda: log(engine, tmp_path / "deleted.parquet"),
    ):
        with pytest.raises(MissingIndexError, match=rf"no such index \[{engine.index_name}\]"):
            call()


def test_recreated_index_has_a_new_identity(engine: LuceneEngine):
    before = engine.identity()
    assert engine.identity() == before
    engine.delete_index()
    engine.index(sample_documents(), settings=index_body(engine.name))
    after = engine.identity()
    assert after["engine"] == engine.name
    assert after["index"] != before["index"]


def test_vector_of_wrong_length_raises(engine: LuceneEngine):
    with pytest.raises(EngineRefusedError, match=r"(?i)dimension"):
        engine.features(QUERY, IDS, vector=[0.1, 0.2])
    with pytest.raises(EngineRefusedError, match=r"(?i)dimension"):
        engine.apply(QUERY, np.ones(len(engine.feature_names)), size=5, vector=[0.1, 0.2])


def test_missing_or_invalid_vector_raises_before_sending(engine: LuceneEngine):
    with pytest.raises(ParameterError, match="feature 'near' compares vectors: pass vector="):
        engine.features(QUERY, IDS)
    with pytest.raises(ParameterError, match="vector must be a list of finite numbers"):
        engine.features(QUERY, IDS, vector=[np.nan, 0.0, 1.0])


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        ('a = { match = "titel" }', "'a' uses field 'titel', which index .* does not have: correct the feature file"),
        ('a = { multi_match = ["title^2", "text"] }', "'a' uses field 'text'"),
        ('a = { field = "title" }', "'a' uses field 'title' as a number, but in index .* it is of type text"),
        ('a = { vector = "votes" }', "'a' uses field 'votes' as a vector, but in index .* it is of type integer"),
    ],
)
def test_unsuitable_field_raises(engine_name: str, open_engine: OpenEngine, definition: str, problem: str):
    engine = open_engine(engine_name, f"[features]\n{definition}")
    engine.index(sample_documents()[:2], settings=index_body(engine_name))
    with pytest.raises(EngineRefusedError, match=problem):
        engine.features(QUERY, ["d0"], vector=VECTOR)


@pytest.mark.parametrize(("source", "problem"), [("doc[", "(?i)unexpected|invalid|compile"), ("-1.0", "(?i)negative")])
def test_invalid_or_negative_script_raises(engine_name: str, open_engine: OpenEngine, source: str, problem: str):
    engine = open_engine(engine_name, f'[features]\na = {{ script = "{source}" }}')
    engine.index(sample_documents()[:2], settings=index_body(engine_name))
    with pytest.raises(EngineRefusedError, match=problem):
        engine.features(QUERY, ["d0"])


def test_documents_that_do_not_fit_the_mapping_raise(engine_name: str, open_engine: OpenEngine):
    engine = open_engine(engine_name)
    with pytest.raises(EngineRefusedError, match="document 'd0' was refused: "):
        engine.index([("d0", {"votes": "many"})], settings=index_body(engine_name))


def test_both_engines_compute_the_same_features(open_engine: OpenEngine):
    values = []
    for name in ("elasticsearch", "opensearch"):
        engine = open_engine(name)
        engine.index(sample_documents(), settings=index_body(name, shards=2))
        values.append(engine.features(QUERY, IDS, vector=VECTOR))
    np.testing.assert_allclose(*values, atol=2e-6)
