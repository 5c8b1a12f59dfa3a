"""The house is as its documents say."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import kinrank

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "kinrank"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def draw_layers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_layers", ROOT / "scripts" / "draw_layers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table_of_rooms() -> list[set[str]]:
    cells = re.findall(r"^\| (`[^|]*`) \|", ARCHITECTURE, re.MULTILINE)
    return [set(re.findall(r"`(\w+)`", cell)) for cell in cells]


def requirement_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~! ]", line)[0] for line in requirements} - {"kinrank"}


def test_the_table_of_rooms_is_the_rule_that_is_checked():
    assert table_of_rooms() == [set(layer) for layer in draw_layers().layers()]


def test_every_room_is_in_the_table():
    folders = {file.parent.name for file in PACKAGE.glob("*/__init__.py")}
    modules = {file.stem for file in PACKAGE.glob("*.py") if not file.stem.startswith("_")}
    assert folders | modules <= set.union(*table_of_rooms())


def test_the_picture_is_drawn_from_the_rule():
    drawing = draw_layers()
    assert drawing.PICTURE.read_text() == drawing.draw(drawing.layers()), "run python scripts/draw_layers.py"


def test_every_dependency_has_its_reason():
    page = (ROOT / "docs" / "dependencies.md").read_text()
    named = {name for cell in re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE) for name in cell.split(", ")}
    project = SETTINGS["project"]
    listed = [project["dependencies"], SETTINGS["build-system"]["requires"], *project["optional-dependencies"].values()]
    assert set.union(*map(requirement_names, listed)) == named - {"package", "---"}


def test_every_claim_is_in_the_docs():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    claims = {file.stem for file in (ROOT / "benchmarks").glob("*.py")} - {"__init__", "__main__", "common"}
    assert claims == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


def test_one_version_everywhere():
    newest = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert kinrank.__version__ == SETTINGS["project"]["version"] == newest[1]


def test_ci_runs_scripts_that_exist_and_can_run():
    run = (ROOT / ".ci" / "run").read_text()
    loop = re.search(r"for name in (.+); do", run)
    assert loop is not None
    steps = {*loop[1].split(), *re.findall(r"^step ([\w-]+)$", run, re.M)}
    assert steps == {"install", "lint", "types", "layers", "docs", "test-core", "test-servers", "test"}
    for script in [".ci/run", *(f"scripts/{step}" for step in steps)]:
        assert os.access(ROOT / script, os.X_OK), script


def test_importing_kinrank_loads_nothing_heavy():
    code = "import sys, kinrank; print(*{'numpy', 'scipy', 'numba', 'sklearn', 'pyarrow', 'typer'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", kinrank.__all__)
def test_every_public_name_is_there(name: str):
    assert getattr(kinrank, name) is not None
    assert name in dir(kinrank)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Ranker'"):
        kinrank.Ranker  # noqa: B018
