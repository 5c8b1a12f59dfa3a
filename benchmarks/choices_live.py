"""Ten weeks of simulated traffic through the service and Elasticsearch: what is learned live, and what exploring costs.

MSRD's movies are searched with 15 plain features. KinRanker learns from the judged queries of some movies; the traffic
is queries about other movies, some asked far more often than others. Users examine rank k with probability 1 / k, which
is also what the service assumes without a click log, and click on what they examine by its grade, as in
``simulate_clicks``. Every search and every click goes through ``kinrank serve`` with a database. The clock of the
service is moved on, so that a day takes seconds; who searches on a day is one of many clients.

- *engine*, *KinRanker*: their lists never change;
- *choices*: the same, which learns from the clicks while it serves;
- *exploring*: the same, with a tenth of the lists ranked by a draw from the posterior (``--set explore``).

NDCG@10 of the lists that were shown, a mean over the searches of a week, where documents without a judgment are not
relevant and the best list has all judged documents. Both learning services get the same searches and the same luck of
users. *not explored* leaves out the searches that exploring changed. Finished services are kept in
``benchmarks/results/choices_live`` and not run again. ``KINRANK_ELASTICSEARCH`` is the address of a running server;
without it, one is started.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import kin_quality
from benchmarks.common import log_progress
from benchmarks.engine_msrd import CHECKOUT, MOVIES, index_movies, running
from benchmarks.live_msrd import DISCOUNT, PLAIN, TOP, feature_sets, log_candidates, sample, with_features
from benchmarks.serve_load import free_port, started
from kinrank import KinRanker, QuerySet
from kinrank.engines import connect
from kinrank.engines.lucene import LuceneEngine
from kinrank.measure import compare_paired
from kinrank.serve._keys import Role, add_key

OPTIONS = {"searches": ("10000", "5000", "100")}
"""Searches of a week."""
TRAINING, CALIBRATION, TRAFFIC = 700, 300, 800
WEEKS, DAYS = 10, 7
CLIENTS = 2_000
SHARE = 0.1
THREADS = 4
TRIES = 20
PORT = 9295
ATTRACTION = 0.1, 0.7
SECONDS_OF_A_DAY = 86_400.0
PROGRAM = """
import sys, time, numpy
moved, real = numpy.memmap(sys.argv.pop(1), dtype=numpy.float64, mode="r"), time.time
time.time = lambda: real() + float(moved[0])
from kinrank.cli import main
main()
"""
"""``kinrank serve`` with a clock that the number in a file moves on."""


@dataclass(frozen=True)
class Traffic:
    """Searches in their order, and the luck of the users."""

    queries: QuerySet
    """The queries that are asked, with their judgments."""
    asked: np.ndarray
    """The query of each search."""
    client: np.ndarray
    """Who searches: a number below `CLIENTS`."""
    examined: np.ndarray
    """Whether each of the first ranks is examined."""
    liking: np.ndarray
    """A document at a rank is liked if its attraction is above this number."""

    @classmethod
    def simulated(cls, queries: QuerySet, searches: int, seed: int = 0) -> Traffic:
        """Draw searches."""
        rng = np.random.default_rng(seed)
        share = np.exp(rng.standard_normal(len(queries)))
        shape = searches, TOP
        return cls(
            queries,
            rng.choice(len(queries), searches, p=share / share.sum()),
            rng.integers(CLIENTS, size=searches),
            rng.random(shape) < 1 / np.arange(1, TOP + 1),
            rng.random(shape),
        )

    def text(self, query: int) -> str:
        """Return the text of a query."""
        return str(self.queries.query_columns["text"][query])

    def grades(self, query: int, shown: Sequence[str]) -> np.ndarray:
        """Return the grades of documents; 0 without a judgment."""
        rows = slice(self.queries.offsets[query], self.queries.offsets[query + 1])
        assert self.queries.doc_id is not None
        known = dict(zip(self.queries.doc_id[rows].tolist(), self.queries.grades[rows].tolist(), strict=True))
        return np.array([known.get(document, 0.0) for document in shown])

    def quality(self, query: int, shown: Sequence[str]) -> float:
        """Return NDCG@10 of a list."""
        rows = slice(self.queries.offsets[query], self.queries.offsets[query + 1])
        best = np.sort(self.queries.grades[rows])[::-1][:TOP]
        grades = self.grades(query, shown[:TOP])
        return float(grades @ DISCOUNT[: len(grades)] / (best @ DISCOUNT[: len(best)]))

    def clicked(self, search: int, shown: Sequence[str]) -> list[str]:
        """Return the documents that the user of a search clicks on."""
        low, high = ATTRACTION
        best = 2.0 ** float(self.queries.grades.max()) - 1
        attraction = low + (high - low) * (2.0 ** self.grades(self.asked[search], shown) - 1) / best
        clicks = self.examined[search, : len(shown)] & (self.liking[search, : len(shown)] < attraction)
        return [document for document, is_clicked in zip(shown, clicks, strict=True) if is_clicked]


def run(searches: str) -> dict[str, object]:
    """Return the quality of each week for all services."""
    work = CHECKOUT / "benchmarks" / "results" / "choices_live"
    work.mkdir(parents=True, exist_ok=True)
    judged = sample(work, TRAINING + CALIBRATION + TRAFFIC)
    features = feature_sets()["15-features"]
    server = os.environ.get("KINRANK_ELASTICSEARCH")
    with nullcontext(server) if server else running("elasticsearch", port=PORT) as address:
        index = f"{address}/choices-live"
        with connect(index, features, timeout=60.0) as engine:
            assert isinstance(engine, LuceneEngine)
            index_movies(engine, "elasticsearch", work)
            logged = with_features(log_candidates(engine, judged[: TRAINING + CALIBRATION], work), features)
            write_features(work / "features.toml")
            fit_models(logged, work)
            traffic = Traffic.simulated(judged[TRAINING + CALIBRATION :], WEEKS * int(searches))
            found = [engine.search(traffic.text(query), size=TOP) for query in range(TRAFFIC)]
        constant = {"engine": fixed(traffic, [hits.doc_id.tolist() for hits in found])}
        with service(work, index, "kin", []) as ask:
            constant["KinRanker"] = fixed(traffic, [ask.search(traffic.text(query))["ids"] for query in range(TRAFFIC)])
        learned = {
            name: learning(work, index, traffic, searches, name, options)
            for name, options in {"choices": [], "exploring": ["--set", f"explore={SHARE}"]}.items()
        }
    return summary(traffic, constant, learned)


def write_features(file: Path) -> None:
    """Write the tutorial's features without those that are not plain."""
    head, _, features = (MOVIES / "features.toml").read_text().partition("[features]\n")
    plain = [line for line in features.splitlines() if line.partition(" ")[0] in PLAIN]
    file.write_text("\n".join([head + "[features]", *plain, ""]))


def fit_models(logged: QuerySet, work: Path) -> None:
    """Fit KinRanker on some queries."""
    if (work / "choices").exists():
        return
    training = logged[:TRAINING]
    kin = KinRanker(group_column="movie", settings={"n_repeats": 1}).fit(training)
    kin.save(work / "kin", examples=training[:20])
    kin.save(work / "choices", examples=training[:20])


def fixed(traffic: Traffic, lists: Sequence[Sequence[str]]) -> np.ndarray:
    """Return the quality of each search if each query always has the same list."""
    quality = np.array([traffic.quality(query, shown) for query, shown in enumerate(lists)])
    return quality[traffic.asked]


# --- one service -----------------------------------------------------------------------------------------------------


class Asking:
    """A client of a service, one connection for each thread."""

    def __init__(self, port: int, keys: dict[str, str]) -> None:
        self._port = port
        self._keys = keys
        self._local = threading.local()
        self.fallbacks = 0

    def post(self, path: str, body: object, role: str, **headers: str) -> dict[str, Any]:
        """Return the answer to a request."""
        headers |= {"Content-Type": "application/json", "Authorization": f"Bearer {self._keys[role]}"}
        if not hasattr(self._local, "connection"):
            self._local.connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection = self._local.connection
        for _ in range(TRIES):
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
            if response.status != 503:  # the engine or the database is busy: people try again
                break
            time.sleep(1.0)
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {answer}")
        return answer

    def search(self, text: str, client: str = "nobody") -> dict[str, Any]:
        """Search, and return the answer."""
        body = {"query": text, "window": 100, "size": TOP}
        answer = self.post("/v1/search", body, "query", **{"X-Kinrank-Client": client})
        if answer["fallback"] is not None:
            self.fallbacks += 1
        return answer


@contextmanager
def service(work: Path, index: str, model: str, options: Sequence[str]) -> Iterator[Asking]:
    """Run ``kinrank serve`` with one model and the engine, with a generous deadline."""
    port, moved, file = free_port(), work / "clock", work / "keys"
    np.zeros(1).tofile(moved)
    file.unlink(missing_ok=True)
    keys = {role.value: add_key(file, role.value, role) for role in Role}
    options = ["--keys", str(file), *options]
    engine = ["--engine", index, "--features", str(work / "features.toml"), "--deadline", "30000", *options]
    command = [sys.executable, "-c", PROGRAM, str(moved), "serve", str(work / model), "--port", str(port), *engine]
    with contextmanager(started)(command, port, work / f"{model}.log"):
        yield Asking(port, keys)


def learning(
    work: Path, index: str, traffic: Traffic, searches: str, name: str, options: Sequence[str]
) -> dict[str, np.ndarray]:
    """Return quality and exploration of each search with a service that learns from the clicks of the others."""
    out = work / f"{name}-{searches}.npz"
    if not out.exists():
        database = work / f"{name}.db"
        for left in work.glob(f"{name}.db*"):
            left.unlink()
        learns = [
            "--judgments",
            f"sqlite:///{database}",
            "--set",
            f"log_shown={TOP}",
            "--set",
            "choice_days=80",
            *options,
        ]
        with service(work, index, "choices", learns) as ask:
            found = weeks_of(ask, traffic, work / "clock", name)
        np.savez(out, **found)
    with np.load(out) as stored:
        return dict(stored)


def weeks_of(ask: Asking, traffic: Traffic, clock: Path, name: str) -> dict[str, np.ndarray]:
    """Search and click for all weeks, day by day."""
    quality = np.zeros(len(traffic.asked))
    explored = np.zeros(len(traffic.asked), dtype=np.bool_)
    moved = np.memmap(clock, dtype=np.float64, mode="r+")
    days = np.array_split(np.arange(len(traffic.asked)), WEEKS * DAYS)
    start = time.monotonic()

    def searches(mine: np.ndarray, day: int) -> None:
        for search in mine.tolist():
            query = int(traffic.asked[search])
            client = f"client {traffic.client[search]} of day {day}"
            answer = ask.search(traffic.text(query), client)
            quality[search] = traffic.quality(query, answer["ids"])
            explored[search] = bool(answer.get("explored"))
            clicks = [
                {
                    "action_name": "click",
                    "query_id": answer["query_id"],
                    "client_id": client,
                    "event_attributes": {"object": {"object_id": document}},
                }
                for document in traffic.clicked(search, answer["ids"])
            ]
            if clicks:
                ask.post("/v1/events", {"events": clicks}, "events")

    for day, all_searches in enumerate(days):
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(searches, [all_searches[each::THREADS] for each in range(THREADS)], [day] * THREADS))
        if day % DAYS == DAYS - 1:
            week = np.concatenate(days[day - DAYS + 1 : day + 1])
            took = time.monotonic() - start
            log_progress(
                f"{name}, week {day // DAYS + 1}: {quality[week].mean():.4f}, {ask.fallbacks} fallbacks, {took:.0f} s"
            )
        time.sleep(2.0)  # replicas count within two seconds
        moved[0] += SECONDS_OF_A_DAY
    return {"quality": quality, "explored": explored, "fallbacks": np.array(ask.fallbacks)}


# --- reporting -------------------------------------------------------------------------------------------------------


def summary(
    traffic: Traffic, constant: dict[str, np.ndarray], learned: dict[str, dict[str, np.ndarray]]
) -> dict[str, object]:
    """Return the means of each week, and the differences of exploring in the first and in the last week, by query."""
    weeks = np.array_split(np.arange(len(traffic.asked)), WEEKS)
    exploring, choices = learned["exploring"], learned["choices"]
    quality = {**constant, **{name: each["quality"] for name, each in learned.items()}}
    rows = {name: [round(float(each[week].mean()), 4) for week in weeks] for name, each in quality.items()}
    plain = ~exploring["explored"]
    rows["exploring, not explored"] = [
        round(float(exploring["quality"][week][plain[week]].mean()), 4) for week in weeks
    ]
    first, last = weeks[0], weeks[-1]
    contrasts = {
        "choices minus KinRanker, last week": (choices["quality"], constant["KinRanker"], last),
        "cost of exploring, first week": (exploring["quality"], choices["quality"], first),
        "exploring minus choices, last week": (exploring["quality"], choices["quality"], last),
        "the same, not explored": (exploring["quality"], choices["quality"], last[plain[last]]),
    }
    return {
        "queries": TRAFFIC,
        "searches": {name: len(traffic.asked) for name in learned},
        "lists in the engine's order, because the machine was busy": {
            name: int(each["fallbacks"]) for name, each in learned.items()
        },
        "explored": round(float(exploring["explored"].mean()), 4),
        "NDCG@10 by week": rows,
        "differences": {name: difference(*each, traffic.asked) for name, each in contrasts.items()},
    }


def difference(one: np.ndarray, other: np.ndarray, searches: np.ndarray, asked: np.ndarray) -> dict[str, object]:
    """Return the mean difference of searches with its interval; searches of a query vary together."""
    return kin_quality.difference(compare_paired(one[searches], other[searches], groups=asked[searches]))
