from __future__ import annotations

import re
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.docs.document_blocks import blocks_of, run_document

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [file for file in DOCUMENTS if blocks_of(file.read_text())]
NEEDS = re.compile(r"<!-- needs: ([a-z ]+) -->")


def marked(file: Path) -> ParameterSet:
    """A document with the marks of what its first line says it needs."""
    needs = NEEDS.match(file.read_text())
    names = needs[1].split() if needs else []
    marks = [getattr(pytest.mark, name) for name in names]
    if "engine" in names:
        marks.append(pytest.mark.xdist_group("engine"))
    return pytest.param(file, marks=marks, id=str(file.relative_to(ROOT)))


def test_the_readme_shows_code_that_runs():
    assert ROOT / "README.md" in WITH_CODE


@pytest.mark.parametrize("file", [marked(file) for file in WITH_CODE])
def test_the_code_of_a_document_runs_word_for_word(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KINRANK_CHECKOUT", str(ROOT))
    if request.node.get_closest_marker("data"):
        monkeypatch.setenv("KINRANK_DATA", str(request.getfixturevalue("data_dir")))
    run_document(file, tmp_path)
