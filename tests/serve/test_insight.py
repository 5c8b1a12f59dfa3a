"""Explanations over HTTP, and the page of the API."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from kinrank import KinRanker, KnnRanker
from kinrank.arrays import GrowingRows
from kinrank.datasets import make_two_camps
from kinrank.memory.columns import QueryMemory
from kinrank.rankers.kin._parts import MemoryPart
from kinrank.serve import Service
from kinrank.serve._http import endpoints as answers
from kinrank.serve._served_model import example_candidates
from kinrank.serve.messages import CandidateSet
from tests.processes import PATIENCE
from tests.serve.asgi import Client
from tests.serve.engine import InMemoryEngine
from tests.serve.servers import one_thread, serving

UP = {"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]]}


def test_explanation_says_what_lifts_each_document(client: Client):
    why = client.post("/v1/explain", UP).json
    assert why["neighbors"]
    assert why["spread"]["value"] == pytest.approx(0.2867, abs=1e-4)
    assert why["spread"]["camp"] == 0
    effects = {document: each["value"] for document, each in why["reasons"].items()}
    assert effects["b"] > 0 > effects["a"]
    assert effects["b"] == pytest.approx(why["local_weights"]["value"] * (0.9 - 1.6 / 3), rel=1e-5)


def test_model_without_explanations_is_a_conflict(client: Client):
    answer = client.post("/v1/explain", UP, x_kinrank_model="single")
    assert (answer.status, answer.code) == (409, "unable-model")


@pytest.mark.parametrize(
    ("body", "model", "status", "code"),
    [
        (UP, "unknown", 404, "unknown-model"),
        ({**UP, "feature_names": ["value", "price"]}, "knn", 422, "invalid"),
    ],
)
def test_explanation_that_cannot_be_given_names_the_reason(
    client: Client, body: dict[str, object], model: str, status: int, code: str
):
    answer = client.post("/v1/explain", body, x_kinrank_model=model)
    assert (answer.status, answer.code) == (status, code)


def test_slow_explanation_is_not_blamed_on_the_model(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(answers, "_EXPLAIN_SECONDS", 0.01)
    answered = threading.Event()
    monkeypatch.setattr(Service, "explain", lambda *_, **__: answered.wait(PATIENCE))
    answer = client.post("/v1/explain", UP)
    answered.set()
    assert (answer.status, answer.code) == (503, "slow-explanation")


def test_model_that_is_not_loaded_yet_is_no_fault_of_the_request(
    make_client: Callable[..., Client], models: Path, secrets: dict[str, str]
):
    shutil.rmtree(models / "single")
    client = make_client(keys=True, key=secrets["admin"], strict=False)
    judged = {"qid": 900, **UP, "grades": [0, 1, 2]}
    for answer in (
        client.post("/v1/explain", UP, x_kinrank_model="single"),
        client.post("/v1/judgments", {"queries": [judged]}, x_kinrank_model="single"),
        client.post("/v1/judgments/withdraw", {"qid": 900}, x_kinrank_model="single"),
    ):
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "no-model", "1")


def test_search_explains_every_move(make_client: Callable[..., Client]):
    client = make_client(engine=InMemoryEngine([0.3, 0.9, 0.1, 0.6]))
    found = client.post("/v1/search", {"query": "up", "explain": True}).json
    assert found["explanation"]["reasons"].keys() == set(found["ids"])


@pytest.mark.browser
def test_page_of_the_api(models: Path, browser: Browser, tmp_path: Path):
    """Send a request from /docs, on a narrow screen."""
    messages: list[str] = []
    options = [str(models / "knn"), "--deadline", "60000", "--set", "drain_seconds=0.1"]
    with serving(tmp_path / "log", *options, env=one_thread()) as server:
        tab = browser.new_page(viewport={"width": 390, "height": 844})
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.goto(f"http://127.0.0.1:{server.port}/docs")
        card = tab.locator(".operation", has_text="POST /v1/rank")
        card.get_by_role("button", name="Send").click()
        expect(card.locator("pre")).to_contain_text("unknown-feature")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        tab.close()
    assert messages == []


def test_explanations_name_queries_and_documents_but_not_the_query_itself(tmp_path: Path, up: CandidateSet):
    camps = make_two_camps(n_queries=20, n_docs=3, seed=0)
    text = np.array([f"wish {qid}" for qid in camps.qid])
    titles = np.array([f"Movie {document}" for document in camps.doc_id.tolist()])
    named = camps.replace(query_columns={"text": text}, doc_title=titles)
    KnnRanker(n_neighbors=5, encoder=None).fit(named).save(tmp_path / "model", examples=named[:2])
    with Service({"model": tmp_path / "model"}) as service:
        stored = example_candidates(named, 0)
        assert (stored.text, stored.ids) == ("wish 0", ["0", "1", "2"])
        why = service.explain(stored)
        assert why.titles == {"0": "Movie 0", "1": "Movie 1", "2": "Movie 2"}
        near = [neighbor.text for neighbor in why.neighbors]
        assert len(near) == 4
        assert "wish 0" not in near
        assert all(neighbor.text == f"wish {neighbor.qid}" for neighbor in why.neighbors)
        assert service.explain(up).titles is None


def test_a_model_with_memory_ranks_and_explains(tmp_path: Path):
    camps = make_two_camps(n_queries=20, n_docs=3, seed=0)
    texts = np.array([f"wish {qid}" for qid in camps.qid])
    named = camps.replace(doc_id=np.tile(["a", "b", "c"], 20), query_columns={"text": texts})
    ranker = KinRanker(5, encoder=None, settings={"n_members": 2, "n_repeats": 1}).fit(named)
    memory = QueryMemory.of(named)
    ranker.memory_ = MemoryPart(memory, np.arange(0), GrowingRows(named.qid.astype(np.str_)))  # whether or not it pays
    ranker.save(tmp_path / "model", examples=named[:2])
    with Service({"model": tmp_path / "model"}) as service:
        asked = example_candidates(named, 0)
        assert service.rank(asked).fallback is None
        why = service.explain(asked)
        assert why.local_weights is not None
        assert set(why.local_weights) == set(camps.feature_names)
        assert why.judged is not None
        assert all("for *wish " in words for words in why.judged.values())
