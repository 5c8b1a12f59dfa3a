"""KNN on LETOR, honestly: MQ2007, MQ2008 and OHSUMED, five folds, k and prior chosen on validation.

Features there are normalized per query, which hides how queries differ; plain KNN is not expected to gain. NDCG@10 with
standard conventions, paired t-test over the queries of all five test folds. k = m is among the choices.
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """Each method against Single on each collection."""
    return reproduce("knn-letor")
