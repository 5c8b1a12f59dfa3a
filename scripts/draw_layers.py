"""Draw docs/architecture.svg from the layers in pyproject.toml: ``python scripts/draw_layers.py``.

A test compares the file with this drawing, so the picture cannot grow old.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH, ROW, BOX, PAD = 640, 64, 40, 24
# The picture brings its own paper, so that it reads the same on a light and on a dark page.
PAPER, INK, FILL, LINE = "#fbfaf7", "#1d2733", "#dfe9f3", "#5b7fa3"


def layers() -> list[list[str]]:
    """Rooms of each layer, highest first, as import-linter is told."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [[room.strip().removeprefix("kinrank.") for room in line.split("|")] for line in contract["layers"]]


def draw(rows: list[list[str]]) -> str:
    """The layers as SVG: a row of boxes each, arrows downwards in the direction of imports."""
    height = 2 * PAD + ROW * len(rows) - (ROW - BOX)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">'
        f'<path d="M0,0 L6,3 L0,6 z" fill="{LINE}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="{PAPER}"/>',
    ]
    for level, rooms in enumerate(rows):
        top = PAD + level * ROW
        step = (WIDTH - 2 * PAD) / len(rooms)
        for place, room in enumerate(rooms):
            left = PAD + place * step + 6
            parts.append(
                f'<rect x="{left:g}" y="{top}" width="{step - 12:g}" height="{BOX}" rx="6" '
                f'fill="{FILL}" stroke="{LINE}"/>'
                f'<text x="{left + step / 2 - 6:g}" y="{top + 26}" text-anchor="middle" fill="{INK}">{room}</text>'
            )
        if level + 1 < len(rows):
            parts.append(
                f'<line x1="{WIDTH / 2:g}" y1="{top + BOX + 2}" x2="{WIDTH / 2:g}" y2="{top + ROW - 3}" '
                f'stroke="{LINE}" stroke-width="2" marker-end="url(#tip)"/>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw(layers()))
