from __future__ import annotations

import re
from pathlib import Path

import pytest

from reproduction import PAPERS, page, plots, results
from reproduction.claims import DATA, expectations, judge
from reproduction.items import ALGORITHMS
from reproduction.results import Results

DOCS = Path(__file__).parents[2] / "docs"
FORMER_WORDS = 8136
"""Visible words of the page before its details were folded away, and before it was split by paper."""


@pytest.fixture(scope="module")
def stored() -> Results:
    return Results.read(DOCS / results.FILE)


def generated(file: str) -> str:
    """Return what is generated of a page: all of the summary, and what follows the mark on the page of a paper."""
    above, mark, below = (DOCS / file).read_text().partition(page.MARK)
    return below.lstrip() if mark else above


def without_overviews(text: str) -> str:
    """Leave out the table of algorithms and the papers' numbers, which are there to be looked up."""
    for start, end in (("## Algorithms", "## What the papers"), ("## Next to the papers", "## All claims")):
        before, _, rest = text.partition(start)
        text = before + rest[rest.index(end) :]
    return text


def all_pages() -> str:
    """Return the generated text of the summary and of the page of each paper."""
    return "\n".join(generated(file) for file in (page.SUMMARY, *page.FILES.values()))


def test_writing_keeps_what_is_above_the_mark(stored: Results, tmp_path: Path):
    file = tmp_path / page.FILES["sser"]
    file.parent.mkdir()
    file.write_text(f"# Mine\n\nBy hand.\n\n{page.MARK}\n\nold\n")
    page.write(stored, tmp_path)
    assert file.read_text() == f"# Mine\n\nBy hand.\n\n{page.MARK}\n\n{generated(page.FILES['sser'])}"
    new = (tmp_path / page.FILES["atvt"]).read_text()
    assert new == f"# {PAPERS['atvt']}\n\n{page.MARK}\n\n{generated(page.FILES['atvt'])}"


def test_verdicts_on_algorithms_follow_from_the_claims(stored: Results):
    summary = (DOCS / page.SUMMARY).read_text()
    for algorithm in ALGORITHMS:
        row = next(line for line in summary.splitlines() if f"`{algorithm.code}`" in line and algorithm.name in line)
        held, of = map(int, re.search(r"\((\d+) of (\d+)\)", row).groups())
        verdicts = judge(algorithm.claims, stored.figures)
        assert (held, of) == (sum(each.holds for each in verdicts), len(verdicts))
        assert ("| reproduced (" in row) == (held == of)


def test_numbers_of_the_papers_are_shown_next_to_ours(stored: Results):
    summary = (DOCS / page.SUMMARY).read_text()
    for verdicts in stored.verdicts().values():
        published = [each.claim for each in verdicts if each.claim.published]
        assert len(published) >= 5
        for claim in published:
            assert f"| {claim.source} | {claim.statement} | {claim.published} | " in summary


def test_pages_are_up_to_date(stored: Results):
    pages = page.render(stored)
    assert {file: generated(file) for file in pages} == pages, "run python -m reproduction.page"
    assert set(pages) == {page.SUMMARY, *page.FILES.values()}


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
    text = all_pages()
    reasons = {each.claim.reason for some in stored.verdicts().values() for each in some if not each.holds}
    assert reasons
    assert all(f"**Why:** {reason}" in text for reason in reasons)


def test_page_shows_the_verdicts_of_the_run(stored: Results):
    # Read back from the page, not rendered again: a verdict edited by hand, or left over from another run, fails.
    shown = page_verdicts(all_pages())
    judged = {
        (each.claim.source, each.claim.statement): str(each) for some in stored.verdicts().values() for each in some
    }
    assert shown == judged


def test_theses_at_the_top_follow_from_the_claims(stored: Results):
    text = all_pages()
    for paper, verdicts in stored.verdicts().items():
        row = next(line for line in text.splitlines() if expectations(paper).thesis in line)
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        for cell, data in zip(cells[2:4], DATA, strict=True):
            holds = [each.holds for each in verdicts if (each.claim.kind, each.claim.data) == ("thesis", data)]
            if not holds:
                assert cell == "not measured"
                continue
            assert f"({sum(holds)} of {len(holds)})" in cell
            undecided = data in expectations(paper).undecided
            assert ("undecided" in cell) == undecided
            assert ("not reproduced" in cell) == (not any(holds) and not undecided)


def test_reader_sees_at_most_half_of_the_former_page():
    text = without_overviews(all_pages())
    shown = re.sub(r"<details.*?</details>", "", text, flags=re.S)
    assert len(shown.splitlines()) <= 646 / 2
    assert len(re.findall(r"\w+", shown)) <= FORMER_WORDS / 2


def test_summary_is_one_page_that_links_every_paper():
    summary = (DOCS / page.SUMMARY).read_text()
    assert "<details" not in summary
    assert len(re.findall(r"\w+", without_overviews(summary))) <= 900
    assert [paper for paper in page.FILES if f"({paper}.md)" not in summary] == []


def test_page_shows_mended_claims_before_and_now(stored: Results):
    text = all_pages()
    mended = [each for some in stored.verdicts().values() for each in some if each.claim.before]
    assert mended
    for each in mended:
        row = next(line for line in text.splitlines() if f"| {each.claim.source}: {each.claim.statement} | " in line)
        assert f"| {each.claim.before} | " in row
        assert ("not reproduced" in row.split(" | ")[2]) == (not each.holds)


def test_results_round_trip_through_json(stored: Results, tmp_path: Path):
    stored.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (DOCS / results.FILE).read_bytes()


def test_page_of_a_single_paper(stored: Results):
    alone = Results(
        {name: stored.figures[name] for name in ("ensemble", "ensemble-time", "ensemble-tuned", "map-ensemble")},
        stored.seconds,
    )
    assert alone.papers == ["sser"]
    pages = page.render(alone)
    assert list(pages) == [page.SUMMARY, page.FILES["sser"]]
    assert "[SSER](sser.md)" in pages[page.SUMMARY]
    assert "[Naive](local-models.md)" not in pages[page.SUMMARY]


def test_one_experiment_is_judged_but_has_no_page(stored: Results):
    alone = Results({"ensemble": stored.figures["ensemble"]}, stored.seconds)
    [(paper, verdicts)] = alone.verdicts().items()
    assert paper == "sser"
    assert 0 < len(verdicts) < len(stored.verdicts()["sser"])
    assert page.render(alone) == {}


@pytest.mark.slow
def test_plots_match_the_stored_output(stored: Results, tmp_path: Path):
    drawn = plots.draw(stored.figures, tmp_path)
    linked = set(re.findall(r"\(\.\./figures/(reproduction-[\w-]+\.svg)\)", all_pages()))
    assert {file.name for file in drawn} == linked
    for file in drawn:
        assert 5_000 < file.stat().st_size < 250_000
        # Other versions of Matplotlib draw other paths, but the same text.
        assert _text(file) == _text(DOCS / plots.FOLDER / file.name)


def page_verdicts(text: str) -> dict[tuple[str, str], str]:
    """Return the verdict of each claim, by source and statement, from the tables of the page."""
    found, inside = {}, False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        inside = cells == page.CLAIMS_HEADER or (inside and line.startswith("|"))
        if inside and cells != page.CLAIMS_HEADER and set(cells[0]) != {"-"}:
            found[cells[0], cells[2]] = cells[-1].strip("*")
    return found


def _text(plot: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", plot.read_text())
