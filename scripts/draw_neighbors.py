"""Draw docs/figures/neighbors-teach.svg.

Run ``python scripts/draw_neighbors.py``. Every number is read from the tables of docs/project, which name the commands
that measured them. A test fails if the picture is out of date.
"""

from __future__ import annotations

import math
import re
from html import escape
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[1] / "docs"
PICTURE = DOCS / "figures" / "neighbors-teach.svg"
WIDTH = 480  # legible on a phone, too
KIN, CONTROL, RIVAL, INK, MUTED = "#1f5fa8", "#8a8a8a", "#c2570c", "#1c1c1c", "#5c5c5c"
LINEAR = 0.002
"""Gains up to this are drawn to scale; beyond it the axis is logarithmic, because gains differ by a factor of 100."""
TICKS = (-0.01, 0.01, 0.1, 0.4)


class Row(NamedTuple):
    """Gains in NDCG@10 on one collection: of kin, of the control without kin, and of the strongest rival."""

    name: str
    kin: float
    control: float
    control_name: str
    rival: float
    rival_name: str


def cells(page: str, start: str) -> list[str]:
    """Return the cells of the only table row of a page that starts with these cells."""
    lines = (DOCS / "project" / page).read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if line.startswith(f"| {start} |")]
    if len(found) != 1:
        raise SystemExit(
            f"docs/project/{page}: {len(found)} rows start with {start!r}; correct scripts/draw_neighbors.py"
        )
    return [cell.strip().replace("*", "") for cell in found[0].strip("|").split("|")]


def number(cell: str) -> float:
    """Return the first number of a cell."""
    match = re.search(r"[+-]?\d*\.\d+", cell)
    if match is None:
        raise SystemExit(f"no number in {cell!r}")
    return float(match[0])


def weights() -> list[Row]:
    """Return the gains of weights learned from neighbors."""
    knn = cells("knn.md", "the nearest queries (KNN Online)")
    random = cells("knn.md", "random queries, three draws")
    trees = cells("knn.md", "LightGBM LambdaMART")
    rows = [
        Row(
            "movie search, over one linear model",
            number(knn[2]),
            number(random[2]),
            "random queries",
            number(trees[2]),
            "LightGBM",
        )
    ]
    rows.append(movies())
    for name, start in (("data sets", "acordar2"), ("health questions", "NFCorpus"), ("scientific claims", "SciFact")):
        gain = cells_after("kin.md", "| KinRanker gains | over itself without own models |", start)
        quality = cells_after("kin.md", "| | queries | KinRanker |", start)
        without, bag = number(quality[3]), number(quality[4])
        rows.append(
            Row(
                f"{name}, over itself without them",
                number(gain[1]),
                0.0,
                "without",
                bag - without,
                "equal bag of trees",
            )
        )
    return rows


def movies() -> Row:
    """Return the gain of weights on movie search, tested by movie, which the page has in a sentence."""
    page = " ".join((DOCS / "project" / "kin.md").read_text(encoding="utf-8").split())
    found = re.search(r"without own models (\.\d+), equal bag (\.\d+)\. Own models gain (\+\.\d+)", page)
    if found is None:
        raise SystemExit(
            "docs/project/kin.md: no gain of own models on movie search; correct scripts/draw_neighbors.py"
        )
    without, bag, gain = map(float, found.groups())
    return Row("movie search, over itself without them", gain, 0.0, "without", bag - without, "equal bag of trees")


def cells_after(page: str, heading: str, start: str) -> list[str]:
    """Return the cells of the row of the table with this heading whose first cell starts with a name."""
    text = (DOCS / "project" / page).read_text(encoding="utf-8")
    line = next(line for line in text[text.index(heading) :].splitlines() if line.startswith(f"| {start}"))
    return [cell.strip().replace("*", "") for cell in line.strip("|").split("|")]


def memory() -> list[Row]:
    """Return the gains of what similar queries chose, over LightGBM, with families kept together."""
    rows = []
    for name, key in (
        ("questions of an FAQ", "FAQ (StackFAQ)"),
        ("tools of an assistant", "tools of an assistant (MetaTool)"),
        ("health questions", "health questions (NFCorpus)"),
        ("site search", "site search (GOV.UK)"),
        ("scientific claims", "scientific claims (SciFact)"),
    ):
        row = cells("memory.md", f"{key} | by family")
        trees, everyone, *rivals = (number(cell) for cell in row[3:8])
        names = ("one column", "extended field", "BM25 extended")
        best = max(range(3), key=rivals.__getitem__)
        gain = number(row[8].partition(":")[2])
        rows.append(Row(name, gain, everyone - trees, "everyone", rivals[best] - trees, names[best]))
    return rows


def place(gain: float) -> float:
    """Return where a gain is on the axis."""

    def bent(value: float) -> float:
        size = abs(value)
        far = size / LINEAR if size < LINEAR else 1 + math.log(size / LINEAR)
        return math.copysign(far, value)

    low, high = bent(-0.03), bent(0.5)
    return 18 + (bent(gain) - low) / (high - low) * (WIDTH - 40)


def shown(gain: float) -> str:
    """Return a gain as the pages show it."""
    return f"{gain:+.4f}".replace("0.", ".") if abs(gain) < 0.01 else f"{gain:+.3f}".replace("0.", ".")


def mark(kind: str, x: float, y: float) -> str:
    """Return the mark of kin, of a control or of a rival."""
    if kind == "kin":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{KIN}"/>'
    if kind == "control":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="white" stroke="{CONTROL}" stroke-width="2"/>'
    return f'<path d="M{x:.1f} {y - 7:.1f}l6 7l-6 7l-6 -7z" fill="none" stroke="{RIVAL}" stroke-width="2.2"/>'


def text(
    x: float, y: float, words: str, *, size: int = 13, color: str = INK, weight: str = "normal", anchor: str = "start"
) -> str:
    """Return a line of text."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def draw() -> str:
    """Return the picture."""
    parts: list[str] = []
    y = 26.0
    parts.append(text(14, y, "What should neighbors teach?", size=17, weight="bold"))
    legend = [
        ("kin", "similar queries"),
        ("control", "control: others in their place, or none"),
        ("rival", "strongest rival"),
    ]
    x, y = 22.0, y + 26
    for kind, words in legend:
        if x > 22 and x + 18 + 7 * len(words) > WIDTH:
            x, y = 22.0, y + 22
        parts += [mark(kind, x, y - 4), text(x + 13, y, words, color=MUTED)]
        x += 36 + 6.6 * len(words)
    top = y + 12
    for heading, below, rows in (
        ("Weights", "a linear model per query, as in 2008", weights()),
        ("What they chose", "memory, over LightGBM, split by family", memory()),
    ):
        y += 36
        parts += [text(14, y, heading, size=15, weight="bold"), text(14, y + 17, below, color=MUTED)]
        y += 24
        for row in rows:
            y += 20
            parts.append(text(22, y, row.name))
            y += 17
            parts.append(f'<line x1="18" x2="{WIDTH - 18}" y1="{y}" y2="{y}" stroke="#e4e4e4"/>')
            for kind, gain in (("control", row.control), ("rival", row.rival), ("kin", row.kin)):
                parts.append(mark(kind, place(gain), y))
            y += 21
            rival = f"{row.rival_name} {shown(row.rival)}"
            control = "" if row.control_name == "without" else f"{row.control_name} {shown(row.control)}, "
            parts.append(text(22, y, f"{shown(row.kin)}", color=KIN, weight="bold"))
            parts.append(text(82, y, f"{control}{rival}", color=MUTED))
            y += 5
    y += 12
    zero = place(0)
    axis = [f'<line x1="{zero:.1f}" x2="{zero:.1f}" y1="{top}" y2="{y}" stroke="#bdbdbd" stroke-dasharray="3 3"/>']
    y += 14
    for tick in TICKS:
        label = f"{tick:+g}".replace("0.", ".")
        parts.append(text(place(tick), y, label, size=12, color=MUTED, anchor="middle"))
    parts.append(text(place(0), y, "0", size=12, color=MUTED, anchor="middle"))
    parts.append(text(14, y + 20, "gain in NDCG@10; beyond ±.002 the axis is logarithmic", size=12, color=MUTED))
    height = y + 34
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
            f'height="{height:.0f}" font-family="system-ui, sans-serif" role="img">',
            "<title>What should neighbors teach: weights, or what they chose</title>",
            '<rect width="100%" height="100%" fill="white"/>',
            *axis,
            *parts,
            "</svg>\n",
        ]
    )


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
