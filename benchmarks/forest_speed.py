"""Our evaluation of trees compared with LightGBM's own prediction, for one query and for many rows.

The trees are those of a `KinRanker` by default, four members of 300 trees with 15 leaves, here trained as one booster
of 1,200 trees on generated queries with 46 features. Both read the same float32 rows and return the same scores.
Interleaved runs, medians, one thread.
"""

from __future__ import annotations

import lightgbm
import numpy as np

from benchmarks.common import interleaved, medians
from kinrank.datasets import make_intents
from kinrank.learn._forest import Forest
from kinrank.learn.lambdamart import LambdaMART

OPTIONS = {"repeats": ("200", "2"), "trees": ("1200", "20")}
SIZES = {"one query of 24 rows": 24, "100,000 rows": 100_000}


def run(repeats: str, trees: str) -> dict[str, object]:
    """Return the milliseconds of both, and how many times as long LightGBM takes."""
    queries = make_intents(1_000, 0, n_docs=100, n_features=46, seed=0)
    learner = LambdaMART(int(trees), n_leaves=15, learning_rate=0.05, min_rows_in_leaf=50, n_threads=1)
    text = learner.fit(queries[:200]).text
    forest, booster = Forest.from_text(text), lightgbm.Booster(model_str=text)
    return {name: compare(forest, booster, queries.X[:size], int(repeats)) for name, size in SIZES.items()}


def compare(forest: Forest, booster: lightgbm.Booster, rows: np.ndarray, repeats: int) -> dict[str, float]:
    """Return the milliseconds of both for some rows, and the ratio."""
    calls = {
        "kinrank": lambda: forest.predict(rows),
        "LightGBM": lambda: booster.predict(rows, raw_score=True, num_threads=1),
    }
    np.testing.assert_allclose(calls["kinrank"](), calls["LightGBM"](), atol=1e-9)
    seconds = medians(interleaved(calls, repeats if len(rows) < 1_000 else -(-repeats // 40)))
    figures = {f"{name} ms": round(1000 * each, 3) for name, each in seconds.items()}
    return {**figures, "ratio": round(seconds["LightGBM"] / seconds["kinrank"], 2)}
