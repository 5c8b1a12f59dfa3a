"""The page at / and search, with a real engine, the MSRD movies and a browser."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import socket
import socketserver
import subprocess
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from kinrank import KnnRanker, QuerySet
from kinrank.engines import FeatureSet, connect
from kinrank.errors import EngineUnreachableError
from tests.engines.servers import ADDRESSES
from tests.serve.asgi import Client  # noqa: F401 - these tests need the extra
from tests.serve.servers import Load, Server, one_thread, serving

pytestmark = [pytest.mark.slow, pytest.mark.data("text/msrd"), pytest.mark.engine]

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
    KnnRanker(60, prior="global", missing="zero").fit(judged_set).save(folder / "model", examples=judged_set[:10])
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
    options += ["--titles", files["titles"], "--texts", files["texts"], "--deadline", "5000", "--drain", "0.1"]
    return [str(world.folder / "model"), *options]


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    # A busy machine must not make the page fall back: these tests are about what it shows.
    with serving(world.folder / "log", *arguments(world), "--deadline", "2000", env=one_thread()) as server:
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


def test_page_in_a_browser(server: Server, world: World, tmp_path: Path):
    """The page shows both orders, the neighbors and the weights; KINRANK_PAGE_PICTURE names a file for a screenshot."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.fail("chromium is not installed: apt-get install chromium")
    query = os.environ.get("KINRANK_PAGE_QUERY") or next(iter(world.queries.values()))
    picture = Path(os.environ.get("KINRANK_PAGE_PICTURE", tmp_path / "page.png"))
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"]
    quiet += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    shown = [f"--user-data-dir={tmp_path / 'browser'}", "--virtual-time-budget=20000", "--window-size=1200,1140"]
    url = f"http://127.0.0.1:{server.port}/#{query.replace(' ', '%20')}"
    done = subprocess.run(
        [browser, *quiet, *shown, f"--screenshot={picture}", "--dump-dom", url],
        capture_output=True,
        text=True,
        timeout=300,
    )
    page = done.stdout
    _, found = server.request("POST", "/v1/search", {"query": query, "size": 10, "explain": True})
    assert picture.stat().st_size > 10_000
    assert page.count("<li data-id=") == len(found["ids"]) + len(found["engine_ids"])
    for near in found["explanation"]["neighbors"]:
        assert f">{near['text']}<" in page
    for title in found["titles"].values():
        assert title.replace("&", "&amp;") in page
    assert "Ranked in" in page
    assert page.count('class="bar"') == 10
