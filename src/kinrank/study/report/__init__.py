"""A comparison as one self-contained HTML file.

`collect` computes the contents of a report, `render` makes the page, and `write_report` does both and writes the file.
"""

from __future__ import annotations

from kinrank.study.report._collect import STEPS, Report, collect
from kinrank.study.report._page import render, write_page, write_report

__all__ = ["STEPS", "Report", "collect", "render", "write_page", "write_report"]
