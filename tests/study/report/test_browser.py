"""The report in a real browser: desktop, phone, dark mode, print, mouse and keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browsers import new_page

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
        tab = new_page(browser, viewport={"width": size[0], "height": size[1]}, **settings)
        contexts.append(tab.context)
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
    assert tab.title().startswith("A <i>generated</i> world: Use knn(n_neighbors=60): +")


def test_theme_follows_the_system_and_the_button(opened):
    light, dark = (opened(DESK, color_scheme=scheme) for scheme in ("light", "dark"))
    assert background(light) != background(dark)
    before = background(light)
    light.get_by_role("button", name="Dark").click()
    assert background(light) == background(dark)
    light.get_by_role("button", name="Light").click()
    assert background(light) == before


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


def test_print_is_light_open_and_without_controls(opened):
    tab = opened(DESK, color_scheme="dark")
    tab.emulate_media(media="print")
    assert background(tab) == "rgb(255, 255, 255)"
    assert not tab.locator("#theme").is_visible()
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("details:not([open])").count() == 0
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.locator("details[open]").count() == 0
    assert tab.pdf(format="A4").startswith(b"%PDF")


def test_page_without_javascript_hides_the_controls(opened):
    tab = opened(DESK, java_script_enabled=False)
    assert tab.get_by_role("heading", level=1).is_visible()
    assert not tab.locator("#theme").is_visible()


def test_interactive_elements_have_accessible_names(opened):
    tab = opened(DESK)
    for role in ("button", "img", "region", "navigation"):
        for each in tab.get_by_role(role).all():
            assert each.get_attribute("aria-label") or each.inner_text() or each.evaluate("n => n.labels?.length")
