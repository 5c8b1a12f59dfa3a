"""One model per true intent gains on mwmbl; neither an intent classifier nor KNN reaches the same gain.

`reproduction.experiments.query_class` describes the setup.
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """Compare every method with Single, over the five test folds."""
    return reproduce("query-class")
