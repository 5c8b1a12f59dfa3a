"""Draw the picture of README from what ``kinrank demo`` finds: ``python scripts/draw_picture.py``.

The first example of the demo: the engine's order, kinrank's, a line for each movie, and why movies rose. There is a
wide one, with the reasons next to the movies, and a narrow one for phones, with the reasons below. Both follow the
colors of the system.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from kinrank.demo._demo import Demo
from kinrank.rankers._local.explanation import ordinal

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
WIDTHS = {"how-it-works.svg": 1000, "how-it-works-narrow.svg": 620}
LINE, BEFORE, SHOWN, LONGEST = 29, 10, 5, 23
LEFT, MIDDLE, RIGHT, TOP = 24, 262, 358, 136  # columns, where lines start and end, and the first row
STYLE = """
text{font:18px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1d2733}
.soft,.small{fill:#5f6b78}.small{font-size:16px}.bold{font-weight:600}.paper{fill:#fbfaf7;stroke:#e3e0d8}.pill{fill:#eef3f7;stroke:#c9d6e0}
.line{stroke:#c3ccd5;stroke-width:2;fill:none}.rises{stroke:#2a7f4f;stroke-width:3;fill:none}
.right{fill:#2a7f4f}.up{fill:#2a7f4f;font-weight:600}
@media (prefers-color-scheme: dark){
text{fill:#e6e9ec}.soft,.small{fill:#97a3af}.paper{fill:#14191f;stroke:#2c353f}.pill{fill:#222c36;stroke:#3a4754}
.line{stroke:#3a4754}.rises{stroke:#6cc495}.right,.up{fill:#6cc495}}
"""


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Return a line of text."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>'


def short(title: str) -> str:
    """Return a title that fits into a column."""
    return title if len(title) <= LONGEST else title[: LONGEST - 1].rstrip() + "…"


def column(hits: list[dict[str, Any]], left: float, step: float, before: list[str]) -> list[str]:
    """Return the first titles of an order with their ranks; a dot marks those that are right."""
    parts = []
    for place, hit in enumerate(hits):
        y = TOP + step * place
        parts.append(text(left, y, f"{place + 1}  {short(hit['title'])}", "up" if rises(hit, place, before) else ""))
        if hit["right"]:
            parts.append(f'<circle cx="{left - 10:g}" cy="{y - 6:g}" r="5" class="right"/>')
    return parts


def rises(hit: dict[str, Any], place: int, before: list[str]) -> bool:
    """Return whether memory lifted a movie above its place in another order."""
    right = hit["why"].startswith(("judged right", "chosen"))
    return bool(before) and right and hit["id"] not in before[: place + 1]


def slopes(engine: list[str], kin: list[dict[str, Any]], step: float) -> list[str]:
    """Return a line from the engine's place of each movie to kinrank's; those that rise are drawn last."""
    lines = []
    for place, hit in enumerate(kin):
        start = engine.index(hit["id"]) if hit["id"] in engine else BEFORE
        y, end = TOP + LINE * min(start, BEFORE) - 6, TOP + step * place - 6
        lifted = rises(hit, place, engine)
        kind = "rises" if lifted else "line"
        middle = (MIDDLE + RIGHT) / 2 - 12
        path = f"M{MIDDLE},{y:g} C{middle:g},{y:g} {middle:g},{end:g} {RIGHT - 26},{end:g}"
        lines.append((lifted, f'<path d="{path}" class="{kind}"/>'))
    return [line for _, line in sorted(lines)]


def reasons(found: dict[str, Any]) -> dict[int, tuple[str, str]]:
    """Return why movies rose, and where other orders have them, by place."""
    places = {name: [hit["id"] for hit in found["lists"][name]] for name in ("engine", "lightgbm")}
    told = {}
    for place, hit in enumerate(found["lists"]["kinrank"][:SHOWN]):
        if rises(hit, place, places["engine"]):
            engine, trees = (
                ordinal(order.index(hit["id"]) + 1) if hit["id"] in order else "below 10th" for order in places.values()
            )
            why = hit["why"].split("; without")[0].replace("*", '"')
            told[place] = why, f"engine {engine}, LightGBM {trees}"
    return told


def picture(found: dict[str, Any], width: float) -> str:
    """Return the picture of a search; a wide one has the reasons below each movie, a narrow one below all."""
    lists, query, wide = found["lists"], found["query"], width > WIDTHS["how-it-works-narrow.svg"]
    engine, kin = [hit["id"] for hit in lists["engine"]], lists["kinrank"][:SHOWN]
    step = 2.0 * LINE if wide else LINE
    pill = 10.2 * len(query) + 26
    parts = [
        text(LEFT, 38, "Someone searches for", "soft"),
        f'<rect x="232" y="16" width="{pill:g}" height="34" rx="17" class="pill"/>',
        text(245, 39, query),
        text(LEFT, 92, "The engine", "bold"),
        text(RIGHT, 92, "kinrank", "bold"),
        *slopes(engine, kin, step),
        *column(lists["engine"][:BEFORE], LEFT + 12, LINE, []),
        *column(kin, RIGHT, step, engine),
    ]
    end = TOP + LINE * (BEFORE - 1) + 34.0
    for place, (why, elsewhere) in reasons(found).items():
        if wide:
            parts.append(text(RIGHT + 24, TOP + step * place + 24, f"{why}; {elsewhere.split(', ')[1]}", "small"))
            continue
        for number, words in enumerate(wrap(f"▲ {kin[place]['title']}: {why} ({elsewhere})", 54)):
            parts.append(text(LEFT + (20 if number else 0), end + 15, words, "soft" if number else "bold"))
            end += 26
    dot, note = (width - 500, 39.0) if wide else (LEFT + 6, end + 20)
    parts.append(f'<circle cx="{dot}" cy="{note - 6:g}" r="5" class="right"/>')
    parts.append(text(dot + 14, note, "judged right for this search, which kinrank has not seen", "small"))
    height = end if wide else end + 42
    ranks = ", ".join(hit["title"] for hit in kin)
    label = escape(f"The query {query}, the order of the engine, and that of kinrank: {ranks}", quote=True)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{0.9 * width:g}" viewBox="0 0 {width:g} {height:g}"',
            f' aria-label="{label}">',
            f"<style>{STYLE}</style>",
            f'<rect x="1" y="1" width="{width - 2:g}" height="{height - 2:g}" rx="14" class="paper"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    demo = Demo()
    searched = demo.search(demo.examples["helps"][0])
    for name, width in WIDTHS.items():
        (FIGURES / name).write_text(picture(searched, width), encoding="utf-8")
