"""The demo of memory: ask, give a thumb, ask in other words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from kinrank.demo._faq import Faq
from kinrank.demo._http import create_app
from kinrank.errors import DataError
from tests.browsers import new_page
from tests.demo.test_demo import listens
from tests.processes import wait_until
from tests.serve.asgi import Client
from tests.serve.servers import free_port

ASKED, OTHER_WORDS = "Does it need a lot of data?", "Is a lot of data needed?"
RIGHT = "How many judged queries do I need?"


@pytest.fixture
def faq() -> Faq:
    return Faq()


def first(found: dict[str, object]) -> str:
    return found["hits"][0]["id"]


def test_answers_are_those_of_the_documentation(faq: Faq):
    page = (Path(__file__).parents[2] / "docs" / "faq.md").read_text()
    answers = {}
    for part in page.split("\n## ")[1:]:
        title, text = part.split("\n", 1)
        answers[title] = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(text.split())).replace("`", "")
    assert answers == faq._texts


@pytest.mark.parametrize(
    ("asked", "other_words", "right"),
    [
        (ASKED, OTHER_WORDS, RIGHT),
        ("Does it slow down my search?", "Will my search be slow?", "What happens if ranking fails or is late?"),
    ],
)
def test_one_thumb_mends_a_question_and_its_paraphrase(faq: Faq, asked: str, other_words: str, right: str):
    assert {asked, other_words} <= set(faq.examples["examples"])
    assert right not in (first(faq.search(asked)), first(faq.search(other_words)))
    faq.choose(asked, right)
    assert first(faq.search(asked)) == first(faq.search(other_words)) == right
    assert faq.search(other_words)["hits"][0]["why"] == f"chosen for *{asked}*"
    faq.forget()
    assert right not in (first(faq.search(asked)), first(faq.search(other_words)))


@pytest.mark.parametrize("text", ["", "?!", '"', "NEAR(a b)", "\0", "title:GPU"])
def test_any_text_can_be_asked(faq: Faq, text: str):
    assert faq.search(text)["query"] == text


def test_what_was_not_shown_gets_no_thumb(faq: Faq):
    with pytest.raises(DataError, match="choose one that is shown"):
        faq.choose(ASKED, "Something else")
    with pytest.raises(DataError, match="at most 200"):
        faq.search("x" * 201)


def test_http_serves_its_page(faq: Faq):
    client = Client(create_app(faq))
    local = {"host": "127.0.0.1:8000"}
    assert b"faq.js" in client.get("/", **local).body
    assert [client.get(path, **local).status for path in ("/faq.js", "/demo.css", "/demo.js")] == [200, 200, 404]
    client.runner.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    port = free_port()
    program = [sys.executable, "-c", "from kinrank.cli import main; main()"]
    command = [*program, "demo", "--faq", "--no-browser", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            wait_until(lambda: listens(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_browser_asks_gives_a_thumb_and_sees_the_answer_first(address: str, browser: Browser, width: int, scheme: str):
    page = new_page(browser, viewport={"width": width, "height": 844}, color_scheme=scheme)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address, wait_until="networkidle")
    titles = page.locator("#hits .title")
    page.fill("#query", ASKED)
    page.press("#query", "Enter")
    expect(titles.first).to_have_text("Does it work in my language?")
    page.get_by_label(f"This answers it: {RIGHT}").click()
    expect(titles.first).to_have_text(RIGHT)
    page.fill("#query", OTHER_WORDS)
    page.press("#query", "Enter")
    expect(page.locator("#hits li").first).to_contain_text(f"chosen for {ASKED}")
    expect(titles.first).to_have_text(RIGHT)
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/faq-{width}.png", full_page=True)
    page.click("#forget")
    expect(titles.first).to_have_text("Is there a GPU version?")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the screen"
    assert errors == []
    page.context.close()
