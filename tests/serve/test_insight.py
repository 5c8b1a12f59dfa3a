"""Explanations and stored examples over HTTP, and the page that shows them without an engine."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from kinrank import KinRanker, KnnRanker
from kinrank.datasets import make_two_camps
from kinrank.memory.columns import QueryMemory
from kinrank.rankers.kin._parts import MemoryPart
from kinrank.serve import Service
from kinrank.serve._http import endpoints as answers
from kinrank.serve.messages import CandidateSet, Fallback
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


def test_page_names_every_reason_for_a_fallback(client: Client):
    listed = re.search(r"const REASONS = {(.*?)};", client.get("/").body.decode(), re.DOTALL)
    assert listed is not None
    of_reranking = {"upstream-down"}  # which the page does not ask for
    assert set(re.findall(r'"([a-z-]+)": "', listed[1])) == {reason.value for reason in Fallback} - of_reranking


def test_slow_explanation_is_not_blamed_on_the_model(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(answers, "_EXPLAIN_SECONDS", 0.01)
    monkeypatch.setattr(Service, "explain", lambda *_, **__: time.sleep(0.2))
    answer = client.post("/v1/explain", UP)
    assert (answer.status, answer.code) == (503, "slow-explanation")


def test_model_that_is_not_loaded_yet_is_no_fault_of_the_request(
    make_client: Callable[..., Client], models: Path, secrets: dict[str, str]
):
    shutil.rmtree(models / "single")
    client = make_client(keys=True, key=secrets["admin"], strict=False)
    judged = {"qid": 900, **UP, "grades": [0, 1, 2]}
    for answer in (
        client.post("/v1/explain", UP, x_kinrank_model="single"),
        client.get("/v1/examples", x_kinrank_model="single"),
        client.post("/v1/judgments", {"queries": [judged], "model": "single"}),
        client.post("/v1/judgments/withdraw", {"qid": 900, "model": "single"}),
    ):
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "no-model", "1")


def test_stored_examples_are_ranked_as_when_the_model_was_written(client: Client):
    found = client.get("/v1/examples").json
    assert len(found["examples"]) == 5
    for example in found["examples"]:
        body = {key: example[key] for key in ("ids", "features", "columns")} | {"feature_names": found["feature_names"]}
        ranked = client.post("/v1/rank", body).json
        scores = dict(zip(ranked["ids"], ranked["scores"], strict=True))
        assert [scores[document] for document in example["ids"]] == pytest.approx(example["scores"], abs=1e-5)
    unknown = client.get("/v1/examples", x_kinrank_model="unknown")
    assert (unknown.status, unknown.code) == (404, "unknown-model")


def test_search_explains_every_move(make_client: Callable[..., Client]):
    client = make_client(engine=InMemoryEngine([0.3, 0.9, 0.1, 0.6]))
    found = client.post("/v1/search", {"query": "up", "explain": True}).json
    assert found["explanation"]["reasons"].keys() == set(found["ids"])


@pytest.mark.browser
def test_page_without_an_engine(models: Path, browser: Browser, tmp_path: Path):
    """Replay an example, rank pasted candidates, read the model card and the metrics, and send a request from /docs."""
    messages: list[str] = []
    options = [str(models / "knn"), "--deadline", "5000", "--set", "drain_seconds=0.1"]
    with serving(tmp_path / "log", *options, env=one_thread()) as server:
        tab = browser.new_page(viewport={"width": 390, "height": 844})
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.goto(f"http://127.0.0.1:{server.port}/")
        expect(tab.locator("#no-engine")).to_contain_text("No engine is attached")
        expect(tab.locator("#about")).to_have_text("This model: ranker knn.")
        expect(tab.locator("#card")).to_contain_text("knn")
        expect(tab.locator("#note")).to_contain_text("The scores are those that the model had when it was written.")
        tab.locator("#examples button").first.click()
        expect(tab.locator("#note")).to_contain_text("The scores are those that the model had when it was written.")
        assert tab.locator("#weights .bar").count() == 2
        tab.locator("#candidates").fill("id,value,camp\na,0.2,1\nb,0.9,1\nc,0.5,1")
        tab.get_by_role("button", name="Rank").click()
        expect(tab.locator("#after li").first).to_have_attribute("data-id", "b")
        expect(tab.locator("#after li").first.locator(".why")).to_have_text(re.compile(r"^value \+"))
        tab.locator("#candidates").fill("id,value,camp\na,many,1")
        tab.get_by_role("button", name="Rank").click()
        expect(tab.locator("#note")).to_have_text("Row 1: value is not a number: many")
        tab.evaluate("poll()")
        expect(tab.locator("#metrics")).to_contain_text("Requests that rank3")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        tab.get_by_role("link", name="API", exact=True).click()
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
        stored = service.examples()[0].candidates
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
    ranker = KinRanker(5, encoder=None, n_members=2, n_repeats=1).fit(named)
    memory = QueryMemory.of(named)
    ranker.memory_ = MemoryPart(memory, np.arange(0), named.qid.astype(str))  # whether or not it pays
    ranker.save(tmp_path / "model", examples=named[:2])
    with Service({"model": tmp_path / "model"}) as service:
        asked = service.examples()[0].candidates
        assert service.rank(asked).fallback is None
        why = service.explain(asked)
        assert why.local_weights is not None
        assert set(why.local_weights) == set(camps.feature_names)
        assert why.judged is not None
        assert all("for *wish " in words for words in why.judged.values())
