"""Geng et al., Figure 7 on LETOR: KNN, QC and Single on MQ2007, MQ2008 and OHSUMED, five folds.

The paper omits LETOR as too small. k (including k = m) and the prior are chosen on the validation queries. NDCG@10 with
standard conventions, paired t-test over the queries of all five test folds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kinrank.arrays import Float64
from kinrank.papers.query_class import QueryClassRanker
from kinrank.rankers._local.choose import choose_neighbors
from kinrank.rankers.knn import KnnRanker
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, TaskResult, letor_tasks, results_by_fold
from reproduction.knn import uniform_knn
from reproduction.rows import per_query, pool, row

# BM25 of the whole document; in OHSUMED, BM25 of the title (column 12 is its logarithm and gives the same order).
REFERENCE = {"MQ2007": 24, "MQ2008": 24, "OHSUMED": 10}
STRENGTHS = (None, 0.1, 1.0)
NEIGHBORS = (25, 50, 100, 200, 400, 800)


def one_fold(collection: str, fold: int, data: DataFolder) -> TaskResult:
    """Measure NDCG@10 of every method on every test query, with settings chosen on the validation queries."""
    train, vali, test = data.letor_fold(collection, fold)
    common: dict[str, Any] = {"scale": "none", "reference": REFERENCE[collection]}
    counts = [k for k in NEIGHBORS if k < len(train)] + [len(train)]
    values: dict[str, Float64] = {
        "Single RankRLS": per_query(SingleRanker("rankrls", scale="none").fit(train), test),
        "QC, 3 types found": per_query(QueryClassRanker(n_types=3, **common).fit(train), test),
    }
    chosen = []
    for describe in ("mean", "summaries"):
        knn = uniform_knn(describe=describe, n_jobs=1, **common).fit(train)
        choice = choose_neighbors(knn, vali, counts, prior_strengths=STRENGTHS)
        values[f"KNN Online by {describe}"] = per_query(choice.apply(knn), test)
        chosen.append(f"{describe} k={choice.n_neighbors} prior={choice.prior_strength}")
        if describe == "mean":
            settings = knn.get_params(deep=False)
            for mode in ("offline-1", "offline-2"):
                offline = KnnRanker(**(settings | {"mode": mode})).fit(train)
                values[f"KNN {mode} by mean"] = per_query(offline, test)
        fixed = uniform_knn(min(400, len(train)), describe=describe, **common).fit(train)
        values[f"KNN Online by {describe}, k=400"] = per_query(fixed, test)
    return TaskResult({"chosen": chosen}, values)


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Compare each method with Single on each collection."""
    figures: dict[str, Any] = {}
    for collection in REFERENCE:
        folds = results_by_fold(results, collection)
        quality = pool(folds)
        rows = {name: row(values, quality["Single RankRLS"]) for name, values in quality.items()}
        chosen = [choice for fold in folds for choice in fold.figures["chosen"]]
        figures[collection] = {"chosen by fold": chosen, **rows}
    return figures


EXPERIMENT = Experiment(
    "knn-letor",
    "geng",
    letor_tasks(one_fold, {"MQ2007": 0.05, "MQ2008": 0.02, "OHSUMED": 0.01}),
    summary,
)
