from __future__ import annotations

import re
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.docs.document_blocks import blocks_of, run_document

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [file for file in DOCUMENTS if blocks_of(file.read_text())]
NEEDS = re.compile(r"<!-- needs: (.+) -->")


def with_marks(file: Path) -> ParameterSet:
    """Return a document with the markers on its first line, as in ``<!-- needs: engine data:text/msrd -->``."""
    needs = NEEDS.match(file.read_text())
    marks = [pytest.mark.slow]
    for word in needs[1].split() if needs else []:
        name, *arguments = word.split(":")
        marks.append(getattr(pytest.mark, name)(*arguments))
    return pytest.param(file, marks=marks, id=str(file.relative_to(ROOT)))


def test_readme_has_code_that_runs():
    assert ROOT / "README.md" in WITH_CODE


@pytest.mark.parametrize("file", [with_marks(file) for file in WITH_CODE])
def test_code_of_document_runs(
    file: Path, tmp_path: Path, warm: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KINRANK_CHECKOUT", str(ROOT))
    if request.node.get_closest_marker("data"):
        monkeypatch.setenv("KINRANK_DATA", str(request.getfixturevalue("data_dir")))
    run_document(file, tmp_path, warm)
