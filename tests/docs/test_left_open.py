"""The picture of what neighbors teach is drawn from the tables of the pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.test_readme_figures import load_script

script = load_script("draw_neighbors")
PAGE = (Path(__file__).parents[2] / "docs" / "research" / "left-open.md").read_text(encoding="utf-8")


def test_picture_is_up_to_date():
    assert script.PICTURE.read_text(encoding="utf-8") == script.draw(), "run python scripts/draw_neighbors.py"
    assert f"figures/{script.PICTURE.name}" in PAGE


def test_rows_read_what_the_pages_say():
    rows = {row.name: row for row in [*script.weights(), *script.memory()]}
    assert (rows["movie search, over one linear model"].kin, rows["movie search, over one linear model"].control) == (
        0.0074,
        -0.0018,
    )
    assert rows["movie search, over itself without them"].kin == 0.002
    claims = rows["scientific claims"]
    assert (claims.kin, round(claims.rival, 4), claims.rival_name) == (0.0116, 0.0357, "BM25 extended")


@pytest.mark.parametrize("page", ["kin.md", "memory.md", "knn.md"])
def test_row_that_is_not_there_is_an_error(page: str):
    with pytest.raises(SystemExit, match="0 rows start with 'nothing like it'"):
        script.cells(page, "nothing like it")
