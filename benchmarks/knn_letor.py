"""KNN on LETOR, honestly: MQ2007, MQ2008 and OHSUMED, five folds, k and prior chosen on validation.

Features there are normalised per query, which hides how queries differ; plain KNN is not expected to gain. NDCG@10 with
standard conventions, paired t-test over the queries of all five test folds. k = m is among the choices.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common import letor_folds, say
from benchmarks.knn_msrd import per_query, row
from kinrank import KnnRanker, QueryClassRanker, SingleRanker
from kinrank.rankers.choose import choose_neighbors

# BM25 of the whole document; of the title in OHSUMED, where column 12 is its logarithm and ranks alike.
REFERENCE = {"MQ2007": 24, "MQ2008": 24, "OHSUMED": 10}
STRENGTHS = (None, 0.1, 1.0)


def run() -> dict[str, object]:
    """Each method against Single on each collection."""
    return {collection: collection_figures(collection) for collection in REFERENCE}


def collection_figures(collection: str) -> dict[str, object]:
    """Five folds together."""
    quality: dict[str, list[np.ndarray]] = {}
    chosen = []
    for train, vali, test in letor_folds(collection):
        common = {"scale": "none", "reference": REFERENCE[collection]}
        counts = [k for k in (25, 50, 100, 200, 400, 800) if k < len(train)] + [len(train)]
        quality.setdefault("Single RankRLS", []).append(
            per_query(SingleRanker("rankrls", scale="none").fit(train), test)
        )
        quality.setdefault("QC, 3 types found", []).append(
            per_query(QueryClassRanker(n_types=3, **common).fit(train), test)
        )
        for describe in ("mean", "summaries"):
            knn = KnnRanker(describe=describe, **common).fit(train)
            choice = choose_neighbors(knn, vali, counts, prior_strengths=STRENGTHS)
            quality.setdefault(f"KNN Online by {describe}", []).append(per_query(choice.apply(knn), test))
            chosen.append(f"{describe} k={choice.n_neighbors} prior={choice.prior_strength}")
            if describe == "mean":
                settings = knn.get_params(deep=False)
                for mode in ("offline-1", "offline-2"):
                    offline = KnnRanker(**(settings | {"mode": mode})).fit(train)
                    quality.setdefault(f"KNN {mode} by mean", []).append(per_query(offline, test))
            fixed = KnnRanker(min(400, len(train)), describe=describe, **common).fit(train)
            quality.setdefault(f"KNN Online by {describe}, k=400", []).append(per_query(fixed, test))
        say(f"{collection}: {chosen[-2:]}")
    whole = {name: np.concatenate(values) for name, values in quality.items()}
    rows = {name: row(values, whole["Single RankRLS"]) for name, values in whole.items()}
    return {"chosen by fold": chosen, **rows}
