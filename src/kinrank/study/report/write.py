"""The report as a file."""

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
        The HTML file; one there is replaced.
    comparison
        Two or more entrants on the test queries, the baseline first.
    subject
        The entrant that the report is about; the second where not given.
    **settings
        Those of `collect`: title, name_column, judged, validation, seed.

    Returns
    -------
    Report
        What the report says.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from kinrank.datasets import make_two_camps
    >>> from kinrank.measure import NDCG
    >>> from kinrank.study.comparison import compare
    >>> from kinrank.study.entrants import evaluate_entrant
    >>> camps = make_two_camps(n_queries=90, seed=0)
    >>> train, test = camps[:60], camps[60:]
    >>> both = [evaluate_entrant(name, test, [NDCG @ 10], train=train) for name in ("single", "knn(n_neighbors=10)")]
    >>> with TemporaryDirectory() as folder:
    ...     report = write_report(f"{folder}/report.html", compare(test, both), judged=train)
    >>> report.difference.paired.losses
    0
    """
    report = collect(comparison, subject, **settings)
    write_page(path, report)
    return report


def write_page(path: str | os.PathLike[str], report: Report) -> int:
    """Write the page of report, whole or not at all; answers how many bytes it has."""
    # A name may hold what UTF-8 cannot say, half of a pair of surrogates.
    page = render(report).encode("utf-8", "replace")
    with atomic_writer(path) as stream:
        stream.write(page)
    return len(page)
