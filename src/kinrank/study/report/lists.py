"""Lists of documents before and after, for the queries that changed most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kinrank.study.report.contents import Report
from kinrank.study.report.names import clean

SHOWN = 10
"""Documents in each list."""


def before_and_after(report: Report, query: int, titles: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Return the first documents of a query in the order of the baseline and of the subject."""
    queries = report.comparison.queries
    rows = np.arange(queries.offsets[query], queries.offsets[query + 1])
    before, after = (
        rows[np.argsort(-each.scores[rows], kind="stable")]
        for each in (report.comparison.baseline, report.subject_entrant)
    )
    places = {row: place for place, row in enumerate(before.tolist())}
    ids = queries.doc_id
    assert ids is not None  # `collect` refuses titles without document ids

    def entry(row: int, step: int | None) -> dict[str, Any]:
        document = str(ids[row])
        return {
            "title": clean(titles.get(document, document)),
            "grade": f"{queries.grades[row]:g}",
            "relevant": queries.grades[row] > 0,
            "move": "" if not step else f"{'▲' if step > 0 else '▼'} {abs(step)}",
            "way": "" if not step else "gain" if step > 0 else "loss",
        }

    return {
        "before": [entry(row, None) for row in before[:SHOWN].tolist()],
        "after": [entry(row, places[row] - place) for place, row in enumerate(after[:SHOWN].tolist())],
    }
