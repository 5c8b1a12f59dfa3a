"""Searches add documents that people chose and that the engine did not find."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinrank import KinRanker
from kinrank.datasets import make_two_camps
from kinrank.engines._query_dsl import PLAIN, SearchOptions
from kinrank.errors import EngineTimeoutError
from kinrank.memory.evidence import Evidence
from kinrank.serve import Service, Settings
from kinrank.serve._http.app import create_app
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._search import Searcher, SearchPolicy
from tests.serve.asgi import Client
from tests.serve.engine import InMemoryEngine
from tests.serve.test_generated import STATUSES, mutated

VALUES = [0.3, 0.9, 0.1, 0.6, 0.7]


class Engine(InMemoryEngine):
    """Fetches documents by id, within the filter {"ids": {"values": [...]}}."""

    def __init__(self) -> None:
        super().__init__(VALUES)
        self.fetched: list[tuple[list[str], SearchOptions]] = []

    def fetch(self, query: str, doc_ids: Any, *, options: SearchOptions = PLAIN, **more: Any) -> Any:
        self.fetched.append((list(doc_ids), options))
        clause = options.filter_clause
        allowed = [f"d{i}" for i in range(len(VALUES))] if clause is None else clause["ids"]["values"]
        ids = [doc_id for doc_id in doc_ids if doc_id in allowed]
        return super().fetch(query, ids, **more)


@pytest.fixture(scope="session")
def choices_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    camps = make_two_camps(20)
    folder = tmp_path_factory.mktemp("remembered") / "model"
    documents = ["d1", "d3", "d4", "d2", "gone"]
    evidence = Evidence.from_cells(["up"] * 4 + ["lost"], documents, [40, 40, 40, 40, 40], [38, 5, 0, 39, 30])
    evidence = evidence.merged(Evidence.from_cells(["Lost"], ["d0"], [40], [40]))
    camps = camps.replace(query_columns={"text": np.array([f"query {qid}" for qid in camps.qid])})
    KinRanker(
        evidence=evidence,
        encoder=None,
        memory=False,
        local=False,
        trees="lambdamart(n_trees=5)",
        settings={"n_members": 2, "n_repeats": 1},
    ).fit(camps).save(folder)
    return folder


@pytest.fixture
def engine() -> Engine:
    return Engine()


def service_of(model: Path, **settings: Any) -> Service:
    return Service({"default": model}, settings=Settings(deadline=60.0, max_novelty=1e9, min_fidelity=1e-9, **settings))


@pytest.fixture
def searcher(choices_model: Path, engine: Engine) -> Iterator[Searcher]:
    with service_of(choices_model) as service:
        yield Searcher(service, engine)


def test_a_chosen_document_beyond_the_window_is_ranked(searcher: Searcher, engine: Engine):
    result = searcher.search("up", window=2)
    assert engine.fetched[-1][0] == ["d1", "d3"]  # d2 is found, and nobody chose d4
    assert (result.remembered, result.problem) == (["d1", "d3"], None)
    assert result.engine_ids == ["d2", "d0", "d1", "d3"]
    assert set(result.ranking.ids[:2]) == {"d1", "d2"}
    assert searcher.search("up", window=5).remembered == []
    assert searcher.search("down", window=2).remembered == []


def test_a_query_without_hits_finds_what_people_chose(searcher: Searcher):
    result = searcher.search("lost")
    assert result.ranking.ids == result.remembered == ["d0"]  # the other one is not in the index any more


def test_the_filters_of_the_request_and_of_the_service_hold(choices_model: Path, engine: Engine):
    shown = {"ids": {"values": ["d0", "d2", "d3"]}}
    with service_of(choices_model) as service:
        result = Searcher(service, engine).search("up", window=1, options=SearchOptions(shown))
        assert result.remembered == ["d3"]
        result = Searcher(service, engine, policy=SearchPolicy(None, shown)).search("up", window=1)
        assert result.remembered == ["d3"]
    assert [options.filter_clause for _, options in engine.fetched] == [shown, shown]


@pytest.mark.parametrize(("most", "added"), [(0, []), (1, []), (2, ["d1"]), (3, ["d1", "d3"])])
def test_only_the_best_remembered_documents_are_added(choices_model: Path, engine: Engine, most: int, added: list[str]):
    with service_of(choices_model, remembered=most) as service:  # the best one is found
        assert Searcher(service, engine).search("up", window=2).remembered == added
    assert len(engine.fetched) == bool(added)


def test_a_failing_fetch_is_named_and_the_search_answered(choices_model: Path, engine: Engine):
    def fail(*_: Any, **__: Any) -> Any:
        raise EngineTimeoutError("no response within 1 s")

    engine.fetch = fail  # type: ignore[method-assign]
    with service_of(choices_model) as service:
        client = Client(create_app(service, metrics=Metrics(), searcher=Searcher(service, engine)))
        answer = client.post("/v1/search", {"query": "up", "window": 2, "size": 2}).json
        assert (set(answer["ids"]), answer["fallback"]) == ({"d2", "d0"}, None)
        assert answer["remembered_problem"] == "no response within 1 s"
        assert "remembered" not in answer
        del engine.fetch
        answer = client.post("/v1/search", {"query": "up", "window": 2, "size": 2}).json
        assert answer["remembered"] == ["d1", "d3"]
        assert "remembered_problem" not in answer
        client.runner.close()


def test_an_engine_that_took_all_the_time_is_not_asked_again(choices_model: Path, engine: Engine):
    search = engine.search_features

    def slow(query: str, *, timeout: float, **more: Any) -> Any:
        time.sleep(timeout)
        return search(query, **more)

    engine.search_features = slow  # type: ignore[method-assign]
    with service_of(choices_model, engine_seconds=0.01) as service:
        result = Searcher(service, engine).search("up", window=2)
    assert result.problem is not None
    assert result.problem.startswith("the search took all of the 0.01 s; allow more with --set timeout=SECONDS")
    assert result.problem.endswith("--set engine_seconds=SECONDS of kinrank serve")
    assert (len(result.ranking.ids), engine.fetched) == (2, [])


def test_weights_come_with_boosts_of_what_people_chose(choices_model: Path, engine: Engine):
    with service_of(choices_model) as service:
        client = Client(create_app(service, metrics=Metrics(), searcher=Searcher(service, engine)))
        found = client.post("/v1/weights", {"query": "up", "size": 2}).json
        plain = client.post("/v1/weights", {"query": "down", "size": 2}).json
        client.runner.close()
    assert found["boosts"]["d1"] > 0 > found["boosts"]["d4"]
    assert found["request"]["boosts"] == found["boosts"]
    assert (plain["boosts"], plain["request"]["boosts"]) == (None, None)


def test_mutated_searches_get_a_documented_status(choices_model: Path, engine: Engine):
    rng = random.Random(0)
    asked = {"query": "up", "window": 2, "size": 2, "from": 1, "vector": [0.5]}
    seeds = [json.dumps(body).encode() for body in (asked, {"query": "lost", "explain": True})]
    with service_of(choices_model) as service:
        client = Client(create_app(service, metrics=Metrics(), searcher=Searcher(service, engine)))
        bodies = [*seeds, *(mutated(rng.choice(seeds), rng) for _ in range(500))]
        statuses = Counter(client.post("/v1/search", body).status for body in bodies)
        client.runner.close()
    assert set(statuses) <= STATUSES
    assert statuses[200] > 5
