"""aTVT against the same boosted trees without it: DCG@5 on MQ2007, MQ2008, OHSUMED and MSRD.

The paper (Zha et al. 2006) reports about +2% (English) and +1% (Chinese) over its own boosting. Here both sides are
LightGBM regression on the grades with the same settings. The number of trees is chosen on the validation queries by
DCG@5 for the plain trees, as a baseline deserves, and aTVT takes it over. Its penalties are chosen there as well,
among those that let queries move; how often the plain trees beat the best of them is said too. The gain is then
measured on test queries: Wilcoxon's signed-rank test, five folds together for LETOR, MSRD by its own split by movie.
LambdaMART with the same trees stands beside: it learns from pairs within a query, where no level β is ever seen.

Queries are also cut into thirds by how far their line leaves (1, 0), |α - 1| + |β|, where the line of a test query is
fitted to its own grades and the plain trees' scores, under the chosen penalties: so the cut does not depend on
who gains.
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """Figures of each collection."""
    return reproduce("atvt")
