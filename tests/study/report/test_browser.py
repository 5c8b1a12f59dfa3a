"""The report in a real browser: desktop, phone, dark mode, print, mouse and keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from kinrank.study.report import Report

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

DESK, PHONE, SMALL_PHONE = (1280, 900), (390, 844), (320, 640)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, page: str) -> Path:
    target = tmp_path_factory.mktemp("report") / "report.html"
    target.write_text(page, "utf-8")
    return target


@pytest.fixture
def opened(browser: Browser, file: Path) -> Iterator[object]:
    """Return a function that opens the report; fails on console messages, errors and requests."""
    contexts, messages, requests = [], [], []

    def open_at(size: tuple[int, int], **settings: object) -> Page:
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **settings)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(file.as_uri())
        return tab

    yield open_at
    for context in contexts:
        context.close()
    assert messages == []
    assert set(requests) == {file.as_uri()}


def background(tab: Page) -> str:
    return str(tab.evaluate("getComputedStyle(document.body).backgroundColor"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE, SMALL_PHONE], ids=["desk", "phone", "small phone"])
def test_page_fits_the_screen(opened, size: tuple[int, int], scheme: str):
    tab = opened(size, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") <= size[0]
    shown = "wide" if size == DESK else "narrow"
    assert tab.locator(f"svg.{shown}").first.is_visible()
    assert not tab.locator(f"svg.{'narrow' if size == DESK else 'wide'}").first.is_visible()
    assert tab.title().startswith("A <i>generated</i> world: knn(n_neighbors=60) gains")


def test_theme_follows_the_system_and_the_button(opened):
    light, dark = (opened(DESK, color_scheme=scheme) for scheme in ("light", "dark"))
    assert background(light) != background(dark)
    before = background(light)
    light.get_by_role("button", name="Dark").click()
    assert background(light) == background(dark)
    light.get_by_role("button", name="Light").click()
    assert background(light) == before


def test_hovering_over_a_dot_shows_its_query(opened, report: Report):
    tab = opened(DESK)
    analysis = report.neighbors
    assert analysis is not None
    box = tab.locator("#query-map").bounding_box()
    place = tab.evaluate("JSON.parse(document.getElementById('data').textContent).at[20]")
    scale = box["width"] / 680
    tab.locator("#query-map").scroll_into_view_if_needed()
    box = tab.locator("#query-map").bounding_box()
    tab.mouse.move(box["x"] + place[0] * scale, box["y"] + place[1] * scale)
    tip = tab.locator("#tip")
    expect(tip).to_be_visible()
    assert any(name in tip.inner_text() for name in report.names)
    expect(tab.locator("#card")).to_contain_text("Nearest judged queries")


def test_terms_are_explained_on_hover_and_focus(opened):
    tab = opened(PHONE)
    tip = tab.get_by_role("tooltip")
    tab.locator("dt abbr").first.hover()
    expect(tip).to_contain_text("From 0 to 1")
    tab.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    tab.locator("dt abbr").nth(1).focus()
    expect(tip).to_contain_text("Positive is better")
    box = tip.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE[0]


def test_link_to_a_folded_section_opens_it(opened):
    tab = opened(DESK)
    assert not tab.locator("#neighbors svg.wide").is_visible()
    tab.get_by_role("link", name="number of neighbors").click()
    expect(tab.locator("#neighbors svg.wide")).to_be_visible()


def test_arrow_keys_move_between_queries(opened):
    tab = opened(DESK)
    tab.locator("#query-map").focus()
    seen = set()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        tab.keyboard.press(key)
        seen.add(tab.locator("#card h3").inner_text())
    assert len(seen) >= 3


def test_search_finds_queries_and_escapes_their_text(opened, report: Report):
    tab = opened(PHONE)
    title = tab.title()
    tab.get_by_label("Find a query").fill("onerror")
    tab.locator("#found button").first.click()
    expect(tab.locator("#card h3")).to_have_text(report.names[1])
    assert tab.title() == title
    assert tab.locator("img").count() == 0
    tab.get_by_label("Find a query").fill("no such query")
    expect(tab.locator("#found button")).to_have_count(0)


def test_map_can_be_colored_by_kind_and_by_weight(opened, report: Report):
    tab = opened(DESK)
    n = len(report.names)
    count = "[...document.querySelectorAll('#query-map .dots')].map(p => p.getAttribute('d').split('M').length - 1)"
    assert sum(tab.evaluate(count)) == n
    for label in ("kind of query", "weight of <b>reference</b>", "change in NDCG@10"):
        tab.get_by_role("combobox").select_option(label=label)
        assert sum(tab.evaluate(count)) == n
    tab.get_by_role("combobox").select_option(label="kind of query")
    assert "A" in tab.locator("#legend").inner_text()


def test_print_is_light_open_and_without_controls(opened):
    tab = opened(DESK, color_scheme="dark")
    tab.emulate_media(media="print")
    assert background(tab) == "rgb(255, 255, 255)"
    assert not tab.get_by_label("Find a query").is_visible()
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("details:not([open])").count() == 0
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.locator("details[open]").count() == 0
    assert tab.pdf(format="A4").startswith(b"%PDF")


def test_page_without_javascript_hides_the_controls(opened):
    tab = opened(DESK, java_script_enabled=False)
    assert tab.locator("#query-map .dots").count() == 7
    assert not tab.locator("#controls").is_visible()
    assert not tab.locator("#theme").is_visible()


def test_interactive_elements_have_accessible_names(opened):
    tab = opened(DESK)
    for role in ("button", "combobox", "searchbox", "img", "region", "navigation"):
        for each in tab.get_by_role(role).all():
            assert each.get_attribute("aria-label") or each.inner_text() or each.evaluate("n => n.labels?.length")
