"""New judgments improve KinRanker for the same query without a fit, and cost other queries nothing.

MSRD, fitted on the training queries. Then the judgments of every second test query are added, and NDCG@10 is measured
before and after, with paired t-tests by movie: on these queries when they are asked again, on the other test queries
about the same movies (near-duplicates), and on the validation queries, whose movies are in neither (all others).
"""

from __future__ import annotations

import numpy as np

from benchmarks.common import log_progress, msrd
from kinrank import KinRanker
from kinrank.measure import NDCG, compare_paired

MEASURE = NDCG(ties="average") @ 10


def run() -> dict[str, object]:
    """Return NDCG@10 before and after on the three kinds of queries, for KinRanker and for its local part alone."""
    parts = msrd()
    log_progress("fit KinRanker")
    before = KinRanker(group_column="movie", settings={"reference": "bm25_all"}).fit(parts["train"])
    test, others = parts["test"], parts["vali"]
    movies = test.query_columns["movie"]
    # The first, third, ... query of each movie is judged; the others are asked without having been judged.
    order = np.zeros(len(test), dtype=np.int64)
    for movie in np.unique(movies):
        of_movie = np.flatnonzero(movies == movie)
        order[of_movie] = np.arange(len(of_movie))
    judged, similar = test[order % 2 == 0], test[order % 2 == 1]
    after = before.copy().add(judged)
    kinds = {"the same query again": judged, "another query about the movie": similar, "all others": others}
    figures: dict[str, object] = {"added": len(judged), "fitted on": len(parts["train"])}
    for kind, queries in kinds.items():
        for name, old, new in (("KinRanker", before, after), ("its local part", before.local_, after.local_)):
            first, second = (
                MEASURE.per_query(ranker.predict(queries), queries.grades, queries.offsets) for ranker in (old, new)
            )
            compared = compare_paired(second, first, groups=queries.query_columns["movie"])
            figures[f"{kind}: {name}"] = {
                "queries": len(queries),
                "before": round(float(first.mean()), 4),
                "after": round(float(second.mean()), 4),
                "p": float(f"{compared.p:.2g}"),
            }
    return figures
