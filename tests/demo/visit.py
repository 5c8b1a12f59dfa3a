"""Use the page of ``kinrank demo`` as a visitor does: ``python -m tests.demo.visit ADDRESS`` drives a real browser."""

from __future__ import annotations

import sys

from playwright.sync_api import Browser, Page, expect

from tests.browsers import launched, new_page

QUERY, OTHER_WORDS = "alien", "alien movie"


def visit(browser: Browser, address: str, width: int = 1280, scheme: str = "light") -> tuple[list[str], list[str]]:
    """Search, choose the last movie until it rises, and forget that. Return the titles before and after the choices."""
    page = new_page(browser, viewport={"width": width, "height": 844}, color_scheme=scheme)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address, wait_until="networkidle")
    page.fill("#query", QUERY)
    page.press("#query", "Enter")
    expect(page.locator("#kinrank .title").first).to_contain_text("Alien")
    before = _titles(page)
    chosen = page.locator("#kinrank .hit", has_text=before[-1])
    for times in range(1, 5):
        chosen.click()
        expect(chosen).to_contain_text(f"chosen {times} time")
    after = _titles(page)
    assert after.index(before[-1]) < len(before) - 1, "the chosen movie did not rise"
    page.fill("#query", OTHER_WORDS)
    page.press("#query", "Enter")
    risen = page.locator("#kinrank .hit", has_text=before[-1])
    expect(risen).to_contain_text(f"judged right for {QUERY}")
    page.fill("#query", QUERY)
    page.press("#query", "Enter")
    expect(page.locator("#kinrank .hit.chosen")).to_have_count(1)
    page.click("#forget")
    expect(page.locator("#kinrank .title")).to_have_text(before)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the screen"
    assert errors == []
    page.context.close()
    return before, after


def _titles(page: Page) -> list[str]:
    return page.locator("#kinrank .title").all_inner_texts()


if __name__ == "__main__":
    with launched() as chromium:
        titles, moved = visit(chromium, sys.argv[1])
    rank = moved.index(titles[-1]) + 1
    sys.stdout.write(f"searched {QUERY!r}, chose {titles[-1]!r} four times: from no. {len(titles)} to no. {rank}\n")
