"""The page about clicks in a real browser: desk and phone, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.report_pages import VIEWS, check_in_browser
from kinrank.clicks.examination import estimate_examination
from kinrank.clicks.judgments import THRESHOLDS, estimate_attractiveness, judgment_table
from kinrank.clicks.report import measure_quality, write_click_report
from tests.clicks.conftest import Simulate
from tests.clicks.test_report import people

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


def test_page_fits_every_screen(simulate: Simulate, tmp_path: Path):
    counts = simulate(user="trust", n_lists=200)
    counts.funnel.drop("impressions", "a reason with " + "averylongword" * 8, 3)
    examination = estimate_examination(counts)
    found = estimate_attractiveness(counts, examination)
    file = tmp_path / "clicks.html"
    quality = measure_quality(counts, examination, found, people())
    write_click_report(file, counts, examination, found, judgment_table(counts, found), THRESHOLDS, quality)
    seen = check_in_browser(file)
    assert seen == {"console": [], "loads": 0, "overflow": dict.fromkeys(VIEWS, 0)}
