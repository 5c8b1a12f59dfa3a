"""One model per true intent gains on mwmbl; neither a classifier of intents nor KNN finds all of it.

849 web queries with intent labels, five folds, NDCG@10. Local weights are shrunk to the global model with strength 0.1
throughout (nothing is tuned). With true types the label of the test query is believed, which is an oracle: in
production it is not known. LightGBM, not linear, is far ahead on these features.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common import judged_text
from benchmarks.knn_msrd import per_query, table
from kinrank import KnnRanker, QueryClassRanker, SingleRanker
from kinrank.learn.lambdamart import LambdaMART
from kinrank.rankers import Ranker

SHRUNK = {"prior": "global", "prior_strength": 0.1, "describe": "summaries+text", "missing": "zero"}


def run() -> dict[str, object]:
    """Every method over the five test folds together, against Single."""
    queries, fold = judged_text("mwmbl")
    quality: dict[str, list[np.ndarray]] = {}
    for held_out in np.unique(fold):
        train, test = queries[fold != held_out], queries[fold == held_out]
        for name, ranker in rankers().items():
            quality.setdefault(name, []).append(per_query(ranker.fit(train), test))
    return table({name: np.concatenate(values) for name, values in quality.items()})


def rankers() -> dict[str, Ranker]:
    """Unfitted."""
    return {
        "Single RankRLS": SingleRanker("rankrls", missing="zero"),
        "QC, true intents (oracle)": QueryClassRanker("intent", given=True, **SHRUNK),
        "QC, classified intents": QueryClassRanker("intent", **SHRUNK),
        "QC, 3 types found": QueryClassRanker(n_types=3, **SHRUNK),
        "KNN Online, k=100": KnnRanker(100, **SHRUNK),
        "KNN Online, k=400": KnnRanker(400, **SHRUNK),
        "LightGBM": SingleRanker(LambdaMART()),
    }
