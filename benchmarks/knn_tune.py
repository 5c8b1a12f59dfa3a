"""Choosing k among 20 values costs at most twice as much as trying one value.

MSRD's validation queries, RankRLS. The neighbors are searched once and their statistics are summed once; each k reads a
prefix of the sum and solves. Compared with predicting and measuring with the largest k through the public interface.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common import interleaved, medians, msrd
from kinrank import KnnRanker
from kinrank.rankers._local.choose import choose_neighbors

GRID = np.unique(np.geomspace(20, 1000, 20).astype(int))


def run() -> dict[str, object]:
    """Return the seconds of each, the ratio, and the curve over k."""
    parts = msrd()
    ranker = KnnRanker.as_published(int(GRID[-1]), describe="summaries", reference="bm25_all").fit(parts["train"])
    calls = {
        "one value": lambda: ranker.score(parts["vali"]),
        "20 values": lambda: choose_neighbors(ranker, parts["vali"], GRID.tolist()),
    }
    seconds = medians(interleaved(calls, repeats=5))
    choice = choose_neighbors(ranker, parts["vali"], GRID.tolist())
    return {
        "values": len(GRID),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "times one value": round(seconds["20 values"] / seconds["one value"], 2),
        "best k": choice.n_neighbors,
        "NDCG@10 by k": {k: round(quality, 4) for (k, _), quality in choice.quality.items()},
        "Single": round(choice.single, 4),
    }
