"""A report that a team passes around: one HTML file that loads nothing.

`collect` computes what it says from a comparison, `render` makes the page, `write_report` does both and writes it.
"""

from __future__ import annotations

from kinrank.study.report.collect import STEPS, collect
from kinrank.study.report.contents import Report
from kinrank.study.report.page import render
from kinrank.study.report.write import write_page, write_report

__all__ = ["STEPS", "Report", "collect", "render", "write_page", "write_report"]
