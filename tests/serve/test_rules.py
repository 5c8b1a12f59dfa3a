"""Rules of editors: what they do to a ranking, and how they reach every replica."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinrank import KinRanker, QuerySet
from kinrank.data.hashes import query_keys
from kinrank.errors import DataError
from kinrank.serve._database import open_database
from kinrank.serve._events.counting import UNIT
from kinrank.serve._live_rules import LiveRules
from kinrank.serve._rules import Action, Effect, Rule, RuleBook, RuleStore, effects_of
from kinrank.serve.messages import Ranking
from tests.processes import wait_until
from tests.serve.asgi import Client
from tests.serve.databases import DATABASES
from tests.serve.engine import InMemoryEngine

UP = {"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]], "text": "Iron Man"}
RANKED = Ranking(["a", "b", "c", "d", "e"], [5.0, 4.0, 3.0, 2.0, 1.0], teams=["x", "y", "x", "y", "x"])


def rule(action: str, document: str, places: int | None = None, number: int = 1, **options: Any) -> Rule:
    made = Rule.new(options.pop("query", "iron man"), Action(action), document, places=places, **options)
    return replace(made, number=number)


@pytest.mark.parametrize(
    ("rules", "order"),
    [
        ([rule("pin", "d")], "dabce"),
        ([rule("pin", "a", 3)], "bcade"),
        ([rule("pin", "a", 99)], "bcdea"),
        ([rule("pin", "d", 2, 1), rule("pin", "e", 1, 2)], "edabc"),
        ([rule("pin", "d", 1, 1), rule("pin", "e", 1, 2)], "edabc"),
        ([rule("hide", "a")], "bcde"),
        ([rule("hide", "a", number=1), rule("pin", "c", number=2)], "cbde"),
        ([rule("boost", "d", 2)], "adbce"),
        ([rule("boost", "d", 99)], "dabce"),
        ([rule("boost", "b", -2)], "acdbe"),
        ([rule("boost", "d", 2, 1), rule("hide", "a", number=2)], "dbce"),
        ([rule("pin", "nowhere")], "abcde"),
        ([rule("hide", "a", query="toy story")], "abcde"),
        ([rule("hide", "a", query=" IRON  man")], "bcde"),
        ([rule("hide", "a", query="iron man 2")], "abcde"),
        ([rule("hide", "a", query="ironman", also_similar=True)], "bcde"),
        ([rule("hide", "a", query="iron man 2", also_similar=True)], "abcde"),
        ([rule("hide", "a", query="iron maiden", also_similar=True)], "abcde"),
        ([rule("hide", "a", query="man in the iron mask", also_similar=True)], "abcde"),
        # The rule of this very query counts, not that of a similar one.
        ([rule("pin", "a", 5, 1), rule("hide", "a", number=2, query="ironman", also_similar=True)], "bcdea"),
        ([rule("hide", document, number=at) for at, document in enumerate("abcde")], ""),
    ],
)
def test_what_rules_do(rules: list[Rule], order: str):
    changed = RuleBook(rules).apply(RANKED, "Iron Man")
    assert "".join(changed.ids) == order
    assert changed.scores == [5.0 - "abcde".index(document) for document in order]
    assert changed.teams == ["xyxyx"["abcde".index(document)] for document in order]
    assert (changed.rules is None) == (order == "abcde")


def test_rules_of_a_query_without_text_or_after_their_end_do_nothing():
    hide = rule("hide", "a", days=1)
    assert RuleBook([hide]).apply(RANKED, None) is RANKED
    assert RuleBook([hide], now=lambda: hide.expires).apply(RANKED, "iron man") is RANKED


@pytest.mark.parametrize(
    "wrong",
    [
        {"query": " "},
        {"document": ""},
        {"days": 0},
        {"days": float("nan")},
        {"places": 0},
        {"places": 1001},
        {"action": "boost", "places": None},
        {"action": "hide", "places": 1},
        {"note": "\0"},
    ],
)
def test_senseless_rule_is_refused(wrong: dict[str, Any]):
    with pytest.raises(DataError):
        rule(**{"action": "pin", "document": "a", "places": 1, **wrong})


@pytest.fixture(params=[pytest.param(name, marks=database.marks) for name, database in DATABASES.items()])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with DATABASES[request.param].empty(tmp_path) as address:
        yield address


def test_rule_of_one_replica_holds_on_another_until_it_is_removed(
    address: str, make_client: Callable[..., Client], secrets: dict[str, str]
):
    one = make_client(keys=True, judgments=address, key=secrets["editor"])
    other = make_client(keys=True, judgments=address, engine=InMemoryEngine([0.2, 0.9, 0.5]), key=secrets["editor"])

    def order() -> list[str]:
        return other.post("/v1/rank", UP).json["ids"]

    assert order() == ["b", "c", "a"]
    body = {"query": "iron man", "action": "pin", "document": "a", "also_similar": True, "note": "new film"}
    added = one.post("/v1/rules", body).json
    assert (added["rule"], added["author"], added["places"]) == (1, "editor", 1)
    wait_until(lambda: order() == ["a", "b", "c"], 5.0)
    answer = other.post("/v1/rank", {**UP, "text": "ironman"}).json
    assert answer["rules"] == ["rule 1 pins 'a' to place 1 for queries like 'iron man'"]
    assert other.post("/v1/rank", {**UP, "text": "toy story"}).json["rules"] is None

    one.post("/v1/rules", {"query": "Iron  man", "action": "hide", "document": "a"})
    wait_until(lambda: order() == ["b", "c"], 5.0)
    # After the model and before paging: a hidden document leaves no gap.
    one.post("/v1/rules", {"query": "up", "action": "hide", "document": "d1"})
    wait_until(lambda: "d1" not in other.post("/v1/search", {"query": "up"}).json["ids"], 5.0)
    found = [other.post("/v1/search", {"query": "up", "from": at, "size": 1}).json["ids"] for at in range(3)]
    assert found == [["d2"], ["d0"], []]

    assert one.send("DELETE", "/v1/rules?rule=1", b"").code == "unknown-rule"  # replaced by the second
    assert one.send("DELETE", "/v1/rules?rule=2", b"").json["removed_by"] == "editor"
    wait_until(lambda: order() == ["b", "c", "a"], 5.0)
    assert [each["rule"] for each in other.get("/v1/rules").json["rules"]] == [3]
    past = other.get("/v1/rules?history=true").json["rules"]
    assert [(each["rule"], each["removed_by"]) for each in past] == [(1, "editor"), (2, "editor"), (3, None)]


def test_a_place_takes_one_pin(address: str, make_client: Callable[..., Client], secrets: dict[str, str]):
    client = make_client(keys=True, judgments=address, key=secrets["editor"])
    pin = {"query": "iron man", "action": "pin", "document": "a"}
    assert client.post("/v1/rules", pin).json["rule"] == 1
    refused = client.post("/v1/rules", {**pin, "query": "Iron  Man", "document": "b"})
    assert (refused.status, refused.code) == (422, "invalid")
    assert refused.json["error"]["message"] == (
        "place 1 of 'Iron  Man' is taken: rule 1 pins 'a' to place 1 for 'iron man'; remove it first, or pin to "
        "another place"
    )
    for allowed in (
        {"document": "b", "places": 2},
        {"query": "heat", "document": "b"},
        {"document": "a"},  # in its own place
        {"document": "c", "action": "boost", "places": 1},
    ):
        assert client.post("/v1/rules", {**pin, **allowed}).status == 200
    number = max(each["rule"] for each in client.get("/v1/rules").json["rules"] if each["document"] == "a")
    client.send("DELETE", f"/v1/rules?rule={number}", b"")
    assert client.post("/v1/rules", {**pin, "document": "d"}).status == 200


def test_search_fetches_pinned_documents_within_the_filter(make_client: Callable[..., Client], secrets: dict[str, str]):
    client = make_client(keys=True, engine=InMemoryEngine([0.1, 0.2, 0.3, 0.9]), key=secrets["admin"])
    client.post("/v1/rules", {"query": "up", "action": "pin", "document": "d3", "places": 2})

    def search(**options: Any) -> Any:
        return client.post("/v1/search", {"query": "up", "window": 2, "size": 2, **options}).json

    wait_until(lambda: search()["rules"] is not None, 5.0)
    found = search()
    assert (found["ids"], found["engine_ids"], "remembered" in found) == (["d1", "d3"], ["d0", "d1"], False)
    assert set(search(filter={"ids": {"values": ["d0", "d1"]}})["ids"]) == {"d0", "d1"}


def test_preview_shows_known_queries_and_their_share(
    address: str, make_client: Callable[..., Client], secrets: dict[str, str]
):
    client = make_client(keys=True, judgments=address, key=secrets["admin"])
    asked = {"iron man": 3, "ironman": 4, "toy story": 5, "rare": 1}
    queries = [
        {"query_id": f"{text} {n}", "user_query": text, "client_id": f"c{n}", "query_response_hit_ids": ["a"]}
        for text, count in asked.items()
        for n in range(count)
    ]
    assert client.post("/v1/events", {"queries": queries}).json["queries"] == 13

    def preview(**options: Any) -> Any:
        return client.post("/v1/rules/preview", {"query": "Iron Man", **options}).json

    wait_until(lambda: preview()["known"] == 3, 5.0)  # too few people asked the rare one
    found = preview()
    assert [(each["query"], round(each["share"] * 13)) for each in found["queries"]] == [
        ("ironman", 4),
        ("iron man", 3),
    ]
    assert found["share"] == pytest.approx(7 / 13)
    assert [each["query"] for each in preview(also_similar=False)["queries"]] == ["iron man"]


def test_preview_knows_the_judged_queries_of_a_model_around_another(
    models: Path, camps: QuerySet, make_client: Callable[..., Client], secrets: dict[str, str]
):
    texts = np.array(["iron man", "Ironman", *(f"judged {number}" for number in range(len(camps) - 2))])
    quick = KinRanker(base="single(learner=lambdamart)", memory=False, local=False, n_members=2, n_repeats=1)
    quick.fit(camps.replace(query_columns={"text": texts})).save(models / "single")
    client = make_client(keys=True, key=secrets["admin"])
    found = client.post("/v1/rules/preview", {"query": "man, iron", "also_similar": True}).json
    assert (found["known"], [each["query"] for each in found["queries"]]) == (60, ["iron man"])


def test_rules_of_a_restored_copy_are_followed(address: str, request: pytest.FixtureRequest):
    database = DATABASES[request.node.callspec.params["address"]]
    rules = LiveRules(address)
    rules.add(rule("hide", "a"))
    rules.close()  # copying a database ends its connections
    database.dump(address)
    rules.add(rule("hide", "b"))
    rules.refresh()
    assert rules.book.apply(RANKED, "iron man").ids == ["c", "d", "e"]
    rules.close()
    database.restore(address)
    assert rules.add(rule("hide", "c")).number == 2  # a number that was used before
    rules.refresh()
    assert rules.book.apply(RANKED, "iron man").ids == ["b", "d", "e"]
    rules.close()


def test_service_without_a_database_takes_no_rules(models: Path):
    from kinrank.errors import UnsupportedByModelError
    from kinrank.serve import Service

    with Service({"knn": models / "knn"}) as service, pytest.raises(UnsupportedByModelError):
        service.rules.add(rule("hide", "a"))


def test_a_pin_of_a_document_that_does_not_exist_is_refused(
    address: str, make_client: Callable[..., Client], secrets: dict[str, str]
):
    engine = InMemoryEngine([0.2, 0.9])
    client = make_client(keys=True, judgments=address, engine=engine, key=secrets["editor"])
    pin = {"query": "iron man", "action": "pin", "document": "d7"}
    refused = client.post("/v1/rules", pin)
    assert refused.status == 422
    assert "the engine has no document 'd7'" in refused.json["error"]["message"]
    assert client.post("/v1/rules", {**pin, "document": "d1"}).status == 200
    taken = client.post("/v1/rules", {**pin, "document": "d0"})
    assert (
        "place 1 of 'iron man' is taken: rule 1 pins 'd1' to place 1 for 'iron man'" in taken.json["error"]["message"]
    )
    engine.running = False
    assert client.post("/v1/rules", {**pin, "query": "toy story"}).status == 200  # nobody knows


def test_a_rule_that_ended_is_said_to_have_ended(
    address: str, make_client: Callable[..., Client], secrets: dict[str, str]
):
    client = make_client(keys=True, judgments=address, key=secrets["editor"])
    client.post("/v1/rules", {"query": "iron man", "action": "hide", "document": "a", "days": 1e-6})
    wait_until(lambda: not client.get("/v1/rules").json["rules"], 5.0)
    ended = client.send("DELETE", "/v1/rules?rule=1", b"")
    assert ended.code == "unknown-rule"
    assert "rule 1 hides 'a' for 'iron man' expired on 20" in ended.json["error"]["message"]


def test_two_wide_pins_of_similar_queries_do_not_claim_one_place(address: str):
    rules = LiveRules(address)
    first = rules.add(rule("pin", "a", query="iron man", also_similar=True))
    with pytest.raises(DataError, match=r"'Ironman' is taken: rule 1 pins 'a' .* for queries like 'iron man'"):
        rules.add(rule("pin", "b", query="Ironman", also_similar=True))
    rules.add(rule("pin", "a", query="man iron", also_similar=True))  # the same document
    rules.add(rule("pin", "b", 2, query="Ironman", also_similar=True))
    rules.add(rule("pin", "b", query="iron man 2", also_similar=True))  # not like it
    rules.add(rule("pin", "b", query="ironman"))  # of this very query: an exception
    rules.remove(first.number, "anna")
    rules.close()


def test_a_redirect_searches_another_query(address: str, make_client: Callable[..., Client], secrets: dict[str, str]):
    client = make_client(keys=True, judgments=address, engine=InMemoryEngine([0.1, 0.9]), key=secrets["editor"])
    assert client.post("/v1/search", {"query": "upp"}).json["ids"] == []
    redirect = {"query": "upp", "action": "redirect", "document": "up", "also_similar": True}
    assert client.post("/v1/rules", redirect).json["words"] == "rule 1 searches 'up' for queries like 'upp'"
    wait_until(lambda: client.post("/v1/search", {"query": "upp"}).json["ids"] == ["d1", "d0"], 5.0)
    found = client.post("/v1/search", {"query": "U pp"}).json
    assert (found["ids"], found["rules"]) == (["d1", "d0"], ["rule 1 searches 'up' for queries like 'upp'"])
    # No chain, and so no loop: what is searched instead is searched as it is.
    client.post("/v1/rules", {"query": "up", "action": "redirect", "document": "upp"})
    wait_until(lambda: client.post("/v1/search", {"query": "up"}).json["ids"] == [], 5.0)
    assert client.post("/v1/search", {"query": "upp"}).json["ids"] == ["d1", "d0"]
    assert client.post("/v1/rank", {**UP, "text": "upp"}).json["rules"] is None
    for wrong in ({"document": "down"}, {"document": " UPP"}, {"places": 1}, {"query": "u p p", "document": "down"}):
        assert client.post("/v1/rules", {**redirect, **wrong}).status == 422
    again = client.post("/v1/rules", redirect).json
    assert [each["rule"] for each in client.get("/v1/rules").json["rules"]] == [2, again["rule"]]


def test_effects_count_the_week_before_a_rule_and_the_last_week(address: str):
    database = open_database(address)
    store, day = RuleStore(database, now=lambda: 100.5 * 86_400), 86_400
    pinned = store.add(replace(rule("pin", "a"), created=92.5 * day, expires=200.0 * day))
    redirect = store.add(replace(rule("redirect", "heat", query="haet"), created=99.0 * day, expires=200.0 * day))
    unknown = store.add(replace(rule("pin", "few", 2), created=99.0 * day, expires=200.0 * day))
    key, other = query_keys(np.array(["iron man", "haet"])).view(np.int64).tolist()
    days = {84: 7, 85: 1, 91: 2, 92: 100, 94: 4, 100: 8}
    with database.writing() as execute:
        for query in (key, other):
            for at, looks in days.items():
                cells = {"a": [looks * UNIT, UNIT], "b": [UNIT, 0], "few": [50 * UNIT, 0]}
                row = ("m", query, at, 1.0, json.dumps(cells), 1)
                execute("INSERT INTO kinrank_counts VALUES (?, ?, ?, ?, ?, ?)", row)
            row = ("m", query, "[{}, {}]", 3, json.dumps({"a": 2, "b": 1}), 80)
            execute("INSERT INTO kinrank_people VALUES (?, ?, ?, ?, ?, ?)", row)
    found = effects_of(database, store.rules(), 100.5 * day)
    assert found[pinned.number] == Effect(3.0, 2.0, 12.0, 2.0)
    assert found[redirect.number] == Effect(106.0, 2.0, 9.0, 1.0)
    assert found[unknown.number].words == ""  # too few people were shown it
    database.close()


def test_rules_are_listed_with_what_they_changed(
    address: str, make_client: Callable[..., Client], secrets: dict[str, str]
):
    client = make_client(keys=True, judgments=address, key=secrets["admin"])
    client.post("/v1/rules", {"query": "iron man", "action": "pin", "document": "a"})
    assert "effect" not in client.get("/v1/rules").json["rules"][0]
    lists = [
        {"query_id": f"q{n}", "user_query": "iron man", "client_id": f"c{n}", "query_response_hit_ids": ["a"]}
        for n in range(4)
    ]
    clicks = [
        {"query_id": f"q{n}", "client_id": f"c{n}", "action_name": "click",
         "event_attributes": {"object": {"object_id": "a"}}}
        for n in range(3)
    ]  # fmt: skip
    client.post("/v1/events", {"queries": lists, "events": clicks})
    words = "in the week before not looked at, in the last week chosen 3 times in 4 looks"
    wait_until(lambda: client.get("/v1/rules?effects=true").json["rules"][0].get("effect") == words, 5.0)
    assert client.get("/v1/rules?effects=yes").status == 422
