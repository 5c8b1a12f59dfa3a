"""Draw docs/architecture.svg: ``python scripts/draw_layers.py``.

The rows are the layers that import-linter enforces (pyproject.toml); the arrows are the imports in the code, without
those that other arrows imply. A test fails if the picture is out of date.
"""

from __future__ import annotations

import tomllib
from itertools import pairwise
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH, ROW, PAD = 760, 76, 24
BOX_WIDTH, BOX_HEIGHT = 104, 36
# Fixed colors, so that the picture is readable on light and dark pages.
BACKGROUND, TEXT, FILL, BORDER, ARROW = "#fbfaf7", "#1d2733", "#dfe9f3", "#5b7fa3", "#8aa3bd"

Imports = dict[str, set[str]]


def layers() -> list[list[str]]:
    """Return the packages of each layer, highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [[package.strip().removeprefix("kinrank.") for package in line.split("|")] for line in contract["layers"]]


def package_imports() -> Imports:
    """Return the packages that each package of kinrank imports, without those that it also imports indirectly."""
    graph = grimp.build_graph("kinrank", cache_dir=None)
    for package in graph.find_children("kinrank"):
        graph.squash_module(package)
    imports = {}
    for module in graph.find_children("kinrank"):
        others = graph.find_modules_directly_imported_by(module) - {module, "kinrank"}
        imports[_name(module)] = {_name(other) for other in others}
    return {
        package: {other for other in direct if not any(other in _reachable(via, imports) for via in direct - {other})}
        for package, direct in imports.items()
    }


def _name(module: str) -> str:
    return module.removeprefix("kinrank.")


def _reachable(package: str, imports: Imports) -> set[str]:
    found: set[str] = set()
    waiting = [package]
    while waiting:
        new = imports[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    return found


def draw(rows: list[list[str]], imports: Imports) -> str:
    """Return the picture as SVG."""
    height = 2 * PAD + ROW * (len(rows) - 1) + BOX_HEIGHT
    centers = [[PAD + (place + 0.5) * (WIDTH - 2 * PAD) / len(row) for place in range(len(row))] for row in rows]
    positions = {
        package: (level, x) for level, row in enumerate(rows) for package, x in zip(row, centers[level], strict=True)
    }
    side = BOX_WIDTH / 2 + 14
    gaps = [[row[0] - side, *(sum(pair) / 2 for pair in pairwise(row)), row[-1] + side] for row in centers]
    arrows = [
        _arrow(position, positions[other], gaps)
        for package, position in positions.items()
        for other in sorted(imports[package])
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
            f'<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">'
            f'<path d="M0,0 L6,3 L0,6 z" fill="{ARROW}"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
            *arrows,
            *(_box(package, level, x) for package, (level, x) in positions.items()),
            "</svg>\n",
        ]
    )


def _box(name: str, level: int, x: float) -> str:
    top = PAD + level * ROW
    return (
        f'<rect x="{x - BOX_WIDTH / 2:g}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" '
        f'fill="{FILL}" stroke="{BORDER}"/>'
        f'<text x="{x:g}" y="{top + 23}" text-anchor="middle" fill="{TEXT}">{name}</text>'
    )


def _nearest(values: list[float], value: float) -> float:
    return min(values, key=lambda other: abs(other - value))


def _arrow(start: tuple[int, float], end: tuple[int, float], gaps: list[list[float]]) -> str:
    """Draw an arrow from one box to another, through the gaps between the boxes of the layers that it crosses."""
    (first, x), (last, target) = start, end
    path = [f"M{x:g},{PAD + first * ROW + BOX_HEIGHT}"]
    for level in range(first + 1, last + 1):
        top = PAD + level * ROW
        straight = x + (target - x) / (last - level + 1)
        new_x = target if level == last else _nearest(gaps[level], straight)
        middle = top - (ROW - BOX_HEIGHT) / 2
        path.append(f"C{x:g},{middle:g} {new_x:g},{middle:g} {new_x:g},{top - 2}")
        if level < last:
            path.append(f"V{top + BOX_HEIGHT}")
        x = new_x
    return f'<path d="{" ".join(path)}" fill="none" stroke="{ARROW}" stroke-width="1.5" marker-end="url(#tip)"/>'


if __name__ == "__main__":
    PICTURE.write_text(draw(layers(), package_imports()))
