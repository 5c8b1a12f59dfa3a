"""KNN Online gains on real movie search: MSRD, fixed split by movie, NDCG@10, with Single, LightGBM and QC.

k, the kernel over neighbors, the prior and the number of components are chosen on the validation queries from the grid
below, and so are LightGBM's trees. Nothing is chosen on test queries. The full description is compared with each of its
parts.
"""

from __future__ import annotations

from itertools import product

from benchmarks.common import log_progress, movie_of, msrd
from kinrank import QueryClassRanker, QuerySet, SingleRanker
from kinrank.learn.lambdamart import LambdaMART
from kinrank.rankers import Ranker
from reproduction.experiments.knn_msrd import DESCRIPTION, REFERENCE, knn
from reproduction.knn import uniform_knn
from reproduction.rows import per_query, row, table

COMPONENTS = (None, 46)
KERNELS = ("uniform", "gaussian")
NEIGHBORS = (100, 200, 400, 800)
STRENGTHS = (None, 0.02, 0.1)
TREES = (
    {"n_trees": 100, "learning_rate": 0.1},
    {"n_trees": 200, "learning_rate": 0.05},
    {"n_trees": 200, "learning_rate": 0.05, "n_leaves": 15, "min_rows_in_leaf": 50},
    {"n_trees": 300, "learning_rate": 0.03},
)


def best_trees(train: QuerySet, vali: QuerySet) -> SingleRanker:
    """Return LightGBM with the best settings on the validation queries."""
    return max((SingleRanker(LambdaMART(**each)) for each in TREES), key=lambda r: per_query(r.fit(train), vali).mean())


def run() -> dict[str, object]:
    """Return the chosen settings, every method compared with Single on test, and each part of the description."""
    parts = msrd()
    train, vali, test = parts["train"], parts["vali"], parts["test"]
    chosen, trials = choose(train, vali)
    settings = chosen["settings"]
    trees = best_trees(train, vali)
    log_progress(f"chosen on validation: {chosen}")
    rankers: dict[str, Ranker] = {
        "Single RankRLS": SingleRanker("rankrls"),
        "Single RankSVM": SingleRanker("ranksvm"),
        "LightGBM": trees,
        "QC, 3 types found": QueryClassRanker(n_types=3, describe=DESCRIPTION, reference=REFERENCE),
        "KNN Online, the paper's mean, k=400": uniform_knn(400, reference=REFERENCE),
        "KNN Online": knn(settings),
        "KNN Offline-1": knn(settings, mode="offline-1"),
        "KNN Offline-2": knn(settings, mode="offline-2"),
    } | {f"KNN Online by {blocks}": knn(settings, blocks) for blocks in ("mean", "summaries", "text")}
    quality = {}
    for name, ranker in rankers.items():
        quality[name] = per_query(ranker.fit(train), test)
        log_progress(f"{name:38} {quality[name].mean():.4f}")
    return {
        "chosen on validation": chosen,
        "settings tried": trials,
        "LightGBM chosen on validation": repr(trees.learner),
        "test": table(quality, groups=movie_of(test.qid)),
        "KNN Online against LightGBM": row(quality["KNN Online"], quality["LightGBM"], movie_of(test.qid)),
    }


def choose(train: QuerySet, vali: QuerySet) -> tuple[dict[str, object], int]:
    """Return the best settings of the grid on the validation queries, and the number tried."""
    best: dict[str, object] = {"quality": 0.0}
    trials = 0
    for components in COMPONENTS:
        ranker = knn({"n_components": components}).fit(train)
        for kernel, k, strength in product(KERNELS, NEIGHBORS, STRENGTHS):
            prior = {"prior": "none"} if strength is None else {"prior": "global", "prior_strength": strength}
            settings = {"n_neighbors": k, "neighbor_weights": kernel, **prior}
            quality = float(per_query(ranker.set_params(**settings), vali).mean())
            trials += 1
            if quality > best["quality"]:
                best = {"quality": quality, "settings": {"n_components": components, **settings}}
    return best, trials
