"""Write a report to a file."""

from __future__ import annotations

import os
from typing import Any

from kinrank.data.textfile import atomic_writer
from kinrank.study.comparison import Comparison
from kinrank.study.report.collect import collect
from kinrank.study.report.contents import Report
from kinrank.study.report.page import render


def write_report(
    path: str | os.PathLike[str], comparison: Comparison, subject: str | None = None, **settings: Any
) -> Report:
    """Write the report of a comparison.

    Parameters
    ----------
    path
        Output HTML file; overwritten if present.
    comparison
        Two or more entrants on the test queries, the baseline first.
    subject
        Name of the entrant that the report is about; by default the second.
    **settings
        Parameters of `collect`: title, name_column, judged, validation, seed.

    Returns
    -------
    Report
        The contents of the report.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from kinrank.datasets import make_two_camps
    >>> from kinrank.study.study import Study
    >>> camps = make_two_camps(n_queries=90, seed=0)
    >>> study = Study.split(camps[:60], camps[60:])
    >>> comparison = study.compare([study.enter(name) for name in ("single", "knn(n_neighbors=10)")])
    >>> with TemporaryDirectory() as folder:
    ...     report = write_report(f"{folder}/report.html", comparison, judged=camps[:60])
    >>> report.difference.paired.losses
    0
    """
    report = collect(comparison, subject, **settings)
    write_page(path, report)
    return report


def write_page(path: str | os.PathLike[str], report: Report) -> int:
    """Write the page of a report atomically and return its size in bytes."""
    # A name may contain a lone surrogate, which UTF-8 cannot encode.
    page = render(report).encode("utf-8", "replace")
    with atomic_writer(path) as stream:
        stream.write(page)
    return len(page)
