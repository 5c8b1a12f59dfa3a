"""SER and SSER on the 25 rankers of OHSUMED, five folds: MAP and P@1 to P@10 beside RankSVM and the best ranker.

The paper (Hoi and Jin, AAAI 2008) says that SER is slightly below RankSVM, and that SSER is above both, most of all at
ranks 1 and 2, with γ near 0.5. Here γ is chosen by MAP on the validation queries of each fold; the best single ranker
is chosen by MAP on the training queries. Means are over the five folds, tests over the 106 queries.
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """The table, the curves of γ for each way to normalize scores, and paired tests."""
    return reproduce("ensemble")
