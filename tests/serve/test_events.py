"""What people choose while the service runs: from one replica to the order of another."""

from __future__ import annotations

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

from kinrank import ChoiceRanker, QuerySet, SingleRanker
from kinrank.cli.app import app
from kinrank.data.hashes import query_keys
from kinrank.errors import NotStoredError, OtherHistoryError, StoreUnavailableError
from kinrank.memory.evidence import add_totals
from kinrank.memory.votes import RankCurve
from kinrank.rankers.base import load
from kinrank.rankers.choices.calibration import _heights
from kinrank.rankers.choices.posterior import _combine
from kinrank.serve import Observer, Service, Settings
from kinrank.serve.database import open_database
from kinrank.serve.database.schema import MIGRATIONS
from kinrank.serve.encoding import QueryEncoder
from kinrank.serve.events.counting import Recount
from kinrank.serve.events.feed import _to_evidence
from kinrank.serve.events.log import Click, EventLog, Shown
from kinrank.serve.events.store import CellRow, EventStore
from kinrank.serve.http.app import create_app
from kinrank.serve.http.metrics import Metrics
from kinrank.serve.keys import KeyRing, Role, add_key
from kinrank.serve.rules.store import RuleStore
from kinrank.serve.selftest import warm_up
from kinrank.serve.served_model import ServedModel
from tests.processes import wait_until
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


def test_clicks_sent_to_one_replica_change_the_order_of_another_within_two_seconds(address, replica, keys) -> None:
    settings = replace(SETTINGS, watch_interval=Settings.watch_interval)
    one, other = replica(address, settings), replica(address, settings)
    assert order(other, keys) == ["a", "b", "c"]
    for number in range(3):
        answer = one.post("/v1/rank", ALIEN, authorization=keys["query"], x_kinrank_client=f"person {number}").json
        body = {"events": [clicks(f"person {number}", answer["query_id"])]}
        response = one.post("/v1/events", body, authorization=keys["events"])
        assert (response.status, response.json) == (200, {"queries": 0, "events": 1, "ignored": {}})
    for client in (other, one):
        wait_until(lambda client=client: order(client, keys)[0] == "c", 2.0)


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
        ([QUERY], (0, 0, {"no documents": 1})),  # the list is known from --log-shown
        ([QUERY | {"query_response_hit_ids": ["a", "b", "c"]}], (1, 0, {})),
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
    tables = ("lists", "clicks", "cells", "crowds", "texts")
    # these ids of lists name clients and texts: real ones are random
    stored = [[value for value in row if " 20000" not in str(value)] for table in tables for row in rows_of(log, table)]
    assert not any(word in str(stored) for word in ("ann", "bob", "cid", "secret"))


def test_a_forgotten_client_counts_no_more(log: EventLog, address: str, tmp_path: Path):
    record(log, lists("ann", "bob", "cid", "dan"))
    assert counted(log) == [(2.0, 4.0)]
    (tmp_path / "secret").write_bytes(b"kept elsewhere")
    forget = ["forget", address, "--client", "ann"]
    assert CliRunner().invoke(app, forget).stdout == "0\n"  # without the secret nobody finds her
    done = CliRunner().invoke(app, [*forget, "--client-secret", str(tmp_path / "secret")])
    assert (done.exit_code, done.stdout) == (0, "1\n")
    hashes = set(log.clients.of_all_periods("ann"))
    assert not hashes & {value for table in ("lists", "crowds") for row in rows_of(log, table) for value in row}
    assert len(rows_of(log, "clicks")) == 3
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


def lifting(log: EventLog) -> list[bool]:
    return [not cell.few for cell in log.store.read("default").cells if cell.document == "b"]


def test_one_clicker_lifts_nothing_and_three_do(log: EventLog, model: Path, clock: list[float]):
    ranker = cast(ChoiceRanker, load(model))
    features = np.array([[1.0], [0.0]], dtype=np.float32)
    names = {"doc_id": ["a", "b"], "query_columns": {"text": ["alien"]}}
    asked = QuerySet.from_arrays(features, qid=[1, 1], **names)
    served = ServedModel("", ranker, ranker, False, QueryEncoder(ranker))
    feed = log.feed("default", Observer())

    def places() -> tuple[float, list[str]]:
        found = cast(ChoiceRanker, feed.update(served).ranker)
        return found.predict(asked)[1], found.remembered(asked.take_rows([0]), 5)

    def why() -> str:
        return cast(ChoiceRanker, feed.update(served).ranker).explain(asked)[0].chosen(1)

    predicted = ranker.combined_.calibration.predict(ranker.ranker_.predict(asked), asked.offsets)[1]
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
    assert why().startswith("chosen 5 times in 5 looks for this query")
    assert "too few" not in why()
    assert lifting(log) == [True] * 3
    assert len(rows_of(log, "choosers")) == 3
    record(log, lists("dan", day=20_002))  # more need not be told apart
    assert len(rows_of(log, "choosers")) == 3
    # Who is forgotten has not chosen, also on days whose lists are deleted; nor has who chose too long ago.
    log.store.expire(20_003, 20_000)
    assert log.store.forget(log.clients.of_all_periods("bob")) == 0
    log.step(CURVES)
    assert places() == (pytest.approx(predicted), [])
    assert lifting(log) == [False] * 3
    record(log, lists("eve", day=20_002))
    assert lifting(log) == [True] * 3
    log.store.expire(20_004, 20_003)
    assert rows_of(log, "choosers") == []


def test_a_document_that_people_keep_choosing_stays_lifted(log: EventLog, clock: list[float]):
    record(log, lists("ann", "bob", "cid"))
    clock[0] += 86_400.0
    record(log, lists("ann", "dan", day=20_001))
    assert len(rows_of(log, "choosers")) == 3
    log.store.expire(20_001, 20_001)  # what two of the three chose is too long ago
    assert (lifting(log), len(rows_of(log, "choosers"))) == ([False], 2)
    for day in (20_001, 20_002):
        clock[0] = day * 86_400.0
        record(log, lists("eve", "fay", "gil", day=day))
        assert len(rows_of(log, "choosers")) == 3
    log.store.expire(20_002, 20_002)
    assert (lifting(log), counted(log)) == ([True], [(1.5, 3.0)])


def test_counts_of_an_earlier_version_lift_as_they_did(log: EventLog, address: str):
    record(log, lists("ann", "bob", "cid"))
    record(log, lists("ann", "bob", text="heat"))
    [version] = [number for number, statements in enumerate(MIGRATIONS) if "kinrank_choosers" in statements[0]]
    with log.store.database.writing() as execute:
        execute("DROP TABLE kinrank_choosers", ())
        execute("UPDATE kinrank_schema SET version = ?", (version,))
    later = EventLog(address, secret=b"kept elsewhere", now=lambda: 20_000 * 86_400.0)
    # Those who were shown what anyone chose count as those who chose it.
    crowds = [row for row in rows_of(later, "crowds") if row[2] == "b"]
    assert sorted(rows_of(later, "choosers")) == sorted(crowds)
    assert sorted(lifting(later)) == [False, True]
    record(later, lists("dan", text="heat"))
    assert lifting(later) == [True, True]
    later.close()


def test_what_has_expired_and_another_history_do_not_count(log: EventLog, model: Path, clock: list[float], monkeypatch):
    ranker = cast(ChoiceRanker, load(model))
    served = ServedModel("", ranker, ranker, False, QueryEncoder(ranker))
    feed = log.feed("default", Observer())

    def days() -> Any:
        evidence = cast(ChoiceRanker, feed.update(served).ranker).recent_
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
        broken.setattr(RuleStore, "position", fails(StoreUnavailableError))
        wait_until(lambda: asked["StoreUnavailableError"] > 15)
        assert observer.errors == ["rules: too slow"]
        asked.clear()
        broken.setattr(EventStore, "read", fails(StoreUnavailableError))
        broken.setattr(EventStore, "count", fails(NotStoredError))
        wait_until(lambda: asked["NotStoredError"] > 15 and slot.refusal is not None)
        assert slot.refusal == "choices were not learned: too slow"
        assert observer.models.count(("default", "learn-failed")) == 1
        assert observer.errors == ["rules: too slow", "events: too slow"]
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
    assert all(rows_of(log, table) == [] for table in ("cells", "crowds", "texts"))
    assert len(rows_of(log, "client_keys")) == 1


def test_some_lists_explore_and_say_so(address, replica, keys) -> None:
    settings = replace(SETTINGS, explore=0.5, unexplored=("admin",))
    client = replica(address, settings)

    def rank(number: int, key: str = "query", **more: Any) -> Any:
        headers = {"x_kinrank_query": f"list {number}", "x_kinrank_client": "c"}
        return client.post("/v1/rank", {**ALIEN, **more}, authorization=keys[key], **headers).json

    answers = [rank(number) for number in range(40)]
    explored = [answer for answer in answers if answer["explored"] is not None]
    assert 8 < len(explored) < 32
    assert {answer["explored"] for answer in explored} == {0.5}
    assert len({tuple(answer["ids"]) for answer in explored}) > 1
    assert {tuple(answer["ids"]) for answer in answers if answer["explored"] is None} == {("a", "b", "c")}
    assert [rank(number)["ids"] for number in range(40)] == [answer["ids"] for answer in answers]
    # Neither for keys that opt out, nor for interleaved lists.
    assert all(rank(number, "admin")["explored"] is None for number in range(40))
    assert all(rank(number, interleave=["default", "default"])["explored"] is None for number in range(10))

    def stored() -> list[tuple[str, float]]:
        database = open_database(address)
        with database.reading() as execute:
            rows = execute("SELECT list, share FROM kinrank_explored ORDER BY list", ())
        database.close()
        return rows

    wait_until(lambda: stored() == sorted((answer["query_id"], 0.5) for answer in explored), 5.0)


def test_a_database_that_is_too_slow_for_many_lists_counts_fewer_at_a_time(log: EventLog, monkeypatch):
    counts = Recount.__call__

    def slow(self: Recount, model: str, keys: Any, curve: RankCurve) -> bool:
        if len(keys) > 3:
            raise NotStoredError("cut after 5 seconds")
        return counts(self, model, keys, curve)

    monkeypatch.setattr(Recount, "__call__", slow)
    shown = [each for number in range(20) for each in lists("ann", "bob", "cid", text=f"query {number}")]
    log.record(shown, [click(each) for each in shown])
    for _ in range(30):
        with suppress(NotStoredError):
            log.step(CURVES)
    assert counted(log) == [(1.5, 3.0)] * 20


def test_counting_looks_up_what_it_needs_in_an_index(tmp_path: Path):
    log = EventLog(f"sqlite:///{tmp_path}/events.db", now=lambda: 20_000 * 86_400.0)
    log.record(lists("ann", "bob", "cid"), [])
    statements: list[str] = []
    with log.store.database.reading():
        connection = log.store.database._connection
    connection.set_trace_callback(statements.append)
    assert not log.store.count(CURVES)
    connection.set_trace_callback(None)
    counting = [each for each in statements if "VALUES" in each and not each.startswith("INSERT")]
    assert len(counting) == 4
    for statement in counting:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}") if "kinrank_" in row[3]]
        assert all("query=?" in step or "client=?" in step for step in plan), (statement, plan)
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
