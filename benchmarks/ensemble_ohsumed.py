"""SER and SSER on the 25 rankers of OHSUMED, five folds: MAP and P@1 to P@10, with RankSVM and the best ranker.

The paper (Hoi and Jin, AAAI 2008) claims that SER is slightly below RankSVM, and that SSER is above both, most of all
at ranks 1 and 2, with γ near 0.5. `reproduction.experiments.ensemble` describes the setup.
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """Return the table, the curves over γ for each normalization of scores, and paired tests."""
    return reproduce("ensemble")
