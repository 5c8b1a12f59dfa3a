"""KNN gains nothing on LETOR: MQ2007, MQ2008 and OHSUMED, five folds, k and prior chosen on validation queries.

LETOR's features are normalized per query, which hides the differences between queries.
`reproduction.experiments.knn_letor` describes the setup.
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """Compare each method with Single on each collection."""
    return reproduce("knn-letor")
