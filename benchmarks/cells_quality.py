"""Cells lose at most 0.001 NDCG@10 compared with exact KNN Online, with a tenth as many cells as judged queries.

The data are MSRD (11,341 training queries, with the settings that `knn_msrd` chose on validation) and generated intents
(10,000 queries, 46 features). Every number of cells is fitted on five orders of the training queries, since the initial
centers of k-means depend on the order. k, kernel and prior are those of exact KNN; nothing is chosen on the test
queries. Finally, the number of cells and k are chosen on validation queries (`choose_neighbors`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import log_progress, msrd
from kinrank import CellRanker, KnnRanker, QuerySet, SingleRanker, choose_neighbors
from kinrank.datasets import make_intents
from kinrank.kin import Describer
from kinrank.measure import NDCG, compare_paired
from kinrank.rankers import Ranker
from reproduction.knn import uniform_knn

SHARES = (200, 100, 50, 20, 10)  # m / C
ORDERS = 5
NEIGHBORS = (100, 200, 400, 800)
MEASURE = NDCG @ 10


def run() -> dict[str, object]:
    """Measure both collections."""
    movies = msrd()
    describer = Describer("summaries+text", reference="bm25_all", n_components=46)
    intents = make_intents(10_000, 3_000, n_features=46, n_docs=40, spread=0.5, seed=1)
    return {
        "MSRD": compare(
            KnnRanker(400, describe=describer, neighbor_weights="gaussian", prior="global", prior_strength=0.1),
            movies["train"],
            movies["vali"],
            movies["test"],
        ),
        "generated intents": compare(
            uniform_knn(400, reference="reference"),
            intents[:10_000],
            intents[10_000:11_000],
            intents[11_000:],
        ),
    }


def compare(ranker: KnnRanker, train: QuerySet, vali: QuerySet, test: QuerySet) -> dict[str, Any]:
    """Measure exact KNN, Single, and every number of cells."""
    exact = per_query(ranker.fit(train), test)
    single = per_query(SingleRanker("rankrls").fit(train), test)
    figures: dict[str, Any] = {
        "judged queries": len(train),
        "exact KNN": round(float(exact.mean()), 4),
        "Single": round(float(single.mean()), 4),
        "cells": {},
    }
    orders = [np.random.default_rng(seed).permutation(len(train)) for seed in range(ORDERS)]
    for share in SHARES:
        n_cells = len(train) // share
        found = [per_query(with_class(ranker, CellRanker, n_cells=n_cells).fit(train[order]), test) for order in orders]
        mean = np.mean(found, axis=0)
        paired = compare_paired(mean, exact, groups=test.query_columns.get("movie"))
        figures["cells"][n_cells] = {
            "NDCG@10": round(float(mean.mean()), 4),
            "minus exact": round(paired.mean_difference, 4),
            "95%": [round(limit, 4) for limit in paired.interval],
            "each order": [round(float((each - exact).mean()), 4) for each in found],
        }
        log_progress(f"{n_cells} cells: {figures['cells'][n_cells]}")
    best, chosen = -1.0, CellRanker()
    for n_cells in sorted(len(train) // share for share in SHARES):
        fitted = with_class(ranker, CellRanker, neighbor_weights="uniform", n_cells=n_cells).fit(train)
        choice = choose_neighbors(fitted, vali, NEIGHBORS)
        if max(choice.quality.values()) > best:
            best, chosen = max(choice.quality.values()), choice.apply(fitted)
    quality = per_query(chosen, test)
    exact = per_query(with_class(chosen, KnnRanker).fit(train), test)
    figures["chosen on validation"] = {
        "cells": chosen.n_cells,
        "k": chosen.n_neighbors,
        "NDCG@10": round(float(quality.mean()), 4),
        "exact KNN at that k": round(float(exact.mean()), 4),
    }
    return figures


def with_class(ranker: Ranker, cls: type[Ranker], **settings: object) -> Ranker:
    """Return a ranker of another class with the settings that both have, some of them changed."""
    known = cls().get_params(deep=False)
    shared = {name: value for name, value in ranker.get_params(deep=False).items() if name in known}
    return cls(**{**shared, **settings})


def per_query(ranker: Ranker, queries: QuerySet) -> np.ndarray:
    """Return NDCG@10 of each query."""
    return MEASURE.per_query(ranker.predict(queries), queries.grades, queries.offsets)
