"""A search for which the engine finds nothing: what it is a spelling of, and its documents if they are wanted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinrank import KnnRanker, QuerySet
from kinrank.engines import Hits, LoggedFeatures
from tests.serve.asgi import Client
from tests.serve.conftest import PATIENT
from tests.serve.engine import InMemoryEngine

ANSWERING = replace(PATIENT, answer_with_kin=True, engine_seconds=60.0)


class Shop(InMemoryEngine):
    """Knows the query "upwards", and counts searches."""

    def __init__(self) -> None:
        super().__init__([0.1, 0.9])
        self.asked: list[str] = []
        self.elapsed = 0.0
        self.seconds = 0.0

    def search(self, query: str, **options: Any) -> Hits:
        self.asked.append(query)
        self.elapsed += self.seconds
        return super().search(query.removesuffix("wards"), **options)

    def log(self, query: str, doc_ids: Any, **options: Any) -> LoggedFeatures:
        return super().log(query.removesuffix("wards"), doc_ids, **options)


@pytest.fixture
def named(models: Path, camps: QuerySet) -> None:
    """Let a model know the texts of its judged queries."""
    texts = np.array(["upwards", "downwards", *(f"judged {number}" for number in range(len(camps) - 2))])
    queries = camps.replace(query_columns={"text": texts})
    KnnRanker(n_neighbors=5, describe="mean").fit(queries).save(models / "knn")


@pytest.mark.usefixtures("named")
def test_kin_is_a_suggestion_and_answers_only_if_wanted(make_client: Callable[..., Client]) -> None:
    client = make_client(engine=Shop())
    found = client.post("/v1/search", {"query": "upwrads"}).json
    assert (found["ids"], found["kin"]) == ([], "upwards")
    assert "kin" not in client.post("/v1/search", {"query": "upwards"}).json
    assert "kin" not in client.post("/v1/search", {"query": "nothing like it"}).json
    client = make_client(engine=Shop(), settings=ANSWERING)
    found = client.post("/v1/search", {"query": "upwrads"}).json
    assert (found["ids"], found["engine_ids"], found["kin"]) == (["d1", "d0"], ["d0", "d1"], "upwards")
    # Within the filter of the request, too.
    found = client.post("/v1/search", {"query": "upwrads", "filter": {"ids": {"values": ["d0"]}}}).json
    assert found["ids"] == ["d0"]
    # Those who are sent to the engine see what it finds.
    found = client.post("/v1/search", {"query": "upwrads"}, x_kinrank_model="engine").json
    assert (found["ids"], "kin" in found) == ([], False)


@pytest.mark.usefixtures("named")
def test_a_flood_of_misspellings_does_not_double_the_load_of_the_engine(make_client: Callable[..., Client]) -> None:
    engine = Shop()
    client = make_client(engine=engine, settings=ANSWERING)
    for _ in range(60):
        assert client.post("/v1/search", {"query": "upwrads"}).status == 200
    assert engine.asked.count("upwards") <= 16  # ten at once, and a tenth


@pytest.mark.usefixtures("named")
def test_a_slow_engine_is_not_asked_twice(make_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> None:
    engine, clock = Shop(), time.monotonic
    client = make_client(engine=engine, settings=replace(ANSWERING, engine_seconds=3600.0))
    monkeypatch.setattr(time, "monotonic", lambda: clock() + engine.elapsed)
    engine.seconds = 0.4 * 3600.0
    assert client.post("/v1/search", {"query": "upwrads"}).json["ids"] == ["d1", "d0"]
    engine.asked.clear()
    engine.seconds = 0.6 * 3600.0
    found = client.post("/v1/search", {"query": "upwrads"})
    assert (found.status, found.json["ids"], found.json["kin"]) == (200, [], "upwards")
    assert engine.asked == ["upwrads"]
