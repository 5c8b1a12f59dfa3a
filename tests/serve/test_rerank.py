"""Documents of any retriever over HTTP: what people chose, who may say so, and everything that may go wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kinrank.errors import ParameterError
from kinrank.memory.memory import Memory
from kinrank.serve import Service, Settings
from kinrank.serve._http.app import create_app
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._http.run import Options
from kinrank.serve._keys import KeyRing
from tests.memory import abuse
from tests.serve.asgi import Client, Response
from tests.serve.conftest import PATIENT
from tests.serve.databases import copy_file

QUESTION, PARAPHRASE = "How do I reset my password?", "I want to reset my password"
TEXTS = ["Pay by card.", "Log in with your email.", "Reset it under Settings."]
DOCUMENTS = [{"id": name, "text": text} for name, text in zip(("billing", "login", "account"), TEXTS, strict=True)]
RIGHT = 2
Make = Callable[..., Client]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Services over a memory, without a model."""
    closing: list[Callable[[], None]] = []

    def make(
        *, settings: Settings = PATIENT, keys: bool = False, key: str | None = None, memory: str = "memory.db"
    ) -> Client:
        metrics = Metrics()
        service = Service({}, settings=settings, observer=metrics, memory=tmp_path / memory)
        service.start()
        client = Client(create_app(service, metrics=metrics, keys=KeyRing(tmp_path / "keys") if keys else None), key)
        closing.extend([client.runner.close, service.close])
        client.service = service  # type: ignore[attr-defined]
        return client

    yield make
    for close in closing:
        close()


@pytest.fixture
def client(make: Make) -> Client:
    return make()


def ask(client: Client, query: str = QUESTION, documents: Any = DOCUMENTS, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/rerank", {"query": query, "documents": documents, **fields})
    assert response.status == 200, response.body
    return response.json


def vote(client: Client, name: str, action: str, document: Any, **fields: Any) -> Response:
    about = {"object": {"object_id": document}}
    return client.post("/v1/events", {"query_id": name, "action_name": action, "event_attributes": about, **fields})


def order(answer: dict[str, Any]) -> list[int]:
    return [result["index"] for result in answer["results"]]


def teach(client: Client, *users: str, documents: Any = DOCUMENTS, document: Any = "account") -> None:
    for user in users:
        name = ask(client, documents=documents, user=user)["id"]
        assert vote(client, name, "liked", document).json == {"queries": 0, "events": 1, "ignored": {}}


# --- the format -------------------------------------------------------------------------------------------------------


def test_an_empty_memory_returns_the_order_of_the_retriever(client: Client):
    assert order(ask(client)) == [0, 1, 2]
    assert order(ask(client, scores=[0.1, 0.1, 0.7])) == [2, 0, 1]


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_answers_as_the_clients_of_others_expect(client: Client, path: str):
    body = {
        "model": "rerank-v3.5",
        "query": QUESTION,
        "documents": [TEXTS[0], {"text": TEXTS[1], "title": "Login"}, DOCUMENTS[2]],
        "top_n": 2,
        "return_documents": True,
        "rank_fields": ["text"],
        "max_tokens_per_doc": 4096,
    }
    answer = client.post(path, body).json
    assert set(answer) == {"id", "results", "model", "usage"}
    assert (answer["model"], answer["usage"]) == ("rerank-v3.5", {"total_tokens": 0})  # clients of Jina read both
    assert [result["document"] for result in answer["results"]] == [{"text": TEXTS[0]}, {"text": TEXTS[1]}]
    scores = [result["relevance_score"] for result in answer["results"]]
    assert 1 > scores[0] > scores[1] > 0
    assert "document" not in client.post(path, {**body, "return_documents": False}).json["results"][0]
    assert len(client.post(path, {**body, "top_n": 99}).json["results"]) == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"documents": []}, "length >= 1"),
        ({"documents": ["x"] * 1001}, "length <= 1000"),
        ({"documents": [{"title": "no text"}]}, "missing required field `text`"),
        ({"top_n": 0}, ">= 1"),
        ({"scores": [1.0]}, "3 documents and 1 scores"),
        ({"query": None}, "Expected `str`"),
    ],
)
def test_refuses_what_it_cannot_read(client: Client, fields: dict[str, Any], message: str):
    response = client.post("/v1/rerank", {"query": QUESTION, "documents": DOCUMENTS, **fields})
    assert (response.status, response.code) == (422, "invalid")
    assert message in response.json["error"]["message"]


def test_strange_texts_do_not_break_it(client: Client):
    strange = ["", "a\0b", "a", "a", "é" * 5000, "\U0001f600", {"id": 7, "text": "\0"}]
    for query in ("", "\0", "x" * 100_000, PARAPHRASE):
        name = ask(client, query, strange)["id"]
        assert sorted(order(ask(client, query, strange))) == list(range(7))
        for place in range(6):
            assert vote(client, name, "cited", place).json["events"] == 1
        assert vote(client, name, "cited", "7").json["events"] == 1
    assert sorted(order(ask(client, PARAPHRASE, strange))) == list(range(7))


# --- learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("documents", "document"), [(DOCUMENTS, "account"), (TEXTS, RIGHT), ([{"text": text} for text in TEXTS], "2")]
)
@pytest.mark.parametrize("action", ["chosen", "click", "cited", "liked"])
def test_what_was_chosen_comes_first_for_a_paraphrase(client: Client, documents: Any, document: Any, action: str):
    for user in ("ann", "bob"):
        name = ask(client, documents=documents, user=user)["id"]
        assert vote(client, name, action, document).json["events"] == 1
    answer = ask(client, PARAPHRASE, documents)
    assert order(answer)[0] == RIGHT
    assert answer["results"][0]["reason"] == f"chosen for *{QUESTION}*"


def test_memory_starts_from_the_scores_of_another_reranker(client: Client):
    scores = [0.1, 0.9, 0.5]
    assert order(ask(client, scores=scores, model="m", top_n=2)) == [1, 2]
    teach(client, "ann", "bob")
    assert order(ask(client, PARAPHRASE, scores=scores))[0] == RIGHT


def test_a_disliked_document_falls(client: Client):
    def score() -> float:
        return {hit["index"]: hit["relevance_score"] for hit in ask(client, PARAPHRASE)["results"]}[0]

    before = score()
    vote(client, ask(client)["id"], "disliked", "billing")
    assert score() < before


def test_a_vote_can_be_taken_back(client: Client):
    name = ask(client, user="ann")["id"]
    vote(client, name, "liked", "account")
    assert order(ask(client))[0] == RIGHT
    vote(client, name, "undo", "account")
    assert ask(client)["results"][-1]["reason"] != f"chosen for *{QUESTION}*"


def test_nobody_can_delete_votes_by_sending_another_text(client: Client):
    teach(client, "ann", "bob")
    changed = [*DOCUMENTS[:2], {"id": "account", "text": "Made up."}]
    name = ask(client, "opening hours", documents=changed, user="mallory")["id"]
    vote(client, name, "liked", "billing")
    assert order(ask(client))[0] == RIGHT
    assert order(ask(client, documents=changed))[0] == RIGHT


def test_votes_that_do_not_count_are_reported(client: Client):
    name = ask(client, top_n=2)["id"]
    ignored = [
        vote(client, each, action, document).json["ignored"]
        for each, action, document in (
            ("rerank-unknown", "liked", "account"),
            (name, "liked", "account"),  # was not among the first two
            (name, "impression", "billing"),
            (name, "liked", 0),  # has an id
            ("9f4e", "click", "billing"),  # a list of a search, and there is no database for these
        )
    ]
    assert ignored == [
        {"unknown list (known for 7 days)": 1},
        {"the list has no such document": 1},
        {"action does not count": 1},
        {"the list has no such document": 1},
        {"unknown list (counts if its query comes in within 2 days)": 1},
    ]
    assert len(client.service.reranker.memory) == 0  # type: ignore[attr-defined]


def test_every_process_knows_the_lists_and_votes_of_the_others(make: Make):
    one, other = make(), make()
    names = [ask(one, user=user)["id"] for user in ("ann", "bob")]
    assert [vote(other, name, "liked", "account").json["events"] for name in names] == [1, 1]
    assert order(ask(one, PARAPHRASE))[0] == order(ask(other, PARAPHRASE))[0] == RIGHT


def test_many_at_once_lose_nothing(make: Make):
    clients = [make(), make()]
    names = [ask(clients[0], user=f"u{number}")["id"] for number in range(20)]

    def learn(client: Client, some: list[str]) -> None:
        client.gather(
            *(
                client.request(
                    "POST",
                    "/v1/events",
                    json.dumps(
                        {
                            "query_id": name,
                            "action_name": "liked",
                            "event_attributes": {"object": {"object_id": "login"}},
                        }
                    ).encode(),
                )
                for name in some
            ),
            *(
                client.request("POST", "/v1/rerank", json.dumps({"query": QUESTION, "documents": TEXTS}).encode())
                for _ in some
            ),
        )

    threads = [threading.Thread(target=learn, args=(client, names[number::2])) for number, client in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    memory = clients[0].service.reranker.memory  # type: ignore[attr-defined]
    assert memory.forget(document="login") == 20


# --- who may say what -------------------------------------------------------------------------------------------------


def votes_on(client: Client, document: str) -> int:
    return client.service.reranker.memory.forget(document=document)  # type: ignore[attr-defined,no-any-return]


def test_one_person_has_one_vote_however_many_lists_they_ask_for(client: Client):
    teach(client, *["ann"] * 5)
    header = client.post("/v1/rerank", {"query": QUESTION, "documents": DOCUMENTS}, x_kinrank_client="ann").json
    vote(client, header["id"], "liked", "account")
    assert votes_on(client, "account") == 1


def test_the_user_is_known_to_the_memory_by_the_same_hash(client: Client):
    teach(client, "ann", "bob")
    memory = client.service.reranker.memory  # type: ignore[attr-defined]
    assert (memory.forget(user="ann"), b"ann" in Path(memory.path).read_bytes()) == (3, False)


def test_keys_decide_who_asks_votes_and_names_clients(make: Make, secrets: dict[str, str]):
    clients = {role: make(keys=True, key=secret) for role, secret in secrets.items()}
    body = {"query": QUESTION, "documents": DOCUMENTS}
    assert clients["events"].post("/v1/rerank", body).code == "wrong-role"
    assert make(keys=True).post("/v1/rerank", body).code == "no-key"
    name = ask(clients["query"])["id"]
    assert vote(clients["query"], name, "liked", "login").code == "wrong-role"
    for client_id in ("ann", "bob", "eve"):
        assert vote(clients["events"], name, "liked", "login", client_id=client_id).json["events"] == 1
    assert votes_on(clients["admin"], "login") == 1  # whoever holds the list is one person
    for client_id in ("ann", "bob", "eve"):
        assert vote(clients["admin"], name, "liked", "login", client_id=client_id).json["events"] == 1
    assert votes_on(clients["admin"], "login") == 3


def test_lists_cannot_be_made_up_without_asking(client: Client):
    made_up = {"query_id": "rerank-1", "user_query": QUESTION, "query_response_hit_ids": ["login"], "client_id": "eve"}
    event = {
        "query_id": "rerank-1",
        "action_name": "click",
        "client_id": "eve",
        "event_attributes": {"object": {"object_id": "login"}},
    }
    answer = client.post("/v1/events", {"queries": [made_up], "events": [event]}).json
    assert (answer["queries"], answer["events"]) == (0, 0)
    assert order(ask(client)) == [0, 1, 2]


class Http:
    """The door of /v1/rerank."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def like(self, question: str, documents: list[str], liked: str, user: str | None) -> None:
        found = [{"id": name, "text": name} for name in documents]
        name = ask(self.client, question, found, **({} if user is None else {"user": user}))["id"]
        assert vote(self.client, name, "liked", liked).json["events"] == 1

    def first(self, question: str, documents: list[str]) -> str:
        found = [{"id": name, "text": name} for name in documents]
        return documents[order(ask(self.client, question, found))[0]]


# Python's caller without a name is the owner, who teaches; callers over HTTP without one may be one person.
@pytest.mark.parametrize("attack", [*abuse.ATTACKS, abuse.templates_without_a_name])
def test_one_person_moves_no_first_place(client: Client, attack: Callable[[abuse.Door, abuse.World], None]):
    abuse.check(Http(client), attack)


# --- without a model, without a memory --------------------------------------------------------------------------------


def test_without_a_model_only_its_own_paths_are_there(client: Client):
    assert client.get("/readyz").json == {"status": "ready", "versions": []}
    assert [client.get(path).status for path in ("/healthz", "/metrics", "/docs", "/openapi.json")] == [200] * 4
    assert [client.get("/").status, client.post("/v1/rank", {}).status, client.get("/v1/model").status] == [404] * 3
    assert set(client.get("/openapi.json").json["paths"]) == {"/v1/rerank", "/v1/events", "/healthz", "/readyz"}


def test_without_a_memory_it_says_what_to_do(make_client: Callable[..., Client]):
    client = make_client()
    response = client.post("/v1/rerank", {"query": QUESTION, "documents": TEXTS})
    assert (response.status, response.code) == (409, "no-memory")
    assert vote(client, "rerank-1", "liked", 0).code == "no-keys"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "nothing to serve"),
        ({"memory": "m.db", "judgments": "sqlite:///x", "keys": "keys"}, "are for a model"),
        ({"memory": "m.db", "engine": "http://localhost:9200/x"}, "are for a model"),
        ({"memory": "m.db", "host": "0.0.0.0"}, "there are no keys"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(ParameterError, match=message):
        Options({}, **options).check()


# --- what may fail ----------------------------------------------------------------------------------------------------


def test_a_memory_that_is_slow_or_broken_costs_no_answer(make: Make):
    client = make(settings=Settings(deadline=0.05))
    memory: Memory = client.service.reranker.memory  # type: ignore[attr-defined]
    with memory._lock:
        late = ask(client, scores=[0.1, 0.1, 0.7], top_n=2)
    assert (order(late), late["fallback"]) == ([2, 0], "late")
    memory.close()
    broken = ask(client)
    assert (order(broken), broken["fallback"]) == ([0, 1, 2], "model-error")
    assert vote(client, broken["id"], "liked", "account").code == "not-kept"
    page = client.get("/metrics").body.decode()
    assert 'kinrank_fallbacks_total{model="memory",reason="late"} 1.0' in page
    assert 'kinrank_fallbacks_total{model="memory",reason="model-error"} 1.0' in page


def test_votes_that_cannot_be_stored_can_be_sent_again(client: Client):
    name = ask(client)["id"]
    client.service.reranker.memory.close()  # type: ignore[attr-defined]
    response = vote(client, name, "liked", "account")
    assert (response.status, response.code) == (503, "not-kept")


def test_a_restored_copy_of_the_memory_is_counted(make: Make, tmp_path: Path):
    client = make()
    teach(client, "ann")
    copy_file(str(tmp_path / "memory.db"), str(tmp_path / "dump.db"))
    teach(client, "bob", "eve")
    ask(client)
    copy_file(str(tmp_path / "dump.db"), str(tmp_path / "memory.db"))
    ask(client)
    page = client.get("/metrics").body.decode()
    assert 'kinrank_memory_store{what="restored"} 1.0' in page
    assert 'kinrank_memory_store{what="lost"} 2.0' in page  # the votes of bob and eve
    assert 'kinrank_memory_store{what="failures"} 0.0' in page
    assert votes_on(client, "account") == 1


def test_opensearch_can_call_it_as_a_remote_model(client: Client):
    # The connector fills in this body; its built-in function for Cohere casts index to Integer and the score to Double.
    body = '{ "query": "${query}", "documents": ${documents}, "top_n": ${top_n} }'
    for name, value in {"query": PARAPHRASE, "documents": json.dumps(TEXTS), "top_n": "100"}.items():
        body = body.replace(f"${{{name}}}", value)
    for liked in (None, RIGHT, RIGHT):
        if liked is not None:
            vote(client, ask(client, documents=TEXTS)["id"], "liked", liked)
        results = json.loads(client.post("/v1/rerank", json.loads(body)).body)["results"]
        scores: list[float | None] = [None] * len(results)
        for result in results:
            assert type(result["index"]) is int
            assert type(result["relevance_score"]) is float  # not 0 or 1: Jackson reads an Integer there
            scores[result["index"]] = result["relevance_score"]
        assert len(scores) == len(TEXTS)
        assert None not in scores
    assert scores.index(max(filter(None, scores))) == RIGHT
