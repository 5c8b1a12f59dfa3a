"""Record the clip of README from the page of ``kinrank demo``: docs/figures/demo.webp.

    kinrank demo --no-browser --port 8765 & python scripts/record_demo.py http://127.0.0.1:8765

Search, choose a movie, watch it rise, and ask in other words. Every picture is one that the page shows; the pointer is
drawn, and movements are taken in steps, so that a slow machine records the same clip.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.browsers import launched, new_page

TARGET = Path(__file__).parents[1] / "docs" / "figures" / "demo.webp"
QUERY, WANTED, OTHER_WORDS = "batman", "Batman Begins", "batman film"
SIZE = {"width": 800, "height": 620}
STEPS, STEP, PAUSE, KEY = 8, 60, 1200, 70
"""Pictures of a movement, and how long one of them, a rest and a typed letter last, in milliseconds."""
PREPARE = """() => {
const pointer = document.createElement("div");
pointer.id = "pointer";
for (const each of document.querySelectorAll("#examples, .switch, footer, #kin-card")) each.style.display = "none";
pointer.style.cssText = "position:fixed;z-index:9;width:22px;height:22px;border-radius:50%;pointer-events:none;"
  + "background:#d9822b88;border:2px solid #d9822b;transform:translate(-50%,-50%);left:400px;top:560px";
document.body.append(pointer);
window.moves = [];
const animate = Element.prototype.animate;
Element.prototype.animate = function (...given) {
  const made = animate.apply(this, given);
  made.pause();
  window.moves.push(made);
  return made;
};
}"""


class Clip:
    """Pictures of a page, with how long each is shown."""

    def __init__(self, page: Page) -> None:
        self.page, self.pictures, self.durations, self.pointer = page, [], [], (400.0, 560.0)  # type: ignore[var-annotated]

    def take(self, milliseconds: int) -> None:
        """Take a picture; one that is the same as before is shown for longer."""
        picture = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        if self.pictures and picture == self.pictures[-1]:
            self.durations[-1] += milliseconds
        else:
            self.pictures.append(picture)
            self.durations.append(milliseconds)

    def click(self, place: Any) -> None:
        """Move the pointer to an element, and click there."""
        box = place.bounding_box()
        x, y = box["x"] + min(box["width"] / 2, 160), box["y"] + box["height"] / 2
        for step in range(1, STEPS + 1):
            at = [a + (b - a) * step / STEPS for a, b in zip(self.pointer, (x, y), strict=True)]
            self.page.evaluate("([x, y]) => { pointer.style.left = `${x}px`; pointer.style.top = `${y}px`; }", at)
            self.take(STEP)
        self.pointer = x, y
        self.page.mouse.click(x, y)

    def type(self, text: str) -> None:
        """Type a query, and search."""
        self.page.fill("#query", "")
        for length in range(1, len(text) + 1):
            self.page.fill("#query", text[:length])
            self.take(KEY)
        self.page.press("#query", "Enter")

    def watch(self) -> None:
        """Take pictures of what moves."""
        for step in range(STEPS + 1):
            self.page.evaluate("at => moves.forEach(move => { move.currentTime = at * 599; })", step / STEPS)
            self.take(STEP)
        self.page.evaluate("moves.splice(0).forEach(move => move.finish())")
        self.take(PAUSE)


def record(browser: Browser, address: str) -> Clip:
    """Search, choose and search again."""
    page = new_page(browser, viewport=SIZE, color_scheme="light")
    page.goto(address, wait_until="networkidle")
    page.evaluate(PREPARE)
    clip, wanted = Clip(page), page.locator("#kinrank .hit", has_text=WANTED)
    clip.type(QUERY)
    expect(wanted).to_have_count(1)
    clip.take(PAUSE)
    for times in (1, 2):
        clip.click(wanted)
        expect(wanted).to_contain_text(f"chosen {times} time")
        clip.watch()
    clip.type(OTHER_WORDS)
    expect(wanted).to_contain_text("judged right for")
    clip.take(2 * PAUSE)
    return clip


if __name__ == "__main__":
    with launched() as chromium:
        clip = record(chromium, sys.argv[1])
    first, *rest = clip.pictures
    first.save(TARGET, save_all=True, append_images=rest, duration=clip.durations, loop=0, quality=70, method=6)
    seconds, size = sum(clip.durations) / 1000, TARGET.stat().st_size
    sys.stdout.write(f"{TARGET.name}: {len(clip.pictures)} pictures, {seconds:.1f} s, {size / 1000:,.0f} kB\n")
