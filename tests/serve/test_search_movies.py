"""Search with a real engine and the MSRD movies."""

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
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinrank import KinRanker, KnnRanker, QuerySet
from kinrank.engines import FeatureSet, connect
from kinrank.errors import EngineUnreachableError
from kinrank.serve._keys import Role, add_key
from tests.engines.servers import ADDRESSES
from tests.processes import PATIENCE
from tests.serve.asgi import Client  # noqa: F401 - these tests need the extra
from tests.serve.servers import Load, Server, one_thread, serving

pytestmark = [pytest.mark.slow, pytest.mark.data("text/msrd"), pytest.mark.engine]

QUERIES = 100
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
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # or its thread goes on reading
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
    """An HTTP proxy in front of the engine that can reject searches."""

    protocol_version = "HTTP/1.1"

    @staticmethod
    @contextlib.contextmanager
    def started(target: int) -> Iterator[http.server.ThreadingHTTPServer]:
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), FaultyProxy) as proxy:
            proxy.target, proxy.fails, proxy.searches = target, False, 0  # type: ignore[attr-defined]
            threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
            yield proxy
            proxy.shutdown()

    def do_POST(self) -> None:
        proxy: Any = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "_search" in self.path:
            proxy.searches += 1
            if proxy.fails:
                self.respond(503, b'{"error": {"type": "injected", "reason": "injected"}}')
                return
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", proxy.target, timeout=PATIENCE)) as there:
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
    engine = connect(address, FeatureSet.parse(FEATURES), timeout=60.0)
    movies = read_movies(data_dir / "text" / "msrd", {doc for each in judged.values() for doc in each})
    try:
        engine.index(movies.items())
    except EngineUnreachableError as error:
        pytest.fail(f"{error}: scripts/engine start elasticsearch, or run -m 'not engine'")
    rows, grades, qid = [], [], []
    for query, documents in judged.items():
        # Fit on the candidates that the service will see.
        found = engine.search(texts[query], size=100, timeout=60.0).doc_id.tolist()
        rows.append(engine.features(texts[query], found, timeout=60.0))
        grades += [documents.get(doc, 0.0) for doc in found]
        qid += [query] * len(found)
    judged_set = QuerySet.from_arrays(np.concatenate(rows), grades, qid=qid, feature_names=engine.feature_names)
    judged_set = judged_set.replace(query_columns={"text": np.array([texts[each] for each in judged_set.qid.tolist()])})
    ranker = KnnRanker(60, prior="global", missing="zero", encoder=None).fit(judged_set)
    ranker.save(folder / "model", examples=judged_set[:10])
    kin = KinRanker(
        encoder=None,
        memory=False,
        local=False,
        trees="lambdamart(n_trees=5)",
        settings={"missing": "zero", "n_members": 2, "n_repeats": 1},
    ).fit(judged_set)
    kin.save(folder / "choices", examples=judged_set[:10])
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
    options = ["--engine", address or world.address, "--features", str(world.folder / "features.toml")]
    # Nothing here is about time limits, and a busy machine must not reach one.
    options += ["--deadline", "60000", "--set", "engine_seconds=60", "--set", "drain_seconds=0.1"]
    return [str(world.folder / "model"), *options]


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with serving(world.folder / "log", *arguments(world), env=one_thread()) as server:
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


def test_failing_engine_is_spared_and_used_again(world: World, tmp_path: Path):
    host, _, index = world.address.rpartition("/")
    body = {"query": next(iter(world.queries.values())), "size": 3}
    with FaultyProxy.started(int(host.rpartition(":")[2])) as proxy:
        address = f"elasticsearch+http://127.0.0.1:{proxy.server_port}/{index}"
        with serving(tmp_path / "log", *arguments(world, address), env=one_thread()) as server:
            send = partial(server.request, "POST", "/v1/search", body)
            assert send()[0] == 200
            proxy.fails = True  # type: ignore[attr-defined]

            def spared() -> bool:
                searches = proxy.searches  # type: ignore[attr-defined]
                assert send()[0] == 503
                return proxy.searches == searches  # type: ignore[attr-defined]

            server.wait_until(spared)
            proxy.fails = False  # type: ignore[attr-defined]
            server.wait_until(lambda: send()[0] == 200)


def test_choices_change_the_order(world: World, tmp_path: Path):
    """Two people who choose a document are too few, and twenty more lift it."""
    query, key = next(iter(world.queries.values())), add_key(tmp_path / "keys", "ops", Role.ADMIN)
    learns = ["--keys", str(tmp_path / "keys"), "--judgments", f"sqlite:///{tmp_path / 'choices.db'}"]
    options = [str(world.folder / "choices"), *arguments(world)[1:], *learns]
    with serving(tmp_path / "log", *options, env=one_thread()) as server:

        def search() -> Any:
            status, found = server.request("POST", "/v1/search", {"query": query, "size": 10, "explain": True}, key)
            assert status == 200, found
            return found

        def choose(document: str, people: range) -> None:
            for person in people:
                found = search()
                about = {"query_id": found["query_id"], "client_id": f"person {person}"}
                shown = {**about, "user_query": query, "query_response_hit_ids": found["ids"]}
                click = {**about, "action_name": "click", "event_attributes": {"object": {"object_id": document}}}
                status, answer = server.request("POST", "/v1/events", {"queries": [shown], "events": [click]}, key)
                assert status == 200, answer

        before = search()["ids"]
        chosen = before[4]
        choose(chosen, range(2))
        assert search()["ids"] == before
        choose(chosen, range(2, 22))
        server.wait_until(lambda: search()["ids"][0] == chosen)
        said = search()["explanation"]["choices"][chosen]
        assert "looks for this query; without that it would be 5th" in said
