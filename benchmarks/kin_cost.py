"""KinRanker costs at most 1.5 times LightGBM's prediction to rank a query and at most 6 times one LightGBM to train.

Ranking one query: KinRanker against a LightGBM of as many trees as its members have together, of the same shape, on the
raw features; on generated queries of 100 candidates and 46 features, where few trees are kept, and on MSRD, where all
are. Training: MSRD's training queries, KinRanker with its default settings against one LightGBM of the same shape with
as many trees as one member grows. Turns, medians, one thread.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

from benchmarks.common import interleaved, medians, msrd
from kinrank import KinRanker, QuerySet
from kinrank.datasets import make_intents
from kinrank.learn.lambdamart import LambdaMART

SHAPE = {"n_leaves": 15, "learning_rate": 0.05, "min_rows_in_leaf": 50, "n_threads": 1}
TREES = 300
SETTINGS = {"reference": "bm25_all", "group_column": "movie"}


def trees() -> LambdaMART:
    """As KinRanker grows them by default, on one thread."""
    return LambdaMART(n_trees=TREES, params={"feature_fraction": 0.5}, **SHAPE)


def run() -> dict[str, object]:
    """The ratios."""
    movies = msrd()
    world = make_intents(2_000, 200, n_docs=100, n_features=46, seed=0)
    return {
        "rank a query of 100 candidates, 46 features": ranking(world[:2_000], world[2_000:], {}),
        "rank a query of MSRD": ranking(movies["train"], movies["test"][:200], SETTINGS),
        "train": training(movies["train"]),
    }


def ranking(train: QuerySet, test: QuerySet, settings: dict[str, object], repeats: int = 200) -> dict[str, float]:
    """Milliseconds for one query, and the ratio."""
    kin = KinRanker(400, trees=trees(), **settings).fit(train)
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


def training(train: QuerySet, repeats: int = 3) -> dict[str, float]:
    """Seconds to train, and the ratio."""
    seconds = medians(
        interleaved(
            {
                "kin": lambda: KinRanker(trees=trees(), **SETTINGS).fit(train),
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
