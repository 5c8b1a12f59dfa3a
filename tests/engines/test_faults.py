"""What goes wrong with real engines, and what the user is told or spared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kinrank import QuerySet
from kinrank.checks.engine_sample import FEATURES, QUERY, VECTOR, sample_documents
from kinrank.engines import Engine, FeatureSet, connect
from kinrank.engines.logger import FeatureLogger, LogCounts
from kinrank.engines.lucene import LuceneEngine
from kinrank.engines.resumable_log import ResumableLog
from kinrank.engines.retry import RetryingPool
from kinrank.errors import (
    EngineBusyError,
    EngineRefusedError,
    EngineTimeoutError,
    EngineUnreachableError,
    MissingIndexError,
    ParameterError,
)
from tests.engines.conftest import OpenEngine, index_body
from tests.engines.fault_proxy import Harm, harmed

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

IDS = [doc_id for doc_id, _ in sample_documents()]


@pytest.fixture
def world(engine_name: str, open_engine: OpenEngine) -> LuceneEngine:
    engine = open_engine(engine_name)
    engine.index(sample_documents(), settings=index_body(engine_name))
    return engine


def through(world: LuceneEngine, url: str, **options: object) -> Engine:
    """The same index by way of a proxy."""
    return connect(f"{world.name}+{url}/{world.index_name}", FeatureSet.parse(FEATURES), **{"timeout": 60.0, **options})


def judgments(n_queries: int = 12) -> QuerySet:
    words = ["red car", "blue house", "old boat", "green tree"]
    return QuerySet.from_arrays(
        np.empty((8 * n_queries, 0)),
        [1, 0] * (4 * n_queries),
        qid=np.repeat([f"q{i}" for i in range(n_queries)], 8),
        doc_id=[IDS[(3 * i + j) % len(IDS)] for i in range(n_queries) for j in range(8)],
        query_columns={
            "text": [words[i % 4] for i in range(n_queries)],
            "vector": np.tile(np.float32(VECTOR), (n_queries, 1)),
        },
    )


def log(engine: Engine, out: Path, retry_for: float = 30.0) -> tuple[LogCounts, int]:
    pool = RetryingPool(3, retry_for=retry_for, first_pause=0.01)
    return ResumableLog(out, judgments(), FeatureLogger(engine, timeout=5.0)).write(pool, lambda _: None), pool.retries


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_engine_is_asked_again_and_nothing_is_lost_or_doubled(world: LuceneEngine, tmp_path: Path, status: int):
    every_third: Harm = lambda number, _: status if number % 3 == 1 else None  # noqa: E731
    plain, _ = log(world, tmp_path / "plain.parquet")
    with harmed(world.hosts[0], every_third) as url, through(world, url) as engine:
        counts, repeated = log(engine, tmp_path / "harmed.parquet")
    assert repeated > 0
    assert counts == plain
    assert (tmp_path / "harmed.parquet").read_bytes() == (tmp_path / "plain.parquet").read_bytes()


def test_a_slow_answer_is_a_timeout_and_a_log_asks_again(world: LuceneEngine, tmp_path: Path):
    with harmed(world.hosts[0], lambda number, _: 2.0 if number == 0 else None) as url, through(world, url) as engine:
        with pytest.raises(EngineTimeoutError, match=r"no answer within 0.3 s"):
            engine.search(QUERY, size=3, timeout=0.3)
        assert len(engine.search(QUERY, size=3)) == 3
    with harmed(world.hosts[0], lambda number, _: 7.0 if number == 2 else None) as url, through(world, url) as engine:
        counts, repeated = log(engine, tmp_path / "slow.parquet")
    assert counts.queries == 12
    assert repeated >= 1


def test_a_connection_that_breaks_is_no_loss(world: LuceneEngine, tmp_path: Path):
    with harmed(world.hosts[0], lambda number, _: 0 if number % 4 == 0 else None) as url, through(world, url) as engine:
        counts, _ = log(engine, tmp_path / "broken.parquet")
    assert counts.queries == 12


def test_without_patience_the_error_is_told(world: LuceneEngine, tmp_path: Path):
    with (
        harmed(world.hosts[0], lambda *_: 429) as url,
        through(world, url) as engine,
        pytest.raises(EngineBusyError, match=r"too much to do \(429, queue is full\)"),
    ):
        log(engine, tmp_path / "busy.parquet", retry_for=0.2)


def test_nobody_there(engine_name: str):
    with connect(f"{engine_name}+http://127.0.0.1:9/movies", FeatureSet.parse(FEATURES)) as engine:
        with pytest.raises(EngineUnreachableError, match=r"none of http://127.0.0.1:9 can be reached"):
            engine.search(QUERY, size=3)
        with pytest.raises(EngineUnreachableError, match="can be reached"):
            engine.health()


def test_an_index_that_is_not_there_or_vanishes(world: LuceneEngine, tmp_path: Path):
    assert world.features(QUERY, IDS[:2], vector=VECTOR).shape[0] == 2
    world.delete_index()
    for ask in (
        world.health,
        lambda: world.search(QUERY, size=3),
        lambda: world.features(QUERY, IDS[:2], vector=VECTOR),
        lambda: world.apply(QUERY, np.ones(len(world.feature_names)), size=3, vector=VECTOR),
        lambda: log(world, tmp_path / "gone.parquet"),
    ):
        with pytest.raises(MissingIndexError, match=rf"no such index \[{world.index_name}\]"):
            ask()


def test_an_index_made_anew_is_told_from_the_one_before(world: LuceneEngine):
    before = world.identity()
    assert world.identity() == before
    world.delete_index()
    world.index(sample_documents(), settings=index_body(world.name))
    after = world.identity()
    assert (after["engine"], after["index"] == before["index"]) == (world.name, False)


def test_a_vector_of_the_wrong_length_is_refused(world: LuceneEngine):
    with pytest.raises(EngineRefusedError, match=r"(?i)dimension"):
        world.features(QUERY, IDS, vector=[0.1, 0.2])
    with pytest.raises(EngineRefusedError, match=r"(?i)dimension"):
        world.apply(QUERY, np.ones(len(world.feature_names)), size=5, vector=[0.1, 0.2])


def test_a_vector_that_is_missing_or_no_vector_is_refused_before_anything_is_sent(world: LuceneEngine):
    with pytest.raises(ParameterError, match="feature 'near' compares vectors: pass vector="):
        world.features(QUERY, IDS)
    with pytest.raises(ParameterError, match="vector must be a list of finite numbers"):
        world.features(QUERY, IDS, vector=[np.nan, 0.0, 1.0])


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        ('a = { match = "titel" }', "'a' asks for field 'titel', which index .* does not have: mend the"),
        ('a = { multi_match = ["title^2", "text"] }', "'a' asks for field 'text'"),
        ('a = { field = "title" }', "'a' asks for field 'title' as a number, but in index .* it is text"),
        ('a = { vector = "votes" }', "'a' asks for field 'votes' as a vector, but in index .* it is integer"),
    ],
)
def test_a_field_that_is_not_there_is_told(engine_name: str, open_engine: OpenEngine, definition: str, problem: str):
    engine = open_engine(engine_name, f"[features]\n{definition}")
    engine.index(sample_documents()[:2], settings=index_body(engine_name))
    with pytest.raises(EngineRefusedError, match=problem):
        engine.features(QUERY, ["d0"], vector=VECTOR)


def test_a_script_that_does_not_compile_or_is_negative_is_told(engine_name: str, open_engine: OpenEngine):
    for source, problem in (("doc[", "(?i)unexpected|invalid|compile"), ("-1.0", "(?i)negative")):
        engine = open_engine(engine_name, f'[features]\na = {{ script = "{source}" }}')
        engine.index(sample_documents()[:2], settings=index_body(engine_name))
        with pytest.raises(EngineRefusedError, match=problem):
            engine.features(QUERY, ["d0"])


def test_documents_that_do_not_fit_the_index_are_told(engine_name: str, open_engine: OpenEngine):
    engine = open_engine(engine_name)
    with pytest.raises(EngineRefusedError, match="the first: "):
        engine.index([("d0", {"votes": "many"})], settings=index_body(engine_name))


def test_both_engines_log_the_same_features(open_engine: OpenEngine):
    """Named clauses of one request in one engine, a search per clause in the other: the same numbers."""
    values = []
    for name in ("elasticsearch", "opensearch"):
        engine = open_engine(name)
        engine.index(sample_documents(), settings=index_body(name, shards=2))
        values.append(engine.features(QUERY, IDS, vector=VECTOR))
    np.testing.assert_allclose(*values, atol=2e-6)
