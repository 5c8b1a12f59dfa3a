"""What people choose while the service runs: from one replica to the order of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinrank import ChoiceRanker, QuerySet, SingleRanker
from kinrank.serve import Service, Settings
from kinrank.serve.http.app import create_app
from kinrank.serve.http.metrics import Metrics
from kinrank.serve.keys import KeyRing, Role, add_key
from tests.processes import wait_until
from tests.serve.asgi import Client
from tests.serve.databases import DATABASES

SETTINGS = Settings(deadline=60.0, watch_interval=0.05, log_shown=10)
ALIEN = {"ids": ["a", "b", "c"], "features": [[0.52], [0.51], [0.5]], "text": "Alien"}


def clicks(client: str, query_id: str, document: str = "c") -> dict[str, Any]:
    """A click as a UBI event."""
    about = {"object": {"object_id": document}}
    return {"action_name": "click", "query_id": query_id, "client_id": client, "event_attributes": about}


def shown(client: str, query_id: str, text: str = "alien") -> dict[str, Any]:
    """A list as a UBI query."""
    hits = ["a", "b", "c"]
    return {"query_id": query_id, "user_query": text, "client_id": client, "query_response_hit_ids": hits}


@pytest.fixture(scope="session")
def _choices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    X = rng.random((40, 1), dtype=np.float32)
    grades = X[:, 0] + rng.normal(0.0, 0.5, 40) > 0.5  # noisy, so that a prediction is not certain
    texts = np.array([f"query {number}" for number in range(10)])
    names = {"qid": np.repeat(np.arange(10), 4), "doc_id": np.array([f"d{row}" for row in range(40)])}
    queries = QuerySet.from_arrays(X, grades.astype(int), **names, query_columns={"text": texts})
    folder = tmp_path_factory.mktemp("choices") / "model"
    ChoiceRanker(SingleRanker("rankrls").fit(queries), prefit=True).fit(queries).save(folder)
    return folder


@pytest.fixture(params=[pytest.param(name, marks=database.marks) for name, database in DATABASES.items()])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with DATABASES[request.param].empty(tmp_path) as address:
        yield address


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    return {role.value: f"Bearer {add_key(tmp_path / 'keys', role.value, role)}" for role in Role}


@pytest.fixture
def replica(_choices: Path, tmp_path: Path, keys: dict[str, str]) -> Iterator[Callable[..., Client]]:
    closing: list[Callable[[], None]] = []

    def make(address: str, settings: Settings = SETTINGS) -> Client:
        metrics = Metrics()
        service = Service({"default": _choices}, settings=settings, observer=metrics, judgments=address)
        service.start()
        client = Client(create_app(service, metrics=metrics, keys=KeyRing(tmp_path / "keys")))
        closing.extend([client.runner.close, service.close])
        return client

    yield make
    for close in closing:
        close()


def order(client: Client, keys: dict[str, str]) -> list[str]:
    return client.post("/v1/rank", ALIEN, authorization=keys["query"]).json["ids"]


def test_clicks_sent_to_one_replica_change_the_order_of_another(address, replica, keys) -> None:
    one, other = replica(address), replica(address)
    assert order(other, keys) == ["a", "b", "c"]
    for number in range(3):
        answer = one.post("/v1/rank", ALIEN, authorization=keys["query"], x_kinrank_client=f"person {number}").json
        body = {"events": [clicks(f"person {number}", answer["query_id"])]}
        response = one.post("/v1/events", body, authorization=keys["events"])
        assert (response.status, response.json) == (200, {"queries": 0, "events": 1, "ignored": {}})
    for client in (one, other):
        wait_until(lambda client=client: order(client, keys)[0] == "c", 5.0)
