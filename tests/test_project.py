"""The repository matches its documents: layers, dependencies, benchmarks, version, CI, public names."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import grimp
import pytest

import kinrank
from benchmarks.__main__ import names as benchmark_names

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "kinrank"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documented_layers() -> list[set[str]]:
    cells = re.findall(r"^\| (`[^|]*`) \|", ARCHITECTURE, re.MULTILINE)
    return [set(re.findall(r"`(\w+)`", cell)) for cell in cells]


def requirement_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~! ]", line)[0] for line in requirements} - {"kinrank"}


def test_documented_layers_are_those_of_the_contract():
    assert documented_layers() == [set(layer) for layer in load_script("draw_layers").layers()]


def test_files_to_read_for_a_search_exist_and_are_few():
    text = ARCHITECTURE.partition("**Reading `POST /v1/search`**")[2].partition("\n\n")[0]
    files = re.findall(r"`([\w/]+\.py)`", text)
    assert 0 < len(files) <= 8
    assert all((ROOT / "src" / "kinrank" / file).is_file() for file in files)


def test_every_package_is_in_a_layer():
    packages = {file.parent.name for file in PACKAGE.glob("*/__init__.py")}
    modules = {file.stem for file in PACKAGE.glob("*.py") if not file.stem.startswith("_")}
    assert packages | modules <= set.union(*documented_layers())


def test_picture_of_layers_is_up_to_date():
    script = load_script("draw_layers")
    expected = script.draw(script.layers(), script.package_imports())
    assert script.PICTURE.read_text() == expected, "run python scripts/draw_layers.py"


def test_no_import_cycle_between_modules():
    graph = grimp.build_graph("kinrank", cache_dir=None)  # with imports inside functions and for type checkers
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' <- '.join(error.args[1])}")


def test_every_dependency_has_a_reason():
    page = (ROOT / "docs" / "dependencies.md").read_text()
    documented = {name for cell in re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE) for name in cell.split(", ")}
    project = SETTINGS["project"]
    required = [
        project["dependencies"],
        SETTINGS["build-system"]["requires"],
        *project["optional-dependencies"].values(),
    ]
    assert set.union(*map(requirement_names, required)) == documented - {"package", "---"}


def test_every_benchmark_is_documented():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert set(benchmark_names()) == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


def test_benchmarks_are_listed_without_any_dependency():
    command = [sys.executable, "-S", "-m", "benchmarks", "--list"]  # -S: without the installed packages
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == benchmark_names()
    assert all(len(line.split()) > 3 for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", sorted(file.stem for file in (ROOT / "benchmarks").glob("*.py")))
def test_benchmark_can_be_started(name: str):
    importlib.import_module(f"benchmarks.{name}")


def test_count_leaves_out_blank_lines_comments_and_docstrings(tmp_path: Path):
    loader = SourceFileLoader("count", str(ROOT / "scripts" / "count"))
    script = ModuleType(loader.name)
    loader.exec_module(script)
    (tmp_path / "empty.py").touch()
    (tmp_path / "example.py").write_text(
        '''"""A module
of two lines."""

# A comment.
class Public:
    """A class."""

    field: int  # counts
    """A field."""

class _Private:
    text = """not
a docstring"""
'''
    )
    (tmp_path / "_hidden.py").write_text("class OfNobody: ...\n")
    counted = {"lines": 14, "code lines": 6, "modules": 3, "public classes": 1}
    assert script.count_package(tmp_path) == counted
    done = subprocess.run([sys.executable, ROOT / "scripts" / "count"], capture_output=True, text=True, check=True)
    totals = dict(line.split(maxsplit=1)[::-1] for line in done.stdout.splitlines())
    assert int(totals["modules"]) == len(SOURCES)
    assert int(totals["options"]) == sum(int(count) for name, count in totals.items() if name.startswith("options of"))


def test_version_is_the_same_everywhere():
    newest = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert kinrank.__version__ == SETTINGS["project"]["version"] == newest[1]
    assert f"\nversion: {kinrank.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_ci_steps_are_executable_scripts():
    steps = re.findall(r"^(?:step |beside \w+ scripts/)([\w-]+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert " ".join(steps) == "tools test-core install docs neural lint types layers build test-servers test"
    for script in [".ci/run", *(f"scripts/{step}" for step in steps)]:
        assert os.access(ROOT / script, os.X_OK), script


def test_importing_kinrank_loads_no_heavy_package():
    code = "import sys, kinrank; print(*{'numpy', 'scipy', 'numba', 'sklearn', 'pyarrow', 'typer'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


SOURCES = {file: ast.parse(file.read_text()) for file in sorted(PACKAGE.rglob("*.py"))}


def test_casts_are_rare():
    calls = [node for tree in SOURCES.values() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert sum(ast.unparse(call.func) == "cast" for call in calls) < 10


def test_arrays_of_queries_are_spelled_out_in_one_place():
    functions = {
        f"{file.stem}.{node.name}": {arg.arg for arg in [*node.args.args, *node.args.kwonlyargs]}
        for file, tree in SOURCES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }
    spelled_out = [name for name, arguments in functions.items() if {"qid", "query_vectors", "query_text"} <= arguments]
    assert len(spelled_out) <= 1, spelled_out


@pytest.mark.parametrize("name", kinrank.__all__)
def test_public_name_exists(name: str):
    assert getattr(kinrank, name) is not None
    assert name in dir(kinrank)


def test_unknown_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Ranker'"):
        kinrank.Ranker  # noqa: B018
