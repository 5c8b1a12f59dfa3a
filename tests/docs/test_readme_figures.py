"""Every number of README and of the page of results is that of a committed measurement, with its command and commit."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
SOURCES = json.loads((ROOT / "docs" / "readme-figures.json").read_text(encoding="utf-8"))
SECTION = PAGE[PAGE.index("## Judgments") : PAGE.index("## Cost")]
NUMBER = re.compile(r"(?<![\w.])([+-]?\.\d+|\d+(?:\.\d+)?e-\d+)")
COLUMNS = ("LightGBM", "KinRanker", "over the best library", "over the bag")
FIRST = README[: README.index("## Install")] + PAGE[: PAGE.index("## Judgments")]
ENTRIES = [*SOURCES["table"].values(), *SOURCES["text"], *SOURCES["cost"]]
COSTS = PAGE[PAGE.index("## Cost") :].replace("\n", " ")


def shown_rows() -> dict[str, list[tuple[str, str]]]:
    """Return the cells of each row of the table with their headings."""
    lines = [line for line in SECTION.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heading = cells[0][1:]
    return {row[0]: list(zip(heading, row[1:], strict=True)) for row in cells[2:]}


def load_script(name: str) -> ModuleType:
    """Import a module of ``scripts/``."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def number(cell: str) -> float:
    """Return the first number of a cell."""
    return float(re.search(r"[+-]?[\d,]*\.?\d+(?:e-\d+)?", cell.replace("*", ""))[0].replace(",", ""))


def test_table_shows_the_measured_rows():
    assert list(shown_rows()) == list(SOURCES["table"])


@pytest.mark.parametrize("name", list(SOURCES["table"]))
def test_row_shows_what_was_measured(name: str):
    cells, measured = shown_rows()[name], SOURCES["table"][name]
    assert {heading: number(cell) for heading, cell in cells} == {heading: measured[heading] for heading in COLUMNS}
    over = [cell.partition("p = ")[2] for heading, cell in cells if heading.startswith("over")]
    shown = [number(p) if p else None for p in over]  # None: tested as if queries were independent, which they are not
    assert shown == [measured["p"], measured["p against the bag"]]
    assert f"({measured['best library']})" in dict(cells)["over the best library"]


def test_bold_marks_rows_where_kinranker_is_the_best():
    for name, cells in shown_rows().items():
        measured = SOURCES["table"][name]
        best = max(("linear", "LightGBM", "bag", "KinRanker"), key=lambda method: measured[method])
        assert ("**" in dict(cells)["KinRanker"]) == (best == "KinRanker"), name
        assert "**" not in dict(cells)["LightGBM"]


def test_tables_have_at_most_five_columns():
    assert all(line.count("|") <= 6 for line in (README + PAGE).splitlines() if line.startswith("|"))


def test_every_number_of_the_first_table_has_a_source():
    table = {value for entry in SOURCES["table"].values() for value in entry.values() if isinstance(value, float)}
    known = table | {abs(figure) for entry in SOURCES["text"] for figure in entry["figures"]}
    found = {abs(float(match)) for match in NUMBER.findall(FIRST)}
    assert found
    assert found <= known


def test_every_other_number_of_the_section_has_a_source():
    prose = "\n".join(line for line in SECTION.splitlines() if not line.startswith("|"))
    known = {abs(figure) for entry in SOURCES["text"] for figure in entry["figures"]}
    found = [float(match) for match in NUMBER.findall(prose)]
    assert found
    assert {abs(value) for value in found} <= known
    alone = re.findall(r"\((\.\d+) alone\)", SECTION)
    assert {float(value) for value in alone} <= known


def test_no_source_is_left_over():
    shown = {abs(float(match)) for match in NUMBER.findall(FIRST + SECTION)}
    assert {abs(figure) for entry in SOURCES["text"] for figure in entry["figures"]} <= shown


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["command"] for entry in ENTRIES])
def test_source_names_command_commit_and_date(entry: dict[str, Any]):
    assert re.fullmatch(r"[0-9a-f]{7}", entry["commit"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", entry["date"])
    words = entry["command"].split()
    assert words[:2] == ["python", "-m"]
    module = {"benchmarks": ROOT / "benchmarks" / f"{words[3]}.py", "reproduction": ROOT / "reproduction"}[words[2]]
    assert module.exists()
    assert entry["setup"]


@pytest.mark.parametrize("name", list(SOURCES["table"]))
def test_figures_are_those_of_the_page_on_quality(name: str):
    page = (ROOT / "docs" / "project" / "kin.md").read_text(encoding="utf-8")
    page = page[page.index("## Quality") :]
    measured = SOURCES["table"][name]
    for key in ("linear", "LightGBM", "bag", "KinRanker"):
        assert f"{measured[key]:.4f}".lstrip("0") in page, (name, key)
    for key in ("over the best library", "over the bag"):
        assert f"{measured[key]:+.4f}".replace("0.", ".") in page, (name, key)


def test_costs_have_a_source():
    known = {figure for entry in SOURCES["cost"] for figure in entry["figures"]}
    assert {figure for figure in known if figure in COSTS} == known
    assert set(re.findall(r"[\d.]+ ms", COSTS)) <= known


def test_page_of_figures_is_up_to_date():
    script = load_script("figures_page")
    assert script.PAGE.read_text(encoding="utf-8") == script.page(SOURCES), "run python scripts/figures_page.py"


@pytest.mark.parametrize("name", list(SOURCES["table"]))
def test_page_of_figures_shows_each_row(name: str):
    line = next(
        line for line in (ROOT / "docs" / "figures.md").read_text().splitlines() if line.startswith(f"| {name}")
    )
    shown = {abs(float(match)) for match in NUMBER.findall(line)}
    assert {SOURCES["table"][name][key] for key in ("linear", "LightGBM", "bag", "KinRanker")} <= shown


def test_readme_is_short():
    assert len(README.split()) <= 800
