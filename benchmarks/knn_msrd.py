"""KNN Online gains on real movie search: MSRD, the fixed split by movie, NDCG@10, beside Single, LightGBM and QC.

k, the kernel over neighbors, the prior and the number of components are chosen on the validation queries from the
grid below, LightGBM's trees likewise; the test queries choose nothing. The description with all its parts is compared
with each part alone.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from benchmarks.common import msrd, say
from kinrank import KnnRanker, QueryClassRanker, QuerySet, SingleRanker
from kinrank.describe import Describer
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import NDCG, compare_paired, holm
from kinrank.rankers import Ranker

REFERENCE = "bm25_all"
DESCRIPTION = "summaries+text"
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
MEASURE = NDCG @ 10


def run() -> dict[str, object]:
    """The choice, every method on test against Single, and what each part of the description pays."""
    parts = msrd()
    train, vali, test = parts["train"], parts["vali"], parts["test"]
    chosen, trials = choose(train, vali)
    settings = chosen["settings"]
    trees = max(
        (SingleRanker(LambdaMART(**each)) for each in TREES), key=lambda r: per_query(r.fit(train), vali).mean()
    )
    say(f"chosen on validation: {chosen}")
    rankers: dict[str, Ranker] = {
        "Single RankRLS": SingleRanker("rankrls"),
        "Single RankSVM": SingleRanker("ranksvm"),
        "LightGBM": trees,
        "QC, 3 types found": QueryClassRanker(n_types=3, describe=DESCRIPTION, reference=REFERENCE),
        "KNN Online, the paper's mean, k=400": KnnRanker(400, describe="mean", reference=REFERENCE),
        "KNN Online": knn(settings),
        "KNN Offline-1": knn(settings, mode="offline-1"),
        "KNN Offline-2": knn(settings, mode="offline-2"),
    } | {f"KNN Online by {blocks}": knn(settings, blocks) for blocks in ("mean", "summaries", "text")}
    quality = {}
    for name, ranker in rankers.items():
        quality[name] = per_query(ranker.fit(train), test)
        say(f"{name:38} {quality[name].mean():.4f}")
    return {
        "chosen on validation": chosen,
        "settings tried": trials,
        "LightGBM chosen on validation": repr(trees.learner),
        "test": table(quality),
        "KNN Online against LightGBM": row(quality["KNN Online"], quality["LightGBM"]),
    }


def choose(train: QuerySet, vali: QuerySet) -> tuple[dict[str, object], int]:
    """The settings of the grid that are best on validation queries."""
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


def knn(settings: dict[str, object], blocks: str = DESCRIPTION, mode: str = "online") -> KnnRanker:
    """A KNN ranker with chosen settings."""
    own = {name: value for name, value in settings.items() if name != "n_components"}
    describer = Describer(blocks, reference=REFERENCE, n_components=settings.get("n_components"))
    return KnnRanker(mode=mode, describe=describer, **own)


def per_query(ranker: Ranker, queries: QuerySet) -> np.ndarray:
    """NDCG@10 of each query."""
    return MEASURE.per_query(ranker.predict(queries), queries.grades, queries.offsets)


def row(values: np.ndarray, baseline: np.ndarray) -> dict[str, float]:
    """Mean, gain over a baseline, its 95% interval and the p of a paired t-test."""
    paired = compare_paired(values, baseline)
    low, high = paired.interval
    return {
        "NDCG@10": round(float(values.mean()), 4),
        "gain": round(paired.mean_difference, 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "p": float(f"{paired.p:.2g}"),
    }


def table(quality: dict[str, np.ndarray], baseline: str = "Single RankRLS") -> dict[str, dict[str, float]]:
    """Every method against the baseline, p corrected by Holm beside the plain one."""
    rows = {name: row(values, quality[baseline]) for name, values in quality.items()}
    others = [name for name in rows if name != baseline]
    for name, corrected in zip(others, holm([rows[name]["p"] for name in others]), strict=True):
        rows[name]["p Holm"] = float(f"{corrected:.2g}")
    return rows
