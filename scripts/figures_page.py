"""Write docs/figures.md from docs/readme-figures.json: ``python scripts/figures_page.py``.

The page lists where every figure of README and of docs/results.md comes from. A test fails if it is out of date.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "docs" / "readme-figures.json"
PAGE = ROOT / "docs" / "figures.md"
INTRODUCTION = """# Where our figures come from

Every measured number of README and of [what to expect](results.md), with its setup, the command that measures it, and
the commit and date that reported it. This page is written from `docs/readme-figures.json` by `python
scripts/figures_page.py`, and tests compare all of them. How to get the data is on the page about
[benchmarks](benchmarks.md#the-data).

The output of commands that README shows is not listed: tests run these commands.
"""
QUALITIES = ("linear", "LightGBM", "bag", "KinRanker")


def short(value: float) -> str:
    """Return a figure as README shows it."""
    if isinstance(value, int) or value == 0:
        return f"{value:,}"
    if abs(value) < 1e-3 and f"{value:.4f}" != f"{value:.6g}":
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:.4f}".rstrip("0").replace("0.", ".") if abs(value) < 1 else f"{value:g}"


def quality(value: float, sign: str = "") -> str:
    """Return NDCG, or a difference of it, with four digits."""
    return f"{value:{sign}.4f}".replace("0.", ".")


def compared(gain: float, p: float | None, *than: str) -> str:
    """Return a gain, what it is over, and its p if there is one."""
    notes = ", ".join([*than, *([] if p is None else [f"p = {short(p)}"])])
    return f"{quality(gain, '+')} ({notes})" if notes else quality(gain, "+")


def table(heading: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def origin(entry: dict[str, Any]) -> list[str]:
    """Return the cells that say where an entry comes from."""
    return [f"`{entry['command']}`", f"`{entry['commit']}`", entry["date"]]


def page(sources: dict[str, Any]) -> str:
    """Return the text of the page."""
    results = [
        [
            name,
            short(entry["judged queries"]),
            entry["setup"],
            ", ".join(f"{method} {quality(entry[method])}" for method in QUALITIES),
            compared(entry["over the best library"], entry["p"], entry["best library"]),
            compared(entry["over the bag"], entry["p against the bag"]),
            *origin(entry),
        ]
        for name, entry in sources["table"].items()
    ]
    claims = [
        [entry["claim"], entry["setup"], ", ".join(map(short, entry["figures"])), *origin(entry)]
        for entry in sources["text"]
    ]
    costs = [[entry["claim"], entry["setup"], ", ".join(entry["figures"]), *origin(entry)] for entry in sources["cost"]]
    source = ["command", "commit", "date"]
    columns = ["data", "judged queries", "setup", "NDCG@10", "over the best library", "over the bag"]
    return "\n".join(
        [
            INTRODUCTION,
            "## The table of results\n\np is after Holm's correction for the eighteen tests of `kin_quality`.\n",
            table([*columns, *source], results),
            "\n## Figures in the text\n",
            table(["claim", "setup", "figures", *source], claims),
            "\n## What it costs\n",
            table(["claim", "setup", "figures", *source], costs),
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(SOURCES.read_text(encoding="utf-8"))), encoding="utf-8")
