"""RankSVM, RankRLS and LambdaMART on LETOR, five folds, beside the published RankSVM row.

MQ2007, MQ2008 and OHSUMED with LETOR's own evaluation conventions, every figure the mean of five folds. λ = 0.01 as
in the KNN paper; nothing is tuned. Features are taken as they are (the collections are normalized per query).
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """Figures of each collection: learner to measure to value, and how far RankSVM is from the published row."""
    return reproduce("letor-baselines")
