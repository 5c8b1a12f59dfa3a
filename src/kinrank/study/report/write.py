"""The report as a file."""

from __future__ import annotations

import os
from typing import Any

from kinrank.data.textfile import writing
from kinrank.study.comparison import Comparison
from kinrank.study.report.collect import collect
from kinrank.study.report.findings import Findings
from kinrank.study.report.page import render


def write_report(
    path: str | os.PathLike[str], comparison: Comparison, subject: str | None = None, **settings: Any
) -> Findings:
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
    Findings
        What the report says.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from kinrank.datasets import make_two_camps
    >>> from kinrank.measure import NDCG
    >>> from kinrank.study.comparison import compare
    >>> from kinrank.study.entrants import enter
    >>> camps = make_two_camps(n_queries=90, seed=0)
    >>> train, test = camps[:60], camps[60:]
    >>> both = [enter(name, test, [NDCG @ 10], train=train) for name in ("single", "knn(n_neighbors=10)")]
    >>> with TemporaryDirectory() as folder:
    ...     findings = write_report(f"{folder}/report.html", compare(test, both), judged=train)
    >>> findings.difference.paired.losses
    0
    """
    findings = collect(comparison, subject, **settings)
    write_page(path, findings)
    return findings


def write_page(path: str | os.PathLike[str], findings: Findings) -> int:
    """Write the page of findings, whole or not at all; answers how many bytes it has."""
    # A name may hold what UTF-8 cannot say, half of a pair of surrogates.
    page = render(findings).encode("utf-8", "replace")
    with writing(path) as stream:
        stream.write(page)
    return len(page)
