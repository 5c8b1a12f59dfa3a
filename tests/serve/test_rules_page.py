"""The rules on the page at /, in a browser: in words, what they changed, and redirects of searches without results."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browsers import PATIENCE
from tests.serve.servers import Server, one_thread, serving

pytestmark = [pytest.mark.slow, pytest.mark.browser]

EMPTY = {"ids": [], "scores": None, "engine_ids": [], "total": None, "fallback": None, "kin": "heat"}


def with_engine(route: Route) -> None:
    """Let the page believe that an engine is attached."""
    response = route.fetch()
    route.fulfill(response=response, json={**response.json(), "engine": True})


def choose(server: Server, key: str, query: str, document: str, people: int, chosen: int) -> None:
    """Send lists of some people with a document, which some of them chose."""
    lists = [
        {"query_id": f"{query}{n}", "user_query": query, "client_id": f"c{n}", "query_response_hit_ids": [document]}
        for n in range(people)
    ]
    click = {"action_name": "click", "event_attributes": {"object": {"object_id": document}}}
    clicks: list[dict[str, Any]] = [{"query_id": f"{query}{n}", "client_id": f"c{n}", **click} for n in range(chosen)]
    assert server.request("POST", "/v1/events", {"queries": lists, "events": clicks}, key)[0] == 200


@pytest.mark.parametrize("width", [1280, 390])
def test_rules_on_the_page(models: Path, browser: Browser, tmp_path: Path, secrets: dict[str, str], width: int) -> None:
    """KINRANK_EDITOR_PICTURE names a folder for screenshots."""
    options = [
        str(models / "knn"),
        "--judgments",
        f"sqlite:///{tmp_path}/judgments.db",
        "--keys",
        str(tmp_path / "keys"),
    ]
    key = secrets["admin"]
    with serving(
        tmp_path / "log", *options, "--set", "drain_seconds=0.1", "--deadline", "5000", env=one_thread()
    ) as server:
        choose(server, key, "iron man", "a movie with an id that is long enough to be wrapped", 9, 4)
        page = browser.new_page(viewport={"width": width, "height": 844})
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.route("**/v1/model", with_engine)
        page.route("**/v1/search", lambda route: route.fulfill(json=EMPTY))
        for body in (
            {"document": "a movie with an id that is long enough to be wrapped", "note": "new film"},
            {"document": "other", "places": 2, "also_similar": True},
        ):
            rule = {"query": "iron man", "action": "pin", **body}
            assert server.request("POST", "/v1/rules", rule, key)[0] == 200
        time.sleep(1.5)  # until what was chosen is counted
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.locator("#key").fill(key)
        page.locator("#key").press("Enter")
        rules = page.locator("#rules li")
        expect(rules).to_have_count(2, timeout=PATIENCE)
        expect(rules.first).to_contain_text("to place 1 for “iron man”")
        expect(rules.first).to_contain_text(
            "in the week before not looked at, in the last week chosen 4 times in 9 looks"
        )
        expect(rules.last).to_contain_text("for queries like “iron man”")
        expect(rules.last).to_contain_text("nothing counted yet")
        page.locator("#rule-action").select_option("redirect")
        expect(page.locator("#rule-places")).to_be_hidden()
        page.locator("#rule-query").fill("irnoman")
        page.locator("#rule-instead").fill("iron man")
        page.locator("#rule-form button", has_text="Add").click()
        expect(page.locator("#rules")).to_contain_text("Search “iron man” instead for “irnoman”", timeout=PATIENCE)
        check_suggestion(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        folder = Path(os.environ.get("KINRANK_EDITOR_PICTURE", tmp_path))
        page.locator("#rules-card").scroll_into_view_if_needed()
        page.screenshot(path=folder / f"rules-{width}.png", full_page=True)
        for left in (3, 2, 1):
            expect(rules).to_have_count(left + 1, timeout=PATIENCE)
            rules.first.get_by_role("button", name="Undo").click()
        expect(rules).to_have_count(1, timeout=PATIENCE)
        page.close()
    assert problems == []


def check_suggestion(page: Page) -> None:
    """A search without results names the query that it is a spelling of; one click searches that from now on."""
    page.locator("#query").fill("haet")
    page.locator("#form button").click()
    expect(page.locator("#note")).to_contain_text("The engine found nothing for this query.", timeout=PATIENCE)
    expect(page.get_by_role("button", name="Search “heat”")).to_be_visible()
    page.get_by_role("button", name="Always do that").click()
    expect(page.locator("#rules")).to_contain_text("Search “heat” instead for “haet”", timeout=PATIENCE)
