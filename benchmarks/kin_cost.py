"""KinRanker costs at most 1.5 times LightGBM's prediction to rank a query and at most 6 times one LightGBM to train.

Ranking: one query of 100 candidates and 46 features, KinRanker against a LightGBM of as many trees as its members have
together, of the same shape, on the raw features. Training: MSRD's training queries, KinRanker with its default
settings against one LightGBM of the same shape with as many trees as one member grows. Turns, medians, one thread.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

from benchmarks.common import interleaved, medians, msrd
from kinrank import KinRanker
from kinrank.datasets import make_intents
from kinrank.learn.lambdamart import LambdaMART

SHAPE = {"n_leaves": 15, "learning_rate": 0.05, "min_rows_in_leaf": 50, "n_threads": 1}
TREES = 300


def run() -> dict[str, object]:
    """The two ratios."""
    return {"rank a query": ranking(), "train": training()}


def ranking(repeats: int = 200) -> dict[str, float]:
    """Milliseconds for one query, and the ratio."""
    world = make_intents(2_000, 200, n_docs=100, n_features=46, seed=0)
    train, test = world[:2_000], world[2_000:]
    kin = KinRanker(400, trees=LambdaMART(n_trees=TREES, **SHAPE)).fit(train)
    total = sum(model.n_trees_ for model in kin.members_)
    lightgbm = LambdaMART(n_trees=total, **SHAPE).fit(train)
    queries = iter([query for query in test for _ in range(2)] * (repeats // len(test) + 2))
    seconds = medians(
        interleaved(
            {"kin": lambda: kin.predict(next(queries)), "lightgbm": lambda: lightgbm.predict(next(queries).X)},
            repeats,
            warm=5,
        )
    )
    return {
        "trees": total,
        "KinRanker ms": round(seconds["kin"] * 1e3, 3),
        "LightGBM ms": round(seconds["lightgbm"] * 1e3, 3),
        "ratio": round(seconds["kin"] / seconds["lightgbm"], 2),
    }


def training(repeats: int = 3) -> dict[str, float]:
    """Seconds to train, and the ratio."""
    train = msrd()["train"]
    settings = {"reference": "bm25_all", "group_column": "movie"}
    seconds = medians(
        interleaved(
            {
                "kin": lambda: KinRanker(trees=LambdaMART(n_trees=TREES, **SHAPE), **settings).fit(train),
                "lightgbm": lambda: LambdaMART(n_trees=TREES, **SHAPE).fit(train),
            },
            repeats,
            warm=0,
        )
    )
    return {
        "KinRanker s": round(seconds["kin"], 1),
        "LightGBM s": round(seconds["lightgbm"], 1),
        "ratio": round(seconds["kin"] / seconds["lightgbm"], 2),
    }
