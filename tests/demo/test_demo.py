"""The movie search of ``kinrank demo``: without a server, over HTTP, and in a browser."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from kinrank.demo._demo import LONGEST_QUERY, Demo
from kinrank.demo._http import create_app
from kinrank.errors import DataError
from tests.demo.visit import visit
from tests.processes import wait_until
from tests.serve.asgi import Client
from tests.serve.servers import free_port


@pytest.fixture(scope="module")
def loaded() -> Demo:
    return Demo()


@pytest.fixture
def demo(loaded: Demo) -> Demo:
    loaded.forget()
    return loaded


def titles(found: dict[str, object], name: str = "kinrank") -> list[str]:
    return [hit["title"] for hit in found["lists"][name]]


def without_time(found: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in found.items() if name != "milliseconds"}


def test_search_shows_three_orders_of_the_same_hits(demo: Demo):
    found = demo.search("matrix reloaded")
    assert set(found["lists"]) == {"engine", "lightgbm", "kinrank"}
    assert all(hits[0]["title"] == "The Matrix Reloaded" for hits in found["lists"].values())
    assert 1 <= len(demo.search("alien movie")["kin"]) <= 6
    assert all(
        re.search(r"[a-z]{3}", text) for text in demo.search("alien movie")["kin"]
    )  # queries by their texts, not by numbers


def test_choice_moves_a_movie_up_and_says_why(demo: Demo):
    before = demo.search("alien")
    last = before["lists"]["kinrank"][-1]
    after = before
    for _ in range(5):
        after = demo.choose("alien", last["id"])
    assert titles(after).index(last["title"]) < len(titles(before)) - 1
    chosen = next(hit for hit in after["lists"]["kinrank"] if hit["id"] == last["id"])
    assert re.fullmatch(
        r"chosen 5 times in \d+(\.\d)? looks for this query; without that it would be 9th", chosen["why"]
    )
    assert titles(after, "engine") == titles(before, "engine")


def test_choice_rises_for_other_words_too(demo: Demo):
    for said, other, wanted in (("alien", "alien movie", "Aliens"), ("mad max", "watch mad max", "Mad Max: Fury Road")):
        before = titles(demo.search(other))
        movie = next(hit["id"] for hit in demo.search(said)["lists"]["kinrank"] if hit["title"] == wanted)
        demo.choose(said, movie)
        after = demo.search(other)
        assert titles(after).index(wanted) < before.index(wanted), (said, before)
        hit = next(hit for hit in after["lists"]["kinrank"] if hit["id"] == movie)
        assert f"judged right for *{said}*" in hit["why"]
        demo.forget()
        assert titles(demo.search(other)) == before


def test_choice_leaves_other_queries_alone_until_it_is_forgotten(demo: Demo):
    before = demo.search("alien"), demo.search("toy story")
    demo.choose("alien", before[0]["lists"]["kinrank"][3]["id"])
    assert without_time(demo.search("toy story")) == without_time(before[1])
    assert demo.search("alien")["lists"] != before[0]["lists"]
    demo.forget()
    assert without_time(demo.search("alien")) == without_time(before[0])


@pytest.mark.parametrize("text", ["zzzz", "", '"', "NOT", "a OR ) (", "'; DROP TABLE movies", "日本"])
def test_any_text_can_be_searched(demo: Demo, text: str):
    assert demo.search(text)["query"] == text


def test_what_cannot_be_shown_is_refused(demo: Demo):
    with pytest.raises(DataError, match="write at most 200"):
        demo.search("x" * (LONGEST_QUERY + 1))
    with pytest.raises(DataError, match="movie '0' is no hit of 'alien': choose one"):
        demo.choose("alien", "0")


def test_examples_help_and_hurt(demo: Demo):
    assert [len(texts) for texts in demo.examples.values()] == [5, 5]
    for text in demo.examples["helps"]:
        found = demo.search(text)
        first = {name: hits[0] for name, hits in found["lists"].items()}
        assert [first[name]["right"] for name in ("engine", "lightgbm", "kinrank")] == [False, False, True], text
        assert first["kinrank"]["why"].startswith("judged right for *")
    assert all(demo.search(text)["judged"] for text in demo.examples["hurts"])


def test_queries_unlike_any_judged_one_have_no_kin(demo: Demo):
    assert demo.search("dolphins")["kin"] == []


def test_http_serves_the_page_and_refuses_strangers(demo: Demo):
    client = Client(create_app(demo))
    local = {"host": "127.0.0.1:8000"}
    page = client.get("/", **local)
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert client.get("/", host="evil.example").status == 400
    assert client.get("/search?q=alien", **local).json["query"] == "alien"
    long = client.get(f"/search?q={'x' * 300}", **local)
    assert (long.status, long.json["error"]) == (422, "the query has 300 characters: write at most 200")
    json_type = {**local, "content_type": "application/json"}
    assert client.post("/choose", b"{", content_length="1", **json_type).status == 422
    array = client.post("/choose", b"[]", content_length="2", **json_type)
    assert array.json["error"] == "the body is not a JSON object"
    assert "application/json" in client.post("/forget", b"{}", content_length="2", **local).json["error"]
    assert "too large" in client.post("/forget", b"{}", content_length="5000", **json_type).json["error"]
    client.runner.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    port = free_port()
    program = [sys.executable, "-c", "from kinrank.cli import main; main()"]
    command = [*program, "demo", "--no-browser", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: listens(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_browser_searches_chooses_and_sees_the_order_change(address: str, browser: Browser, width: int, scheme: str):
    visit(browser, address, width, scheme)
