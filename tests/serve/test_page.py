"""The page at / and search, with a real engine, the MSRD movies and a browser."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import http.server
import json
import os
import socket
import socketserver
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from kinrank import KinRanker, KnnRanker, QuerySet
from kinrank.engines import FeatureSet, connect
from kinrank.errors import EngineUnreachableError
from kinrank.serve._keys import Role, add_key
from tests.browsers import PATIENCE
from tests.engines.servers import ADDRESSES
from tests.serve.asgi import Client  # noqa: F401 - these tests need the extra
from tests.serve.servers import Load, Server, one_thread, serving

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.data("text/msrd"), pytest.mark.engine]

QUERIES = 300
FEATURES = """
[search]
multi_match = ["title^3", "characters", "actors", "director", "overview"]

[features]
title = { match = "title" }
title_all = { match = "title", operator = "and" }
title_phrase = { phrase = "title" }
overview = { match = "overview" }
actors = { match = "actors" }
characters = { match = "characters" }
director = { match = "director" }
votes = { field = "votes", transform = "log1p" }
rating = { field = "rating" }
words = { query_length = "words" }
"""
FIELDS = ("title", "overview", "actors", "characters", "director", "votes", "rating")


class Forwarder(socketserver.ThreadingTCPServer):
    """A TCP proxy in front of the engine; cutting it looks like a stopped engine."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, target: int) -> None:
        self.target = target
        self.open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), Tunnel)

    @classmethod
    def started(cls, port: int, target: int) -> Forwarder:
        made = cls(port, target)
        threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
        return made

    def cut(self) -> None:
        self.shutdown()
        self.server_close()
        for each in list(self.open):
            each.close()


class Tunnel(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Forwarder)
        with socket.create_connection(("127.0.0.1", self.server.target)) as there:
            ends = {self.request, there}
            self.server.open |= ends
            back = threading.Thread(target=pump, args=(there, self.request), daemon=True)
            back.start()
            pump(self.request, there)
            back.join()
            self.server.open -= ends


def pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while part := source.recv(1 << 16):
            target.sendall(part)
    except OSError:
        pass
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


class FaultyProxy(http.server.BaseHTTPRequestHandler):
    """An HTTP proxy in front of the engine that delays requests, or rejects those that search."""

    protocol_version = "HTTP/1.1"

    @staticmethod
    @contextlib.contextmanager
    def started(target: int) -> Iterator[http.server.ThreadingHTTPServer]:
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), FaultyProxy) as proxy:
            proxy.target, proxy.delay, proxy.status, proxy.searches = target, 0.0, 0, 0  # type: ignore[attr-defined]
            threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
            yield proxy
            proxy.shutdown()

    def do_POST(self) -> None:
        proxy: Any = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        time.sleep(proxy.delay)
        if "_search" in self.path:
            proxy.searches += 1
            if proxy.status:
                self.respond(proxy.status, b'{"error": {"type": "injected", "reason": "injected"}}')
                return
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", proxy.target, timeout=30)) as there:
            there.request(self.command, self.path, body, dict(self.headers))
            response = there.getresponse()
            self.respond(response.status, response.read(), response.headers["Content-Type"])

    do_GET = do_HEAD = do_POST  # noqa: N815

    def respond(self, status: int, body: bytes, kind: str = "application/vnd.elasticsearch+json") -> None:
        self.send_response(status)
        for name, value in {"X-Elastic-Product": "Elasticsearch", "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@dataclass(frozen=True)
class World:
    folder: Path
    address: str
    queries: dict[str, str]


@pytest.fixture(scope="module")
def world(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A part of MSRD in a new index, its features logged by the engine, and a model fitted on them."""
    folder = tmp_path_factory.mktemp("movies")
    (folder / "features.toml").write_text(FEATURES)
    texts, judged = read_judgments(data_dir / "text" / "msrd")
    address = f"{os.environ.get('KINRANK_ELASTICSEARCH', ADDRESSES['elasticsearch'])}/serve-{uuid.uuid4().hex[:8]}"
    engine = connect(address, FeatureSet.parse(FEATURES), timeout=30.0)
    movies = read_movies(data_dir / "text" / "msrd", {doc for each in judged.values() for doc in each})
    try:
        engine.index(movies.items())
    except EngineUnreachableError as error:
        pytest.fail(f"{error}: scripts/engine start elasticsearch, or run -m 'not engine'")
    rows, grades, qid = [], [], []
    for query, documents in judged.items():
        # Fit on the candidates that the service will see.
        found = engine.search(texts[query], size=100, timeout=30.0).doc_id.tolist()
        rows.append(engine.features(texts[query], found, timeout=30.0))
        grades += [documents.get(doc, 0.0) for doc in found]
        qid += [query] * len(found)
    judged_set = QuerySet.from_arrays(np.concatenate(rows), grades, qid=qid, feature_names=engine.feature_names)
    ranker = KnnRanker(60, prior="global", missing="zero").fit(judged_set)
    ranker.save(folder / "model", examples=judged_set[:10])
    kin = KinRanker(
        encoder=None, missing="zero", memory=False, local=False, n_members=2, n_repeats=1, trees="lambdamart(n_trees=5)"
    ).fit(judged_set)
    kin.save(folder / "choices", examples=judged_set[:10])
    (folder / "titles.tsv").write_text("".join(f"{doc}\t{fields['title']}\n" for doc, fields in movies.items()))
    (folder / "texts.tsv").write_text("".join(f"{query}\t{texts[query]}\n" for query in judged))
    yield World(folder, address, texts)
    engine.delete_index()  # type: ignore[attr-defined]
    engine.close()


def read_judgments(msrd: Path) -> tuple[dict[str, str], dict[str, dict[str, float]]]:
    texts: dict[str, str] = {}
    judged: dict[str, dict[str, float]] = {}
    with gzip.open(msrd / "movies-judgments.tsv.gz", "rt") as lines:
        next(lines)
        for line in lines:
            qid, query, doc, grade = line.rstrip("\n").split("\t")
            if qid not in judged and len(judged) == QUERIES:
                break
            texts[qid] = query
            judged.setdefault(qid, {})[doc] = float(grade)
    return texts, judged


def read_movies(msrd: Path, wanted: set[str]) -> dict[str, dict[str, object]]:
    movies = {}
    with gzip.open(msrd / "movies-corpus.jsonl.gz", "rt") as lines:
        for line in lines:
            movie = json.loads(line)
            if movie["id"] in wanted:
                movies[movie["id"]] = {name: movie[name] for name in FIELDS if movie.get(name) is not None}
    return movies


def arguments(world: World, address: str | None = None) -> list[str]:
    files = {name: str(world.folder / f"{name}.tsv") for name in ("titles", "texts")}
    options = ["--engine", address or world.address, "--features", str(world.folder / "features.toml")]
    options += [word for name, file in files.items() for word in ("--set", f"{name}={file}")]
    # Nothing here is about time limits, and a busy machine must not reach one.
    options += ["--deadline", "5000", "--set", "engine_seconds=10", "--set", "drain_seconds=0.1"]
    return [str(world.folder / "model"), *options]


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    # A busy machine must not make the page fall back: these tests are about what it shows.
    with serving(world.folder / "log", *arguments(world), "--deadline", "30000", env=one_thread()) as server:
        yield server


def test_search_ranks_the_engines_candidates(server: Server, world: World):
    query = next(iter(world.queries.values()))
    status, found = server.request("POST", "/v1/search", {"query": query, "size": 10, "window": 50, "explain": True})
    assert status == 200, found
    assert found["fallback"] is None
    assert found["engine_ids"]
    assert len(found["ids"]) == len(found["engine_ids"])
    assert {near["text"] for near in found["explanation"]["neighbors"]} <= set(world.queries.values())
    status, weights = server.request("POST", "/v1/weights", {"query": query, "size": 10})
    assert status == 200
    assert {"title", "title_all", "votes", "rating"} < weights["weights"].keys()
    assert weights["request"]


def test_stopped_engine_is_reported_and_used_again_under_load(world: World, tmp_path: Path):
    host, _, index = world.address.rpartition("/")
    target = int(host.rpartition(":")[2])
    proxy = Forwarder.started(0, target)
    port = proxy.server_address[1]
    body = json.dumps({"query": next(iter(world.queries.values())), "size": 3}).encode()
    address = f"elasticsearch+http://127.0.0.1:{port}/{index}"
    with serving(tmp_path / "log", *arguments(world, address), env=one_thread()) as server:
        with Load(lambda: server.port, path="/v1/search", body=body, check=False) as load:
            load.wait_for(10)
            assert set(load.statuses) == {200}
            proxy.cut()
            server.wait_until(lambda: server.request("POST", "/v1/search", body)[0] == 503)
            load.wait_for(20)
            proxy = Forwarder.started(port, target)
            server.wait_until(lambda: server.request("POST", "/v1/search", body)[0] == 200)
            load.wait_for(20)
        proxy.cut()
    assert load.lost == []
    assert set(load.statuses) == {200, 503}


@pytest.mark.alone
def test_slow_engine_delays_searches_and_a_failing_one_is_spared(world: World, tmp_path: Path):
    host, _, index = world.address.rpartition("/")
    body = {"query": next(iter(world.queries.values())), "size": 3}
    with FaultyProxy.started(int(host.rpartition(":")[2])) as proxy, ThreadPoolExecutor(40) as clients:
        address = f"elasticsearch+http://127.0.0.1:{proxy.server_port}/{index}"
        with serving(tmp_path / "log", *arguments(world, address), env=one_thread()) as server:
            send = partial(server.request, "POST", "/v1/search", body)
            assert send()[0] == 200
            proxy.delay = 0.3  # type: ignore[attr-defined]
            assert Counter(status for status, _ in clients.map(lambda _: send(), range(40))) == {200: 40}
            proxy.delay, proxy.status, proxy.searches = 0.0, 503, 0  # type: ignore[attr-defined]
            statuses = Counter(status for status, _ in clients.map(lambda _: send(), range(200)))
            assert statuses == {503: 200}
            assert proxy.searches < 150  # type: ignore[attr-defined]
            proxy.status = 0  # type: ignore[attr-defined]
            server.wait_until(lambda: send()[0] == 200)


def test_page_in_a_browser(server: Server, browser: Browser, world: World, tmp_path: Path):
    """The page shows both orders, the neighbors and the weights; KINRANK_PAGE_PICTURE names a file for a screenshot."""
    query = os.environ.get("KINRANK_PAGE_QUERY") or next(iter(world.queries.values()))
    page = browser.new_page(viewport={"width": 1200, "height": 1140})
    page.goto(f"http://127.0.0.1:{server.port}/#{query.replace(' ', '%20')}")
    expect(page.locator("#note")).to_contain_text("Ranked in", timeout=PATIENCE)
    _, answer = server.request("POST", "/v1/search", {"query": query, "size": 10, "explain": True})
    assert answer["explanation"] is not None, answer
    assert page.locator("li[data-id]").count() == len(answer["ids"]) + len(answer["engine_ids"])
    neighbors = [neighbor["text"] for neighbor in answer["explanation"]["neighbors"]]
    # Copies of a shard may score a little differently, so that two requests have neighbors in another order.
    assert sorted(page.locator("#neighbors .what").all_inner_texts()) == sorted(neighbors)
    shown = page.locator("body").inner_text()
    assert [title for title in answer["titles"].values() if title not in shown] == []
    assert page.locator(".bar").count() == 10
    page.screenshot(path=os.environ.get("KINRANK_PAGE_PICTURE", tmp_path / "page.png"))
    page.close()


def test_choices_made_on_the_page_change_the_order(browser: Browser, world: World, tmp_path: Path):
    """Two people who choose a document are too few, and twenty more lift it.

    KINRANK_CHOICES_PICTURE names a file for a screenshot.
    """
    query, key = next(iter(world.queries.values())), add_key(tmp_path / "keys", "ops", Role.ADMIN)
    learns = ["--keys", str(tmp_path / "keys"), "--judgments", f"sqlite:///{tmp_path / 'choices.db'}"]
    options = [str(world.folder / "choices"), *arguments(world)[1:], *learns, "--deadline", "30000"]
    with serving(tmp_path / "log", *options, env=one_thread()) as server:

        def opened() -> Page:
            page = browser.new_page(viewport={"width": 1200, "height": 1140})
            page.goto(f"http://127.0.0.1:{server.port}/")
            page.locator("#key").fill(key)
            page.locator("#key").dispatch_event("change")
            page.locator("#query").fill(query, timeout=PATIENCE)
            page.locator("#form button").click()
            expect(page.locator("#note")).to_contain_text("Ranked in", timeout=PATIENCE)
            return page

        chosen = ""
        for _ in range(2):
            page = opened()
            fifth = page.locator("#after li").nth(4)
            chosen = fifth.get_attribute("data-id") or ""
            fifth.click()
            expect(page.locator("#note")).to_contain_text("You chose", timeout=PATIENCE)
            expect(page.locator("#note")).to_contain_text("Ranked in", timeout=PATIENCE)
            expect(fifth).to_have_attribute("data-id", chosen)
            page.context.close()
        for person in range(20):
            _, found = server.request("POST", "/v1/search", {"query": query, "size": 10}, key)
            about = {"query_id": found["query_id"], "client_id": f"person {person}"}
            shown = {**about, "user_query": query, "query_response_hit_ids": found["ids"]}
            click = {**about, "action_name": "click", "event_attributes": {"object": {"object_id": chosen}}}
            status, answer = server.request("POST", "/v1/events", {"queries": [shown], "events": [click]}, key)
            assert status == 200, answer

        def is_first() -> bool:
            return server.request("POST", "/v1/search", {"query": query, "size": 10}, key)[1]["ids"][0] == chosen

        server.wait_until(is_first)
        page = opened()
        first = page.locator("#after li").first
        expect(first).to_have_attribute("data-id", chosen, timeout=PATIENCE)
        expect(first).to_contain_text("looks for this query; without that it would be 5th")
        page.screenshot(path=os.environ.get("KINRANK_CHOICES_PICTURE", tmp_path / "page.png"))
        check_rules(page, query)
        page.close()


def check_rules(page: Page, query: str) -> None:
    """An editor pins the third document, for queries like this one too, after a look at which those are.

    KINRANK_RULES_PICTURE names a file for a screenshot.
    """
    third = page.locator("#after li").nth(2)
    pinned, title = third.get_attribute("data-id") or "", third.locator(".what").inner_text()
    expect(page.locator("#rule-query")).to_have_value(query)
    page.locator("#rule-document").select_option(pinned)
    page.locator("#rule-similar").check()
    page.locator("#rule-preview").click()
    expect(page.locator("#touched")).to_contain_text(query, timeout=PATIENCE)
    expect(page.locator("#rule-note")).to_contain_text("of what people looked at")
    page.locator("#rule-why").fill("new film")
    page.locator("#rule-form button", has_text="Add").click()
    expect(page.locator("#rules")).to_contain_text(f"Pin {title} to place 1 for queries like “{query}”")
    expect(page.locator("#rules")).to_contain_text("by ops")
    page.wait_for_timeout(2_500)  # until all replicas follow
    page.locator("#form button").click()
    expect(page.locator("#after li").first).to_have_attribute("data-id", pinned, timeout=PATIENCE)
    expect(page.locator("#acted")).to_contain_text(f"pins “{title}” to place 1")
    page.screenshot(path=os.environ.get("KINRANK_RULES_PICTURE"), full_page=True)
    page.locator("#rules button").click()
    expect(page.locator("#rules")).to_contain_text("No rule holds")
