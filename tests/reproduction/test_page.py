from __future__ import annotations

import re
from pathlib import Path

import pytest

from reproduction import PAPERS, page, plots, results
from reproduction.results import Results

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def stored() -> Results:
    return Results.read(DOCS / results.FILE)


def test_page_is_up_to_date(stored: Results):
    assert (DOCS / page.FILE).read_text() == page.render(stored), "run python -m reproduction.page"


def test_every_claim_of_every_paper_is_as_expected(stored: Results):
    verdicts = stored.verdicts()
    assert list(verdicts) == list(PAPERS)
    surprises = [
        f"{each.claim.source}: {each.claim.statement}: {each.value:g}, {each}"
        for some in verdicts.values()
        for each in some
        if not each.as_expected
    ]
    assert surprises == []


def test_page_gives_a_reason_for_every_claim_that_does_not_reproduce(stored: Results):
    text = (DOCS / page.FILE).read_text()
    reasons = {each.claim.reason for some in stored.verdicts().values() for each in some if not each.holds}
    assert reasons
    assert all(f"**Why:** {reason}" in text for reason in reasons)


def test_results_round_trip_through_json(stored: Results, tmp_path: Path):
    stored.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (DOCS / results.FILE).read_bytes()


def test_page_of_a_single_paper(stored: Results):
    alone = Results({name: stored.figures[name] for name in ("ensemble", "ensemble-time")}, stored.seconds)
    assert alone.papers == ["sser"]
    assert re.findall(r"^## (.+)$", page.render(alone), re.M) == [PAPERS["sser"]]


@pytest.mark.slow
def test_plots_match_the_stored_output(stored: Results, tmp_path: Path):
    drawn = plots.draw(stored.figures, tmp_path)
    linked = set(re.findall(r"\(figures/(reproduction-\w+\.svg)\)", (DOCS / page.FILE).read_text()))
    assert {file.name for file in drawn} == linked
    for file in drawn:
        assert 5_000 < file.stat().st_size < 250_000
        # Other versions of Matplotlib draw other paths, but the same text.
        assert _text(file) == _text(DOCS / plots.FOLDER / file.name)


def _text(plot: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", plot.read_text())
