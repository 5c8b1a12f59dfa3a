"""Draw the picture of README from what ``kinrank demo`` finds: ``python scripts/draw_picture.py``.

It is narrow and its letters are large, so that it can be read on a phone, and it follows the colors of the system.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from kinrank.demo.demo import Demo

PICTURE = Path(__file__).parents[1] / "docs" / "figures" / "how-it-works.svg"
QUERY = "frozen 2 enchanted forest"
WIDTH, LINE, SHOWN = 560, 30, 3
STYLE = """
text{font:18px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1d2733}
.soft{fill:#5f6b78}.bold{font-weight:600}.paper{fill:#fbfaf7;stroke:#e3e0d8}.pill{fill:#eef3f7;stroke:#c9d6e0}
.lead{fill:#fff;stroke:#2f6690;stroke-width:2}.card{fill:#fff;stroke:#e3e0d8}.up{fill:#2a7f4f;font-weight:600}
@media (prefers-color-scheme: dark){
text{fill:#e6e9ec}.soft{fill:#97a3af}.paper{fill:#14191f;stroke:#2c353f}.pill{fill:#222c36;stroke:#3a4754}
.lead{fill:#1b222a;stroke:#7fb2d9}.card{fill:#1b222a;stroke:#2c353f}.up{fill:#6cc495}}
"""


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Return a line of text."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>'


def pills(texts: Sequence[str], top: float) -> tuple[list[str], float]:
    """Return texts in rounded boxes, as many on a line as fit, and where they end."""
    parts, left = [], 20.0
    for words in texts:
        width = 9.8 * len(words) + 22
        if left + width > WIDTH - 20:
            left, top = 20.0, top + 40
        parts.append(f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="32" rx="16" class="pill"/>')
        parts.append(text(left + 11, top + 22, words))
        left += width + 8
    return parts, top + 32


def order(titles: Sequence[str], before: Sequence[str], left: float, top: float, heading: str, kind: str) -> list[str]:
    """Return a card with the first titles of an order; those that are higher than in the one before are marked."""
    width = (WIDTH - 52) / 2
    box = f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{SHOWN * LINE + 48}" rx="10" class="{kind}"/>'
    parts = [box, text(left + 14, top + 28, heading, "bold")]
    for rank, title in enumerate(titles[:SHOWN]):
        rises = title in before and before.index(title) > rank
        words = f"{rank + 1}  {title}" + ("  ▲" if rises else "")
        parts.append(text(left + 14, top + 28 + LINE * (rank + 1), words, "up" if rises else ""))
    return parts


def picture(query: str) -> str:
    """Return the picture of a query."""
    found = Demo().search(query)
    orders = {name: [f"{hit['title']} ({hit['year']})" for hit in hits] for name, hits in found["lists"].items()}
    parts, bottom = pills([query], 44)
    kin, end = pills(found["kin"], bottom + 46)
    parts += [text(20, 32, "Someone searches for", "soft"), *kin]
    parts.append(text(20, bottom + 34, "Its kin: the judged queries most like it", "soft"))
    why = found["why"].removeprefix("For this query ").rstrip(".").split(", ")
    parts += [text(20, end + 34, "What they teach", "soft")]
    parts += [text(20, end + 34 + 26 * place, words, "bold") for place, words in enumerate(why, 1)]
    top = end + 34 + 26 * len(why) + 20
    parts += order(orders["lightgbm"], orders["lightgbm"], 20, top, "One model for all", "card")
    parts += order(orders["kinrank"], orders["lightgbm"], WIDTH / 2 + 6, top, "kinrank", "lead")
    height = top + SHOWN * LINE + 48 + 20
    label = escape(f"The query {query}, its kin ({', '.join(found['kin'])}), the orders of one model and of kinrank")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="440" viewBox="0 0 {WIDTH} {height:g}"',
            f' aria-label="{label}">',
            f"<style>{STYLE}</style>",
            f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2:g}" rx="14" class="paper"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(QUERY), encoding="utf-8")
