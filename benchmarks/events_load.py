"""What events and remembered documents cost: storing, ranking and searching with them against without.

- ``--part store``: lists and clicks per second that one PostgreSQL takes through the store, durable, against bare
  ``INSERT ... ON CONFLICT DO NOTHING`` of the same rows in transactions of the same size into tables with nothing but a
  primary key; and how many per second it takes and counts;
- ``--part hot``: one popular query with 33,000 lists (2,200 for each of ``--repeats``) that wait to be counted, and a
  third as many of other queries, in SQLite and PostgreSQL. Meanwhile three clients ask a new query every half second:
  how long until another replica reads their choice, how many events are stored and counted a second, and whether what
  is old is deleted in time;
- ``--part rank``: a ranking with a model of choices while events arrive and are counted, 100 lists a second, against
  the same model without a database;
- ``--part search``: /v1/search with remembered documents against without them: of queries for which the engine misses
  ten, the worst case, and of queries for which it finds all. ``KINRANK_ELASTICSEARCH`` is the address of a running
  server.

Medians of times that are taken in turns. A ratio is that of what kinrank does to the other.
"""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from benchmarks import confirmation, fleet
from benchmarks.common import interleaved, log_progress, medians
from benchmarks.engine_msrd import running
from kinrank import KinRanker, QuerySet
from kinrank.data.hashes import query_keys
from kinrank.datasets import load_movies
from kinrank.engines import connect
from kinrank.engines._logger import FeatureLogger
from kinrank.engines.base import RetryingPool
from kinrank.engines.lucene import LuceneEngine
from kinrank.memory._votes import RankCurve
from kinrank.memory.evidence import Evidence
from kinrank.serve import CandidateSet, Observer, Service, Settings
from kinrank.serve._database import insert, open_database
from kinrank.serve._events.log import Click, EventLog, Shown
from kinrank.serve._search import Searcher

OPTIONS = {"part": ("store", "hot", "rank", "search"), "repeats": ("15", "3", "40")}
PORT = 15990
LISTS, CLICKS, TRANSACTIONS = 100, 30, 5
CURVES = {"default": RankCurve.of({})}
ROUNDS = 50  # rankings of each query in a turn, which so takes long enough for a steady rate of events
PATIENT = {"deadline": 60.0, "engine_seconds": 60.0}


def run(part: str = "store", repeats: str = "15") -> dict[str, Any]:
    """Measure one part."""
    measure: dict[str, Callable[[int], dict[str, Any]]] = {"store": store, "hot": hot, "rank": rank, "search": search}
    return {"part": part, **measure[part](int(repeats))}


def events(numbers: Iterator[int], n_lists: int = LISTS) -> tuple[list[Shown], list[Click]]:
    """Return lists of ten documents of 4,999 queries and 9,973 clients, and clicks on some of them."""
    lists = []
    for number in (next(numbers) for _ in range(n_lists)):
        documents = [f"document {(number * 7 + rank) % 997}" for rank in range(10)]
        lists.append(
            Shown(f"list {number}", "default", f"q {number * 31 % 4999}", documents, f"c {number % 9973}", time.time())
        )
    clicks = [Click(f"click {shown.query_id}", shown.query_id, shown.documents[2]) for shown in lists[:CLICKS]]
    return lists, clicks


# --- storing ---------------------------------------------------------------------------------------------------------


def store(repeats: int) -> dict[str, Any]:
    """Return events per second by way, and their ratios to bare statements."""
    server = fleet.engine("start", PORT)
    try:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS events_load WITH (FORCE)")
            connection.execute("CREATE DATABASE events_load")
        address = server.rpartition("/")[0] + "/events_load"
        log, database = EventLog(address), open_database(address)
        with database.writing() as execute:
            execute(
                "CREATE TABLE bare_lists (list TEXT PRIMARY KEY, model TEXT, query BIGINT, day BIGINT, client BIGINT, "
                "documents TEXT)",
                (),
            )
            execute(
                "CREATE TABLE bare_clicks (event TEXT PRIMARY KEY, list TEXT, document TEXT, value DOUBLE PRECISION, "
                "day BIGINT)",
                (),
            )
        numbers = count()

        def bare() -> None:
            for _ in range(TRANSACTIONS):
                lists, clicks = events(numbers)
                rows = [(each.query_id, each.model, 1, 2, 3, str(each.documents)) for each in lists]
                with database.writing() as execute:
                    insert(execute, "bare_lists", rows, "(list) DO NOTHING")
                    insert(execute, "bare_clicks", [(*click, 2) for click in clicks], "(event) DO NOTHING")

        def stored() -> None:
            for _ in range(TRANSACTIONS):
                log.record(*events(numbers))

        def counted() -> None:
            log.record(*events(numbers))
            log.step(CURVES)

        counting = medians(interleaved({"counted": counted}, min(repeats, 10)))["counted"]
        seconds = medians(interleaved({"bare": bare, "stored": stored}, repeats))
        log.close()
        database.close()
    finally:
        fleet.engine("stop", PORT)
    size = TRANSACTIONS * (LISTS + CLICKS)
    return {
        "events in a transaction": LISTS + CLICKS,
        "events per second": {name: round(size / value) for name, value in seconds.items()},
        "rate relative to bare": round(seconds["bare"] / seconds["stored"], 3),
        "stored and counted, events per second": round((LISTS + CLICKS) / counting),
    }


# --- a popular query -------------------------------------------------------------------------------------------------


def hot(repeats: int) -> dict[str, Any]:
    """Return events per second and how late choices are visible while a popular query is counted, by database."""
    with tempfile.TemporaryDirectory() as folder:
        figures = {"sqlite": counted_while_hot(f"sqlite:///{folder}/events.db", 2_200 * repeats)}
    server = fleet.engine("start", PORT)
    try:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS events_load WITH (FORCE)")
            connection.execute("CREATE DATABASE events_load")
        figures["postgresql"] = counted_while_hot(server.rpartition("/")[0] + "/events_load", 2_200 * repeats)
    finally:
        fleet.engine("stop", PORT)
    return figures


def hot_events(n_lists: int) -> Iterator[tuple[list[Shown], list[Click]]]:
    """Yield lists of a popular query and of others, a thousand at a time, and clicks on a third of them."""
    numbers = count()
    for start in range(0, n_lists, 750):
        lists = [
            Shown(
                f"hot {i}",
                "default",
                "iphone",
                [f"d {(i * 7 + rank) % 97}" for rank in range(10)],
                f"h {i}",
                time.time(),
            )
            for i in range(start, min(start + 750, n_lists))
        ]
        lists += events(numbers, 250)[0]
        yield lists, [Click(f"click {shown.query_id}", shown.query_id, shown.documents[2]) for shown in lists[::3]]


def counted_while_hot(address: str, n_lists: int) -> dict[str, Any]:
    """Store lists, count them, and return how long it takes, and how long others wait meanwhile."""
    log, other = EventLog(address), EventLog(address)
    old = [Shown(f"old {i}", "default", "old", ["d 1"], f"h {i}", time.time()) for i in range(1_000)]
    log.record(old, [])
    log.step(CURVES)
    with log.store.database.writing() as execute:  # as if they were stored three days ago
        execute("UPDATE kinrank_lists SET day = day - 3", ())
    log._expired_at = -math.inf
    start, n_events = time.perf_counter(), 0
    for lists, clicks in hot_events(n_lists):
        log.record(lists, clicks)
        n_events += len(lists) + len(clicks)
    stored = n_events / (time.perf_counter() - start)
    done, late = threading.Event(), list[float]()
    watcher = threading.Thread(target=watch, args=(log, other, done, late))
    watcher.start()
    start, expired = time.perf_counter(), math.nan
    try:
        while True:
            log.step(CURVES)
            if math.isnan(expired) and not expired_lists(log):
                expired = time.perf_counter() - start
            if log.backlog < 10:
                break
    finally:
        seconds = time.perf_counter() - start
        done.set()
        watcher.join()
    key = query_keys(np.array(["iphone"]))[0]
    feed = other.feed("default", Observer())
    feed._read()
    assert feed._evidence is not None
    looks = float(feed._evidence.of_query(key)[1].looks.sum())
    log.close()
    other.close()
    expected = n_lists * sum(1 / rank for rank in range(1, 11))
    return {
        "lists of the popular query": n_lists,
        "events stored per second": round(stored),
        "events counted per second": round(n_events / seconds),
        "seconds until a new choice is read by another replica": {
            "median": round(float(np.median(late)), 2),
            "most": round(max(late), 2),
            "choices": len(late),
        },
        "seconds until old lists are deleted": round(expired, 2),
        "looks of the popular query, counted and expected": [round(looks, 3), round(expected, 3)],
    }


def expired_lists(log: EventLog) -> bool:
    """Return whether old lists are stored."""
    with log.store.database.reading() as execute:
        return bool(execute("SELECT 1 FROM kinrank_lists WHERE day < ? LIMIT 1", (log.today - 2,)))


def watch(log: EventLog, other: EventLog, done: threading.Event, late: list[float]) -> None:
    """Let three clients choose a document of a new query, and note after how many seconds another replica has it."""
    since, mark = other.store.read("default").revision, ""
    for number in count():
        text = f"new query {number}"
        key = int(query_keys(np.array([text]))[0].view(np.int64))
        lists = [Shown(f"{text} {i}", "default", text, ["d 1", "d 2"], f"n {i}", time.time()) for i in range(3)]
        start = time.perf_counter()
        log.record(lists, [Click(shown.query_id, shown.query_id, "d 2") for shown in lists])
        found = False
        while not found and time.perf_counter() < start + 60:
            changes = other.store.read("default", since, mark=mark)
            since, mark = changes.through, changes.mark
            found = any(cell.query == key and cell.choices for cell in changes.cells)
            if done.wait(0.05):
                return
        late.append(time.perf_counter() - start)
        done.wait(0.5)


# --- ranking ---------------------------------------------------------------------------------------------------------


def rank(repeats: int) -> dict[str, Any]:
    """Return the time of a ranking with evidence and events at once, relative to one without."""
    movies = load_movies()
    ranker = KinRanker(memory=False, local=False, settings={"n_members": 2, "n_repeats": 1}).fit(movies[:150])
    some = [candidates_of(query) for query in movies[150:170]]
    with tempfile.TemporaryDirectory() as folder:
        ranker.save(f"{folder}/model")
        settings = Settings(**PATIENT)
        database = f"sqlite:///{folder}/judgments.db"
        with (
            Service({"default": f"{folder}/model"}, settings=settings) as plain,
            Service({"default": f"{folder}/model"}, settings=settings, judgments=database) as learning,
        ):
            assert learning.events is not None
            record_known(learning.events, movies[150:170])
            busy, busy_for = threading.Event(), [0.0]
            with arriving(learning.events, busy) as sent:

                def rank_all(service: Service) -> None:
                    for _ in range(ROUNDS):
                        for candidates in some:
                            service.rank(candidates)

                def with_events() -> None:
                    start = time.perf_counter()
                    busy.set()
                    rank_all(learning)
                    busy.clear()
                    busy_for[0] += time.perf_counter() - start

                time.sleep(3.0)  # for the evidence to be counted
                calls = {
                    "without": lambda: rank_all(plain),
                    "with evidence": lambda: rank_all(learning),
                    "with evidence and events": with_events,
                }
                seconds = medians(interleaved(calls, repeats))
            slot = learning.slots["default"]
            revision = 0 if slot.current is None else slot.current.evidence
    return {
        "milliseconds": {name: round(1000 * value / len(some) / ROUNDS, 3) for name, value in seconds.items()},
        "ratio": {name: round(value / seconds["without"], 3) for name, value in seconds.items()},
        "lists sent a second": round(sent[0] / busy_for[0]),
        "revision of the evidence": revision,
    }


def candidates_of(query: QuerySet) -> CandidateSet:
    """Return a query as a request has it."""
    text = str(query.query_columns["text"][0])
    return CandidateSet([str(each) for each in query.doc_id], query.X, query.feature_names, text=text)


def record_known(log: EventLog, queries: QuerySet) -> None:
    """Store lists of the queries that are ranked, so that they have evidence."""
    for query in queries:
        documents, text = [str(each) for each in query.doc_id[:10]], str(query.query_columns["text"][0])
        lists = [Shown(f"{text} {i}", "default", text, documents, f"c {i}", time.time()) for i in range(5)]
        log.record(lists, [Click(shown.query_id, shown.query_id, documents[1]) for shown in lists])


@contextmanager
def arriving(log: EventLog, busy: threading.Event) -> Iterator[list[int]]:
    """Send a hundred lists a second, ten at a time, while `busy` is set, and yield how many were sent."""
    done, numbers, sent = threading.Event(), count(), [0]

    def send() -> None:
        while not done.is_set():
            if busy.wait(0.01):
                log.record(*events(numbers, 10))
                sent[0] += 10
                done.wait(0.1)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        done.set()
        thread.join()


# --- searching -------------------------------------------------------------------------------------------------------


def search(repeats: int) -> dict[str, Any]:
    """Return the time of a search that adds ten documents, relative to one without."""
    server = os.environ.get("KINRANK_ELASTICSEARCH")
    with (
        nullcontext(server) if server else running("elasticsearch", port=PORT) as address,
        connect(f"{address}/events-load", confirmation.FEATURES, timeout=60.0) as engine,
        tempfile.TemporaryDirectory() as folder,
    ):
        assert isinstance(engine, LuceneEngine)
        documents = list(confirmation.documents("nfcorpus"))
        engine.index(documents, settings=confirmation.INDEX)
        try:
            return searched(engine, np.array([doc_id for doc_id, _ in documents]), Path(folder), repeats)
        finally:
            engine.delete_index()


def searched(engine: LuceneEngine, ids: np.ndarray, folder: Path, repeats: int) -> dict[str, Any]:
    """Measure searches of thirty queries."""
    judged = confirmation.judgments("nfcorpus")[:60]
    logged = QuerySet.concat([found for found, _ in FeatureLogger(engine).log(judged, RetryingPool(2)) if found])
    some = logged[logged.sizes >= 10][:30]
    texts = [str(text) for text in some.query_columns["text"].tolist()]
    rng = np.random.default_rng(0)
    missing, complete = texts[::2], texts[1::2]
    missed = [
        rng.choice(np.setdiff1d(ids, query.doc_id), 10, replace=False) if place % 2 == 0 else query.doc_id[:10]
        for place, query in enumerate(some)
    ]
    evidence = Evidence.from_cells(
        np.repeat(texts, 10), np.concatenate(missed), [50.0] * 10 * len(some), [40.0] * 10 * len(some)
    )
    KinRanker(memory=False, local=False, evidence=evidence, settings={"n_members": 2, "n_repeats": 1}).fit(logged).save(
        folder / "model"
    )
    added: list[int] = []
    with (
        Service({"default": folder / "model"}, settings=Settings(**PATIENT, remembered=0)) as plain,
        Service({"default": folder / "model"}, settings=Settings(**PATIENT)) as remembering,
    ):

        def search_all(service: Service, texts: list[str]) -> None:
            searcher = Searcher(service, engine)
            added.extend(len(searcher.search(text).remembered) for text in texts)

        calls = {
            "ten missed, without": lambda: search_all(plain, missing),
            "ten missed, with": lambda: search_all(remembering, missing),
            "all found, without": lambda: search_all(plain, complete),
            "all found, with": lambda: search_all(remembering, complete),
        }
        seconds = medians(interleaved(calls, repeats))
    log_progress(f"at most {max(added)} documents were added to a search")
    return {
        "milliseconds": {name: round(1000 * value / len(missing), 2) for name, value in seconds.items()},
        "ratio": {
            kind: round(seconds[f"{kind}, with"] / seconds[f"{kind}, without"], 3)
            for kind in ("ten missed", "all found")
        },
        "documents added to a search": max(added),
    }
