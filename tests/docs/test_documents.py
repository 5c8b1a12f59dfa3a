from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.document_blocks import blocks_of, run_document

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [file for file in DOCUMENTS if blocks_of(file.read_text())]


def test_the_readme_shows_code_that_runs():
    assert ROOT / "README.md" in WITH_CODE


@pytest.mark.parametrize("file", WITH_CODE, ids=[str(file.relative_to(ROOT)) for file in WITH_CODE])
def test_the_code_of_a_document_runs_word_for_word(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run_document(file, tmp_path)
