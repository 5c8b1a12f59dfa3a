"""What people choose while the service runs: from one replica to the order of another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from typer.testing import CliRunner

from kinrank import KinRanker, QuerySet
from kinrank.cli.app import app
from kinrank.data.hashes import query_keys
from kinrank.engines.chosen_for import Choice, TextLimits
from kinrank.errors import NotStoredError, OtherHistoryError, StoreUnavailableError
from kinrank.memory._votes import RankCurve, ShownList, count_votes
from kinrank.memory.evidence import Evidence, add_totals
from kinrank.memory.rate import _combine, _heights
from kinrank.rankers.base import load
from kinrank.registry import import_extra
from kinrank.serve import Observer, Service, Settings
from kinrank.serve import _database as database_module
from kinrank.serve import _workers as workers_module
from kinrank.serve._database import next_revision, open_database
from kinrank.serve._events import store as store_module
from kinrank.serve._events.counting import Tally
from kinrank.serve._events.log import Click, EventLog, Shown, _to_evidence
from kinrank.serve._events.store import CellRow, EventStore
from kinrank.serve._http.app import create_app
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._keys import KeyRing, Role, add_key
from kinrank.serve._ranking import PLACES, WINDOW, explored_order
from kinrank.serve._served_model import QueryEncoder, ServedModel, warm_up
from tests.processes import PATIENCE, wait_until
from tests.serve.asgi import Client
from tests.serve.databases import DATABASES, sqlite_address
from tests.serve.observers import RecordingObserver

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
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    X = rng.random((40, 1), dtype=np.float32)
    grades = X[:, 0] + rng.normal(0.0, 0.5, 40) > 0.5  # noisy, so that a prediction is not certain
    texts = np.array([f"query {number}" for number in range(10)])
    names = {"qid": np.repeat(np.arange(10), 4), "doc_id": np.array([f"d{row}" for row in range(40)])}
    queries = QuerySet.from_arrays(X, grades.astype(int), **names, query_columns={"text": texts})
    folder = tmp_path_factory.mktemp("choices") / "model"
    KinRanker(
        encoder=None,
        memory=False,
        local=False,
        trees="lambdamart(n_trees=5)",
        settings={"n_members": 2, "n_repeats": 1},
    ).fit(queries).save(folder)
    return folder


@pytest.fixture(params=[pytest.param(name, marks=database.marks) for name, database in DATABASES.items()])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with DATABASES[request.param].empty(tmp_path) as address:
        yield address


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    return {role.value: f"Bearer {add_key(tmp_path / 'keys', role.value, role)}" for role in Role}


@pytest.fixture
def replica(model: Path, tmp_path: Path, keys: dict[str, str]) -> Iterator[Callable[..., Client]]:
    closing: list[Callable[[], None]] = []

    def make(address: str, settings: Settings = SETTINGS) -> Client:
        metrics = Metrics()
        service = Service({"default": model}, settings=settings, observer=metrics, judgments=address)
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
    assert Settings.watch_interval == 1.0  # so that it takes about two seconds
    one, other = replica(address), replica(address)
    assert order(other, keys) == ["a", "b", "c"]
    for number in range(12):
        answer = one.post("/v1/rank", ALIEN, authorization=keys["query"], x_kinrank_client=f"person {number}").json
        body = {"events": [clicks(f"person {number}", answer["query_id"])]}
        response = one.post("/v1/events", body, authorization=keys["events"])
        assert (response.status, response.json) == (200, {"queries": 0, "events": 1, "ignored": {}})
    for client in (other, one):
        wait_until(lambda client=client: order(client, keys)[0] == "c")


NOW = datetime.now(UTC)
# What two versions of UBI's collector for browsers send: arrays of one record with messages, and single objects with
# positions and times in milliseconds.
FIRST = {
    "application": "shop",
    "action_name": "click",
    "query_id": "l1",
    "session_id": "s1",
    "client_id": "c1",
    "user_id": "",
    "timestamp": NOW.isoformat(timespec="milliseconds"),
    "message_type": "INFO",
    "message": "Alien (c)",
    "event_attributes": {
        "object": {"object_id": "c", "object_id_field": "sku", "description": "Alien", "price": 7.5, "tags": ["film"]}
    },
}
SECOND = {
    "action_name": "click",
    "client_id": "c1",
    "query_id": "l1",
    "timestamp": round(NOW.timestamp() * 1000),
    "message_type": "INFO",
    "event_attributes": {
        "dwell_seconds": 3,
        "object": {"object_type": "product", "object_id": "c", "object_detail": {"brand": "x"}, "key_value": "c"},
        "position": {"ordinal": 3, "x": 20, "y": 240, "trail": "home > search"},
    },
}
QUERY = {
    "application": "shop",
    "query_id": "l1",
    "user_query": "alien",
    "client_id": "c1",
    "object_id_field": "sku",
    "timestamp": NOW.isoformat(timespec="milliseconds"),
    "message_type": "INFO",
    "message": "",
    "query_attributes": {},
}


def test_the_collectors_of_ubi_are_understood(tmp_path, replica, keys):
    client = replica(sqlite_address(tmp_path))
    for body, expected in (
        ([FIRST], (0, 0, {"unknown list (counts if its query comes in within 2 days)": 1})),
        (SECOND, (0, 0, {"unknown list (counts if its query comes in within 2 days)": 1})),
        ([QUERY], (0, 0, {"no documents": 1})),  # the list is known from log_shown
        ([QUERY | {"query_response_hit_ids": ["a", "b", "c"]}], (1, 0, {}, 1)),  # one that this service has not ranked
        ([FIRST | {"action_name": "impression"}], (0, 0, {"action does not count": 1})),
        ([FIRST | {"event_attributes": {"object": {"object_id": None}}}], (0, 0, {"no document": 1})),
        ({"queries": [QUERY], "events": [FIRST, SECOND]}, (0, 2, {"no documents": 1})),
    ):
        response = client.post("/v1/events", body, authorization=keys["events"])
        assert (response.status, tuple(response.json.values())) == (200, expected)


# --- what is stored of people -----------------------------------------------------------------------------------------

CURVES = {"default": RankCurve.of({})}


def rows_of(log: EventLog, table: str) -> list[Any]:
    with log.store.database.reading() as execute:
        return execute(f"SELECT * FROM kinrank_{table}", ())


def lists(*clients: str, text: str = "alien", day: float = 20_000) -> list[Shown]:
    return [Shown(f"{client} {text} {day}", "default", text, ["a", "b"], client, day * 86_400) for client in clients]


def click(shown: Shown) -> Click:
    return Click(f"click {shown.query_id}", shown.query_id, "b")


@pytest.fixture
def clock() -> list[float]:
    return [20_000 * 86_400.0]


@pytest.fixture
def log(address: str, clock: list[float]) -> Iterator[EventLog]:
    log = EventLog(address, secret=b"kept elsewhere", now=lambda: clock[0])
    yield log
    log.close()


def record(log: EventLog, shown: list[Shown]) -> None:
    log.record(shown, [click(each) for each in shown])
    log.step(CURVES)


def counted(log: EventLog) -> list[tuple[float, float]]:
    return [(cell.looks, cell.choices) for cell in log.store.read("default").cells if cell.document == "b"]


def test_texts_of_few_clients_and_names_of_clients_are_not_stored(log: EventLog):
    record(log, lists("ann", "bob", text="my secret"))
    record(log, lists("ann", "bob", "cid"))
    assert [row[2] for row in rows_of(log, "texts")] == ["alien"]
    tables = ("lists", "clicks", "votes", "counts", "people", "texts", "pending", "news")
    # these ids of lists name clients and texts: real ones are random
    stored = [[value for value in row if " 20000" not in str(value)] for table in tables for row in rows_of(log, table)]
    assert not any(word in str(stored) for word in ("ann", "bob", "cid", "secret"))


def test_a_forgotten_client_counts_no_more(log: EventLog, address: str, tmp_path: Path):
    record(log, lists("ann", "bob", "cid", "dan"))
    assert counted(log) == [(2.0, 4.0)]
    (tmp_path / "secret").write_bytes(b"kept elsewhere")
    forget = ["admin", "forget", address, "--client", "ann"]
    assert CliRunner().invoke(app, forget).stdout == "0\n"  # without the secret nobody finds her
    done = CliRunner().invoke(app, [*forget, "--client-secret", str(tmp_path / "secret")])
    assert (done.exit_code, done.stdout) == (0, "1\n")
    hashes = set(log.clients.of_all_periods("ann"))
    stored = str([rows_of(log, table) for table in ("lists", "votes", "people")])
    assert not any(str(value) in stored for value in hashes)
    assert len(rows_of(log, "clicks")) == 3
    assert counted(log) == [(1.5, 3.0)]
    log.step(CURVES)
    assert counted(log) == [(1.5, 3.0)]
    record(log, lists("eve"))
    assert counted(log) == [(2.0, 4.0)]


def test_too_few_clients_after_one_is_forgotten_are_no_evidence(log: EventLog, clock: list[float]):
    record(log, lists("ann", "bob", "cid"))
    assert log.store.forget(log.clients.of_all_periods("cid")) == 1
    log.step(CURVES)
    assert counted(log) == [(0.0, 0.0)]
    assert rows_of(log, "texts") == []
    assert log.store.forget([]) == 0


def choosers(log: EventLog) -> list[list[int]]:
    return [entry for row in rows_of(log, "people") for entry in json.loads(row[2])[1].get("b", [])]


def lifting(log: EventLog) -> list[bool]:
    return [not cell.few for cell in log.store.read("default").cells if cell.document == "b"]


def test_one_clicker_lifts_nothing_and_three_do(log: EventLog, model: Path, clock: list[float]):
    ranker = cast(KinRanker, load(model))
    features = np.array([[1.0], [0.0]], dtype=np.float32)
    names = {"doc_id": ["a", "b"], "query_columns": {"text": ["alien"]}}
    asked = QuerySet.from_arrays(features, qid=[1, 1], **names)
    served = ServedModel("", ranker, ranker, False, QueryEncoder(ranker))
    feed = log.feed("default", Observer())

    def places() -> tuple[float, list[str]]:
        """Return the expected rate of choices of b, and the documents that are remembered."""
        found = cast(KinRanker, feed.update(served).ranker)
        rates = found.chosen_.posterior.mean(p, found.chosen_.totals(asked))
        return rates[1], found.remembered(asked.take_rows([0]), 5)

    def why() -> str:
        return cast(KinRanker, feed.update(served).ranker).explain(asked)[0].chosen(1)

    p = ranker.chosen_.calibration.predict(ranker.predict(asked), asked.offsets)
    predicted = p[1]
    log.record(lists("fay", "gil", "hal"), [])  # look, and choose nothing
    log.step(CURVES)
    assert 0 < places()[0] < predicted
    for day in (20_000, 20_001, 20_002):  # one person, each day
        clock[0] = day * 86_400.0
        record(log, lists("ann", day=day))
    assert places() == (pytest.approx(predicted), [])  # 3 choices in 3 looks
    assert why() == "chosen 3 times in 3 looks for this query, by too few people to lift it yet"
    assert lifting(log) == [False] * 3
    record(log, lists("bob", "cid", day=20_002))
    lifted, remembered = places()
    assert (lifted > predicted + 0.1, remembered) == (True, ["b"])
    assert why().startswith("chosen 5 times in 4 looks for this query")
    assert "too few" not in why()
    assert lifting(log) == [True] * 3
    assert len(choosers(log)) == 3
    record(log, lists(*"defghijk", day=20_002))  # more need not be told apart
    assert len(choosers(log)) == 6
    # Who is forgotten has not chosen, also on days whose lists are deleted; nor has who chose too long ago.
    log.store.expire(20_003, 20_000)
    gone = [value for name in ("ann", "bob", "cid", *"defghijk") for value in log.clients.of_all_periods(name)]
    assert log.store.forget(gone) == 0
    log.step(CURVES)
    assert places()[1] == []
    assert lifting(log) == [False] * 3
    record(log, lists("eve", "lea", day=20_002))
    assert lifting(log) == [False] * 3
    record(log, lists("max", day=20_002))
    assert lifting(log) == [True] * 3
    log.store.expire(20_004, 20_003)
    assert rows_of(log, "people") == []


def test_a_document_that_people_keep_choosing_stays_lifted(log: EventLog, clock: list[float]):
    record(log, lists("ann", "bob", "cid"))
    clock[0] += 86_400.0
    record(log, lists("ann", "dan", day=20_001))
    assert len(choosers(log)) == 4
    log.store.expire(20_001, 20_001)  # what two of the four chose is too long ago
    assert (lifting(log), len(choosers(log))) == ([False], 2)
    for day in (20_001, 20_002):
        clock[0] = day * 86_400.0
        record(log, lists("eve", "fay", "gil", "hal", day=day))
        assert len(choosers(log)) == 6
    log.store.expire(20_002, 20_002)
    assert (lifting(log), counted(log)) == ([True], [(2.0, 4.0)])


def test_what_has_expired_and_another_history_do_not_count(log: EventLog, model: Path, clock: list[float], monkeypatch):
    ranker = cast(KinRanker, load(model))
    served = ServedModel("", ranker, ranker, False, QueryEncoder(ranker))
    feed = log.feed("default", Observer())

    def days() -> Any:
        evidence = cast(KinRanker, feed.update(served).ranker).recent_
        return None if evidence is None else (evidence.days, evidence.n_cells)

    record(log, lists("ann", "bob", "cid"))
    clock[0] += 86_400.0
    record(log, lists("ann", "bob", "cid", day=20_001))
    assert days() == ((20_000, 20_001), 4)
    clock[0] = (20_000 + 36) * 86_400.0
    assert days() == ((20_001, 20_001), 2)  # as in a replica that starts now
    clock[0] += 86_400.0
    assert days() == (None, 0)
    clock[0] = 20_001 * 86_400.0
    # A copy of the database is restored and goes away again: what was known ranks on.
    record(log, lists("dan", "eve", "fay", day=20_001))
    assert days() == ((20_001, 20_001), 2)
    reads = []

    def away(*_: Any, **__: Any) -> Any:
        reads.append(1)
        raise OtherHistoryError("older") if len(reads) == 1 else StoreUnavailableError("away")

    monkeypatch.setattr(EventStore, "read", away)
    assert days() == ((20_001, 20_001), 2)
    monkeypatch.undo()
    assert days() == ((20_001, 20_001), 2)


def test_choices_and_rules_that_cannot_be_used_are_reported_once(model: Path, tmp_path: Path, monkeypatch) -> None:
    observer, asked = RecordingObserver(), Counter[str]()

    def fails(kind: type[Exception]) -> Callable[..., None]:
        def fail(*_: object, **__: object) -> None:
            asked[kind.__name__] += 1
            raise kind("too slow")

        return fail

    service = Service({"default": model}, settings=SETTINGS, observer=observer, judgments=sqlite_address(tmp_path))
    with monkeypatch.context() as broken, service:
        slot = service.slots["default"]
        assert slot.refusal is None
        broken.setattr(EventStore, "count", fails(StoreUnavailableError))
        wait_until(lambda: asked["StoreUnavailableError"] > 15)
        assert observer.errors == ["events: too slow"]
        asked.clear()
        broken.setattr(EventStore, "read", fails(StoreUnavailableError))
        broken.setattr(EventStore, "count", fails(NotStoredError))
        wait_until(lambda: asked["NotStoredError"] > 15 and slot.refusal is not None)
        assert slot.refusal == "choices were not learned: too slow"
        assert observer.models.count(("default", "learn-failed")) == 1
        assert observer.errors == ["events: too slow"], "reported once a minute"
        broken.undo()
        wait_until(lambda: slot.refusal is None)


def test_lists_that_no_database_can_store_do_not_stop_the_count(log: EventLog, clock: list[float]):
    for number, (text, document) in enumerate([("ali\0en", "a"), ("alien", "a\0"), ("alien", "😀" * 500)]):
        for client in ("ann", "bob", "cid"):
            log.show(Shown(f"{client} {number}", "default", text, [document, "b"], client, clock[0]))
    log.step(CURVES)
    record(log, lists("ann", "bob", "cid", text="heat"))
    assert (1.5, 3.0) in counted(log)


def test_keys_of_clients_change_and_are_deleted_with_what_they_hashed(log: EventLog, clock: list[float]):
    first, next_one = 20_000, 20_000 + 30
    assert log.clients("ann", first) == log.clients("ann", first + 1)
    assert log.clients("ann", first) != log.clients("ann", next_one)
    assert len(log.clients.of_all_periods("ann")) == 2
    record(log, lists("ann", "bob", "cid"))
    log.store.expire(first + 1, first)
    assert (rows_of(log, "lists"), rows_of(log, "clicks")) == ([], [])
    assert counted(log) == [(1.5, 3.0)]
    log.store.expire(next_one, next_one)
    assert all(rows_of(log, table) == [] for table in ("counts", "people", "votes", "texts"))
    assert len(rows_of(log, "client_keys")) == 1


def test_some_lists_explore_and_say_so(address, replica, keys) -> None:
    settings = replace(SETTINGS, explore=0.5, unexplored=("admin",))
    client = replica(address, settings)

    def rank(number: int, key: str = "query", **fields: Any) -> Any:
        headers = {"x_kinrank_query": f"list {number}", "x_kinrank_client": "c"}
        return client.post("/v1/rank", {**ALIEN, **fields}, authorization=keys[key], **headers).json

    answers = [rank(number) for number in range(40)]
    explored = [answer for answer in answers if answer["explored"] is not None]
    assert 8 < len(explored) < 32
    assert {answer["explored"] for answer in explored} == {0.5}
    assert {tuple(answer["ids"]) for answer in explored} == {("a", "c", "b")}  # one moves up, and the first stays
    assert {tuple(answer["ids"]) for answer in answers if answer["explored"] is None} == {("a", "b", "c")}
    assert [rank(number)["ids"] for number in range(40)] == [answer["ids"] for answer in answers]
    assert all(rank(number, pinned=["b"])["ids"] == ["a", "b", "c"] for number in range(40))
    # Not for keys that opt out.
    assert all(rank(number, "admin")["explored"] is None for number in range(40))

    def stored() -> list[tuple[str, float]]:
        database = open_database(address)
        with database.reading() as execute:
            rows = execute("SELECT list, share FROM kinrank_explored ORDER BY list", ())
        database.close()
        return rows

    wait_until(lambda: stored() == sorted((answer["query_id"], 0.5) for answer in explored))


def test_a_database_that_is_too_slow_for_many_lists_counts_fewer_at_a_time(log: EventLog, monkeypatch):
    counts = Tally.count

    def slow(self: Tally, names: Any, curve: RankCurve) -> bool:
        if len(names) > 3:
            raise NotStoredError("cut after 5 seconds")
        return counts(self, names, curve)

    monkeypatch.setattr(Tally, "count", slow)
    shown = [each for number in range(20) for each in lists("ann", "bob", "cid", text=f"query {number}")]
    log.record(shown, [click(each) for each in shown])
    for _ in range(30):
        log.step(CURVES)
    assert counted(log) == [(1.5, 3.0)] * 20


def test_a_query_that_cannot_be_counted_is_set_aside_and_counted_later(log: EventLog, monkeypatch):
    bad = query_of("query 7")
    counts = Tally.count
    broken = [True]

    def fail(self: Tally, names: Any, curve: RankCurve) -> bool:
        if broken[0] and any("query 7" in name for name in names):
            raise ValueError("a list that no program can read")
        return counts(self, names, curve)

    monkeypatch.setattr(Tally, "count", fail)
    monkeypatch.setattr(store_module, "_RETRY", (0.01, 0.02))
    shown = [each for number in range(20) for each in lists("ann", "bob", "cid", text=f"query {number}")]
    log.record(shown, [click(each) for each in shown])
    for _ in range(5):
        log.step(CURVES)
    assert counted(log) == [(1.5, 3.0)] * 19
    assert list(log.counting.aside) == [("default", bad)]
    assert "1 queries are not counted, and tried again later: a list that no program can read" in str(log.problem)
    assert log.backlog == 3
    broken[0] = False
    wait_until(lambda: (log.step(CURVES), log.backlog == 0)[1])
    assert counted(log) == [(1.5, 3.0)] * 20
    assert (log.problem, rows_of(log, "pending")) == (None, [])


def query_of(text: str) -> int:
    return int(query_keys(np.array([text]))[0].view(np.int64))


def test_counts_are_those_of_all_lists_whatever_the_order(log: EventLog, clock: list[float]):
    rng = np.random.default_rng(0)
    cascade = RankCurve([1.0, 0.7, 0.4, 0.3], [0.05, 0.02, 0.01, 0.0], cascade=True)
    documents = ["a", "b", "c", "d", "e"]
    sent: list[tuple[list[Shown], list[Click]]] = []
    expected: list[ShownList] = []
    for number in range(300):
        client, text = f"c{rng.integers(12)}", f"query {rng.integers(3)}"
        order = rng.permutation(documents).tolist()
        shown = Shown(f"l{number}", "default", text, order, client, clock[0])
        clicked = {order[rank] for rank in rng.integers(5, size=rng.integers(3)).tolist()}
        sent.append(([shown], []))
        sent += [([], [Click(f"{number} {document}", shown.query_id, document)]) for document in clicked]
        expected.append(ShownList(query_of(text), 20_000, hash(client), order, dict.fromkeys(clicked, 1.0)))
    sent += [sent[place] for place in rng.integers(len(sent), size=100).tolist()]  # again
    for start in range(0, len(sent), 40):
        for place in rng.permutation(range(start, min(start + 40, len(sent)))).tolist():
            log.record(*sent[place])
        log.step({"default": cascade})
    votes = count_votes(expected, cascade)
    found = {(row.query, row.document, row.day): row for row in log.store.read("default").cells}
    assert set(found) == set(votes)
    for cell, vote in votes.items():
        assert (found[cell].looks, found[cell].choices) == pytest.approx((vote.looks, vote.choices), abs=1e-6), cell
    assert log.backlog == 0


def test_a_client_with_too_many_lists_counts_nowhere(log: EventLog, clock: list[float]):
    record(log, lists("ann", "bob", "cid", "dan"))
    assert counted(log) == [(2.0, 4.0)]
    for number in range(0, 600, 100):
        some = range(number, number + 100)
        log.record([Shown(f"bot {i}", "default", f"q {i % 7}", ["a", "b"], "dan", clock[0]) for i in some], [])
        log.step(CURVES)
    assert max(counted(log)) == (1.5, 3.0)
    assert len(rows_of(log, "votes")) == 3
    assert not any(str(value) in str(rows_of(log, "people")) for value in log.clients.of_all_periods("dan"))


def test_a_popular_query_does_not_hold_up_others(log: EventLog, clock: list[float], monkeypatch):
    monkeypatch.setattr(store_module, "_LISTS", 200)
    monkeypatch.setattr(store_module, "_SHARE", 20)
    log.counting._most = 200
    taken: list[int] = []
    counts = Tally.count
    monkeypatch.setattr(
        Tally, "count", lambda self, names, curve: taken.append(len(names)) or counts(self, names, curve)
    )
    hot = [Shown(f"hot {i}", "default", "iphone", ["a", "b"], f"c{i}", clock[0]) for i in range(1_000)]
    log.record(hot, [])
    other = [each for number in range(20) for each in lists("ann", "bob", "cid", text=f"query {number}")]
    log.record(other, [click(each) for each in other])
    assert log.counting.count(CURVES)
    assert counted(log).count((1.5, 3.0)) == 20  # in the first transaction
    while log.counting.count(CURVES):
        pass
    assert max(taken) == 200
    assert max(looks for looks, _ in counted(log)) == 500.0
    assert len(taken) <= 9  # no list was counted twice: with nothing else to count, a popular query has all of the turn


def test_what_was_just_asked_is_counted_before_what_waits_for_longer(log: EventLog, clock: list[float], monkeypatch):
    log.counting._most = 30
    waiting = [Shown(f"l{i}", "default", f"q{i}", ["a", "b"], "zoe", clock[0]) for i in range(400)]
    log.record(waiting, [])
    log._recent.clear()
    shown = lists("ann", "bob", "cid", text="just now")
    log.record(shown, [click(each) for each in shown])
    log.counting.count(CURVES, list(log._recent))
    assert (1.5, 3.0) in counted(log)
    assert len(rows_of(log, "pending")) == 370


def test_what_expires_is_deleted_although_nothing_can_be_counted(log: EventLog, clock: list[float], monkeypatch):
    record(log, lists("ann", "bob", "cid"))
    log.record(lists("dan"), [])

    def fail(*_: object) -> None:
        raise NotStoredError("too slow")

    monkeypatch.setattr(EventStore, "count", fail)
    clock[0] += 3 * 86_400.0
    log._expired_at = -1e9
    with pytest.raises(NotStoredError, match="too slow"):
        log.step(CURVES)
    assert [rows_of(log, table) for table in ("lists", "clicks", "votes")] == [[], [], []]
    assert counted(log) == [(1.5, 3.0)]


def test_a_failure_to_count_is_reported_as_long_as_it_lasts(model: Path, tmp_path: Path, monkeypatch) -> None:
    observer = RecordingObserver()
    monkeypatch.setattr(workers_module, "_REPORTS", 0.3)
    service = Service({"default": model}, settings=SETTINGS, observer=observer, judgments=sqlite_address(tmp_path))
    with monkeypatch.context() as broken, service:

        def fail(*_: object) -> None:
            raise NotStoredError("too slow")

        broken.setattr(Tally, "count", fail)
        assert service.events is not None
        today = service.events.today
        service.events.record(lists("ann", "bob", "cid", day=today), [])
        wait_until(lambda: len(observer.errors) >= 3)
        assert set(observer.errors) == {"set-aside: 1 queries are not counted, and tried again later: too slow"}
        assert service.workers.failing == ["set-aside"]
        broken.undo()
        service.events.record(lists("dan", day=today), [])
        wait_until(lambda: not service.workers.failing)
        wait_until(lambda: not rows_of(service.events, "pending"))


def test_events_are_stored_while_many_are_counted_in_a_file(tmp_path: Path, monkeypatch):
    """Between two transactions is a pause that is longer than those of a writer that waits for SQLite: 0.1 seconds."""
    monkeypatch.setattr(store_module, "_LISTS", 100)
    monkeypatch.setattr(database_module, "_BUSY_SECONDS", 0.1)  # if it has to wait, an event is not stored
    log = EventLog(sqlite_address(tmp_path), now=lambda: 20_000 * 86_400.0)
    log.record([Shown(f"l{i}", "default", f"q{i}", ["a", "b"], f"c{i}", log.now()) for i in range(3_000)], [])
    counts, left, pauses = EventStore.count, [], []

    def count(*given: Any) -> bool:
        left.append(counts(*given))
        return left[-1]

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) <= 5:
            log.record(lists("ann", text=f"other {len(pauses)}"), [])

    monkeypatch.setattr(EventStore, "count", count)
    monkeypatch.setattr("kinrank.serve._events.log.time.sleep", pause)
    for _ in range(50):
        log.step(CURVES)
    assert rows_of(log, "pending") == []
    log.close()
    assert len(pauses) == sum(left) > 20
    assert min(pauses) > 0.1


@pytest.mark.engine
def test_events_are_stored_while_others_are_counted(tmp_path: Path):
    with DATABASES["postgresql"].empty(tmp_path) as address:
        log = EventLog(address, now=lambda: 20_000 * 86_400.0)
        record(log, lists("ann"))
        with log.counting.database.writing() as execute:
            next_revision(execute, "/evidence")
            log.record(lists("bob"), [click(each) for each in lists("ann", "bob")])
        log.step(CURVES)
        assert len(rows_of(log, "votes")) == 2
        log.close()


def test_clients_that_number_their_events_alike_all_count(log: EventLog):
    shown = lists(*(f"person {number}" for number in range(10)))
    clicked = [Click("1", each.query_id, "b") for each in shown]
    for _ in range(2):  # sent again
        log.record(shown, clicked)
        log.step(CURVES)
    assert len(rows_of(log, "clicks")) == 10
    assert counted(log) == [(5.0, 10.0)]


STOPPED = """
import os, signal, sys
from kinrank.serve._database import next_revision, open_database
with open_database(sys.argv[1]).writing() as execute:
    next_revision(execute, "/evidence")
    print("locked", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.engine
def test_a_replica_that_is_stopped_in_a_transaction_does_not_stop_the_others(tmp_path: Path):
    with DATABASES["postgresql"].empty(tmp_path) as address:
        log = EventLog(address, now=lambda: 20_000 * 86_400.0)
        log.record(lists("ann", "bob", "cid"), [click(each) for each in lists("ann", "bob", "cid")])
        command = [sys.executable, "-c", STOPPED, address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stopped:
            try:
                assert stopped.stdout is not None
                assert stopped.stdout.readline() == "locked\n"

                def counts() -> bool:
                    with suppress(NotStoredError, StoreUnavailableError):
                        log.step(CURVES)
                    return counted(log) == [(1.5, 3.0)]

                wait_until(counts)
                stopped.send_signal(signal.SIGCONT)
                assert stopped.wait(PATIENCE) == 1  # it could not commit
                assert "NotStoredError" in stopped.communicate()[1]
                assert counted(log) == [(1.5, 3.0)]
            finally:
                stopped.kill()
        log.close()


def test_one_caller_is_one_client_unless_its_lists_were_handed_out(tmp_path, replica, keys) -> None:
    address = sqlite_address(tmp_path)
    client = replica(address, replace(SETTINGS, log_shown=0))

    def handed_out(person: str) -> str:
        headers = {"x_kinrank_client": person}
        return client.post("/v1/rank", ALIEN | {"text": "other"}, authorization=keys["query"], **headers).json[
            "query_id"
        ]

    wait_until(lambda: "." in handed_out("person 0"))  # the key is known
    forged = [shown(f"invented {number}", f"forged {number}") for number in range(5)]
    stolen = shown("person 9", handed_out("person 8"))  # handed out, but to somebody else
    response = client.post("/v1/events", {"queries": [*forged, stolen]}, authorization=keys["events"])
    assert response.json == {"queries": 6, "events": 0, "ignored": {}, "unsigned": 6}
    reported = [shown(f"person {number}", handed_out(f"person {number}")) for number in range(3)]
    response = client.post("/v1/events", {"queries": reported}, authorization=keys["events"])
    assert response.json == {"queries": 3, "events": 0, "ignored": {}}
    response = client.post("/v1/events", {"queries": [shown("any", "by an admin")]}, authorization=keys["admin"])
    assert "unsigned" not in response.json
    database = open_database(address)
    with database.reading() as execute:
        rows = execute("SELECT list, client FROM kinrank_lists WHERE query = ?", (query_of("alien"),))
    database.close()
    clients = dict(rows)
    assert len({clients[each["query_id"]] for each in forged}) == 1
    assert clients[stolen["query_id"]] == clients["forged 0"]
    assert len(set(clients.values())) == 5  # the caller, three who were handed out a list, and whom the admin named
    trusting = replica(sqlite_address(tmp_path / "trusting"), replace(SETTINGS, trusted=("events",)))
    assert "unsigned" not in trusting.post("/v1/events", {"queries": forged}, authorization=keys["events"]).json


def test_versions_and_metrics_tell_which_choices_rank(tmp_path, replica, keys) -> None:
    client = replica(sqlite_address(tmp_path), replace(SETTINGS, trusted=("events",)))

    def version() -> str:
        return client.post("/v1/rank", ALIEN, authorization=keys["query"]).json["version"]

    def metric(name: str) -> float:
        page = client.get("/metrics", authorization=keys["query"]).body.decode()
        [line] = [line for line in page.splitlines() if line.startswith(f"kinrank_{name} ")]
        return float(line.split()[1])

    before = version()
    queries = [shown(f"person {number}", f"l{number}") for number in range(3)]
    events = [clicks(f"person {number}", f"l{number}") for number in range(3)] + [clicks("x", "nobody was shown it")]
    client.post("/v1/events", {"queries": queries, "events": events}, authorization=keys["events"])
    wait_until(lambda: version() != before)
    assert version().startswith(f"{before}~1.")
    wait_until(lambda: metric('evidence_revision{model="default"}') == 1)
    wait_until(lambda: metric("events_unknown_lists") == 1)
    assert metric('events_stored{kind="lists"}') == 3
    assert metric('events_stored{kind="clicks"}') == 4
    assert (metric("events_waiting"), metric("events_set_aside")) == (0, 0)
    assert metric('failing{where="events"}') == 0
    assert client.get("/readyz").json == {"status": "ready", "versions": [version()]}


def test_a_full_disk_is_reported_as_such(tmp_path: Path):
    log = EventLog(f"sqlite:///{tmp_path}/events.db")
    record(log, lists("ann", day=log.today))
    with log.store.database.reading():
        log.store.database._connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(NotStoredError, match=r"the disk of the judgment store is full \(database or disk is full\)"):
        log.record([Shown(f"l{i}", "default", "alien", ["a" * 500], f"c{i}", log.now()) for i in range(500)], [])
    log.close()


def test_a_full_disk_of_postgresql_is_reported_as_such():
    psycopg = import_extra("psycopg", "postgres")
    database = open_database("postgresql://nobody@127.0.0.1:1/none")
    assert database.is_full(psycopg.errors.DiskFull("could not extend file"))
    assert not database.is_full(psycopg.errors.QueryCanceled("too slow"))


def test_a_list_tries_out_one_of_the_first_documents_and_a_new_one_gets_its_share(model: Path):
    ranker, n, new = cast(KinRanker, load(model)), 40, 19
    ids = [f"d{place}" for place in range(n)]
    names = {"doc_id": ids, "query_columns": {"text": ["alien"]}}
    asked = QuerySet.from_arrays(np.linspace(1.0, 0.0, n, dtype=np.float32)[:, None], qid=[1] * n, **names)
    known = [name for place, name in enumerate(ids) if place != new]
    rate = ranker.chosen_.calibration.predict(ranker.predict(asked), asked.offsets)
    looks = np.full(n - 1, 200.0)
    evidence = Evidence.from_cells(["alien"] * (n - 1), known, looks, looks * np.delete(rate, new), 20_000)
    ranker = ranker.with_recent(evidence)
    order = np.argsort(-ranker.predict(asked), kind="stable")
    at = int(np.flatnonzero(order == new)[0])
    assert at < WINDOW
    shown = Counter[int]()
    for seed in range(200):
        changed = explored_order(order, *ranker.draw(asked, seed), seed)
        assert sorted(changed.tolist()) == list(range(n))
        places = np.argsort(changed)[order] - np.arange(n)  # by how much each place moved
        [up] = np.flatnonzero(places < 0).tolist()
        assert up < WINDOW
        assert set(places.tolist()) <= {0, 1, int(places[up])}
        assert 1 <= up + places[up] < PLACES[1]
        assert changed[0] == order[0]
        shown[int(order[up])] += 1
    others = [times for document, times in shown.items() if document != new]
    assert shown[new] > 3 * max(others)  # hardly anything is known of it
    assert len(others) > 5  # but these are tried out, too
    lists = [explored_order(order, *ranker.draw(asked, seed), seed)[: PLACES[1]] for seed in range(5)]
    assert new in np.concatenate(lists)


WRONG_CLOCK = """
import sys, time
from kinrank.memory._votes import RankCurve
from kinrank.serve._events.log import EventLog, Shown
log = EventLog(sys.argv[1])
log.step({})  # as a service does when it starts
log.record([Shown("l1", "default", "alien", ["a", "b"], "dan", log.now())], [])
log.step({"default": RankCurve.of({})})
print(int(time.time() // 86_400) - log.today)
log.close()
"""


@pytest.mark.engine
def test_the_first_list_of_a_replica_with_a_wrong_clock_counts(tmp_path: Path, monkeypatch):
    """It has no time until the database has told its own."""
    with DATABASES["postgresql"].empty(tmp_path) as address:
        monkeypatch.setattr("time.time", lambda now=time.time: now() + 3 * 86_400)
        log = EventLog(address)
        assert log.moment is None
        assert log.record([Shown("list", "default", "alien", ["a"], "ann", log.moment)], []) == {}
        assert log.moment is not None
        assert {row[3] for row in rows_of(log, "lists")} == {log.today}
        log.close()


@pytest.mark.engine
@pytest.mark.parametrize("jump", [400, -400])
def test_a_replica_with_a_wrong_clock_deletes_and_misdates_nothing(jump: int, tmp_path: Path):
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        pytest.fail("libfaketime is not installed: apt-get install libfaketime")
    with DATABASES["postgresql"].empty(tmp_path) as address:
        log = EventLog(address)
        record(log, lists("ann", "bob", "cid", day=log.today))
        fake = {"LD_PRELOAD": str(library), "FAKETIME": f"{jump:+}d", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        command = [sys.executable, "-c", WRONG_CLOCK, address]
        done = subprocess.run(command, env={**os.environ, **fake}, capture_output=True, text=True, check=True)
        assert int(done.stdout) == jump  # its own clock is wrong
        assert counted(log) == [(2.0, 3.0)]
        assert {row[3] for row in rows_of(log, "lists")} == {log.today}
        log.close()


def test_counting_looks_up_what_it_needs_in_an_index(tmp_path: Path):
    log = EventLog(f"sqlite:///{tmp_path}/events.db", now=lambda: 20_000 * 86_400.0)
    log.record(lists("ann", "bob", "cid"), [])
    log.record(lists("ann", day=20_000.5), [])
    statements: list[str] = []
    with log.counting.database.reading():
        connection = log.counting.database._connection
    connection.set_trace_callback(statements.append)
    log.step(CURVES)
    connection.set_trace_callback(None)
    counting = [each for each in statements if each.startswith(("SELECT", "DELETE")) and " LIMIT 1" not in each]
    assert len(counting) > 10
    for statement in counting:
        if "kinrank_news" in statement or "kinrank_client_keys" in statement or "count(*) FROM (SELECT 1" in statement:
            continue  # small tables, and a number that is bounded
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert not any(step.startswith(("SCAN kinrank_", "SCAN t")) for step in plan), (statement, plan)
    log.close()


def test_what_ranks_by_evidence_is_compiled_before_any_arrives(model: Path):
    ranker, functions = load(model), (_heights, _combine, add_totals)
    warm_up(ranker, None)
    compiled = [list(function.signatures) for function in functions]
    assert all(compiled)
    asked = QuerySet.from_arrays([[1.0], [2.0]], doc_id=["a", "b"], query_columns={"text": ["alien"]}, qid=[1, 1])
    evidence = _to_evidence(
        [CellRow(int(query_keys(np.array(["alien"]))[0].view(np.int64)), "a", 20_000, 5.0, 3.0, few=False)]
    )
    moved = ranker.with_recent(evidence).predict_with_novelty(asked).scores
    assert not np.array_equal(moved, ranker.predict(asked))
    assert [list(function.signatures) for function in functions] == compiled


def test_texts_for_an_index_are_those_of_enough_clients_who_chose_the_document(
    log: EventLog, clock: list[float], address: str
):
    record(log, lists("ann", "bob", "cid"))  # all chose b
    record(log, lists("ann", "bob", text="my secret"))
    record(log, lists("dan", text="only looked"))
    log.record(lists("ann", "bob", "cid", text="only looked"), [])
    log.step(CURVES)

    def texts(least: int = 3, since: int = 0) -> dict[str, list[str]]:
        found = EventStore(log.store.database, least).chosen_texts("default", since)
        return TextLimits().of(Choice(document, text, choices) for document, text, _, choices in found)

    assert texts() == {"b": ["alien"]}
    assert texts(4) == texts(since=20_001) == {}
    log.store.forget(log.clients.of_all_periods("bob"))
    log.step(CURVES)
    assert texts() == {}


def test_texts_for_an_index_are_read_page_by_page(log: EventLog, monkeypatch):
    monkeypatch.setattr(store_module, "_PAGE", 2)
    for number in range(5):
        record(log, lists("ann", "bob", "cid", text=f"film {number}"))
    found = [text for _, text, _, _ in log.store.chosen_texts("default", 0)]
    assert sorted(found) == [f"film {number}" for number in range(5)]
