"""The page of the docs is what the stored output renders to, and what it says is as expected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reproduction import PAPERS, page, pictures, results
from reproduction.results import Results

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def stored() -> Results:
    return Results.read(DOCS / results.FILE)


def test_the_page_is_what_the_stored_output_renders_to(stored: Results):
    assert (DOCS / page.FILE).read_text() == page.render(stored)


def test_all_papers_were_measured_and_every_claim_is_as_expected(stored: Results):
    verdicts = stored.verdicts()
    assert list(verdicts) == list(PAPERS)
    surprises = [
        f"{each.claim.where}: {each.claim.says}: {each.value:g}, {each}"
        for some in verdicts.values()
        for each in some
        if not each.as_expected
    ]
    assert surprises == []


def test_the_page_says_why_for_everything_that_did_not_reproduce(stored: Results):
    text = (DOCS / page.FILE).read_text()
    reasons = {each.claim.reason for some in stored.verdicts().values() for each in some if not each.holds}
    assert reasons
    assert all(f"**Why:** {reason}" in text for reason in reasons)


def test_results_survive_their_file(stored: Results, tmp_path: Path):
    stored.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (DOCS / results.FILE).read_bytes()


def test_some_papers_alone_make_a_page(stored: Results):
    alone = Results({name: stored.figures[name] for name in ("ensemble", "ensemble-time")}, stored.seconds)
    assert alone.papers == ["sser"]
    assert re.findall(r"^## (.+)$", page.render(alone), re.M) == [PAPERS["sser"]]


@pytest.mark.slow
def test_every_picture_of_the_page_is_drawn_from_the_stored_output(stored: Results, tmp_path: Path):
    drawn = pictures.draw(stored.figures, tmp_path)
    linked = set(re.findall(r"\(figures/(reproduction-\w+\.svg)\)", (DOCS / page.FILE).read_text()))
    assert {file.name for file in drawn} == linked
    for file in drawn:
        assert 5_000 < file.stat().st_size < 250_000
        # Another Matplotlib may draw otherwise; what is written in the picture is ours.
        assert _words(file) == _words(DOCS / pictures.FOLDER / file.name)


def _words(picture: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", picture.read_text())
