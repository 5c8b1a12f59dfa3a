"""RankSVM, RankRLS and LambdaMART on LETOR, five folds, compared with the published RankSVM row.

`reproduction.experiments.letor_baselines` describes the setup. Features are not scaled: the collections are normalized
per query.
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """Return the measures of each learner by collection, and the differences from the published row."""
    return reproduce("letor-baselines")
