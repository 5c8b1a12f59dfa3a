"""A headless Chromium for tests, behind the fixture `browser`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests import processes

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 1000 * processes.PATIENCE  # how long a page may take to show something, in milliseconds
expect.set_options(timeout=PATIENCE)


@contextmanager
def launched() -> Iterator[Browser]:
    """Start the browser that is installed; fail the test if there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.fail("Chromium is not installed: run apt-get install chromium, or pytest -m 'not browser'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


def new_page(browser: Browser, **settings: Any) -> Page:
    """Open a page in a context of its own, which waits with patience."""
    context = browser.new_context(**settings)
    context.set_default_timeout(PATIENCE)
    return context.new_page()
