from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.notebooks import check_notebook, titles_of

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


NEED = {
    "3-tool-router.ipynb": pytest.mark.data("real/metatool"),
    "4-when-knn-wins.ipynb": pytest.mark.data("letor/MQ2008", "text/msrd"),
}


def test_there_are_notebooks():
    assert len(NOTEBOOKS) == 4


@pytest.mark.parametrize("file", NOTEBOOKS, ids=[file.name for file in NOTEBOOKS])
def test_notebook_has_pictures_with_titles(file: Path):
    cells = json.loads(file.read_text())["cells"]
    titles = [title for cell in cells if cell["cell_type"] == "code" for title in titles_of(cell)]
    assert titles
    assert all(titles)


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", [pytest.param(file, marks=NEED.get(file.name, ()), id=file.name) for file in NOTEBOOKS]
)
def test_notebook_prints_what_it_shows(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_dir: Path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KINRANK_DATA", str(data_dir))
    check_notebook(file)
