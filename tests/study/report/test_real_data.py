"""Small reports on real data in a real browser."""

from __future__ import annotations

from html import escape
from pathlib import Path

import pytest

from benchmarks.common import letor_folds
from benchmarks.report_pages import VIEWS, check_in_browser, letor_rankers, make_report, movie_rankers, movies

pytestmark = [
    pytest.mark.data("text/msrd", "letor/MQ2007"),
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.slow,
    pytest.mark.usefixtures("data_dir"),
]


def checked(file: Path) -> str:
    seen = check_in_browser(file)
    assert seen == {"console": [], "loads": 0, "overflow": dict.fromkeys(VIEWS, 0)}
    page = file.read_text("utf-8")
    assert len(page.encode()) < 1_000_000
    return page


def test_report_on_movie_search(tmp_path: Path):
    file = tmp_path / "msrd.html"
    train, vali, test = movies()
    few = train[:300], vali[:60], test[:200]
    make_report(file, "Movie search", few, movie_rankers(*few[:2]))
    page = checked(file)
    shown = [text for text in test.query_columns["text"][:200].tolist() if f"<bdi>{escape(text)}</bdi>" in page]
    assert len(shown) >= 20


def test_report_on_letor_names_queries_by_id(tmp_path: Path):
    file = tmp_path / "mq2007.html"
    train, vali, test = next(letor_folds("MQ2007"))
    make_report(file, "LETOR MQ2007", (train[:400], vali[:80], test[:150]), letor_rankers())
    page = checked(file)
    assert "Keep one model: knn has " in page
    shown = [qid for qid in test.qid[:150].tolist() if f"<bdi>{qid}</bdi>" in page]
    assert len(shown) == 20
