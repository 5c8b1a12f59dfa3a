"""The models of XGBoost that tests read, in the folder ``xgboost``, with XGBoost's own scores.

``python -m tests.learn.xgboost_models`` writes them again; it needs ``pip install 'xgboost>=2.1'``, which no test does.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kinrank import QuerySet
from kinrank.datasets import make_intents

FOLDER = Path(__file__).parent / "xgboost"
NAMES = ("title", "body", "year of release", "votes")


def judged_queries() -> QuerySet:
    """Return judged queries with missing values, and values that thresholds hit exactly."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 4)).astype(np.float32)
    X[:, 3] = np.round(X[:, 3])
    y = np.digitize(X @ [1.0, 0.5, -1.0, 0.7], [0.0, 1.5])
    X[rng.random(X.shape) < 0.1] = np.nan
    return QuerySet.from_arrays(X, y, group=[20] * 60, feature_names=NAMES)


def queries_of_three_intents() -> QuerySet:
    """Return queries, the first 60 of which the model ``weak`` is trained on."""
    return make_intents(200, 100, n_docs=20, n_features=6, spread=1.0, seed=1)


def write() -> None:
    """Train the models and write them."""
    import xgboost

    queries, earlier = judged_queries(), queries_of_three_intents()[:60]
    plain = {"objective": "rank:ndcg", "max_depth": 4, "nthread": 1}
    settings = {
        "named": plain,
        "unnamed": plain,
        "pruned": {**plain, "tree_method": "exact", "gamma": 2.0, "max_depth": 5},
        "classes": {"objective": "multi:softprob", "num_class": 3, "max_depth": 2, "nthread": 1},
        "weak": {**plain, "max_depth": 3},
    }
    scores = {}
    for name, chosen in settings.items():
        data = earlier if name == "weak" else queries
        grouped = {} if name == "classes" else {"group": data.sizes}
        names = [*NAMES] if name == "named" else None
        rows = xgboost.DMatrix(data.X, data.grades, feature_names=names, **grouped)
        stopping = {"evals": [(rows, "train")], "early_stopping_rounds": 2, "verbose_eval": False}
        model = xgboost.train(chosen, rows, 10 if name == "weak" else 6, **(stopping if name == "named" else {}))
        model.save_model(FOLDER / f"{name}.json")
        scores[name] = model.predict(rows, output_margin=True)
    np.savez_compressed(FOLDER / "scores.npz", **scores)


if __name__ == "__main__":
    write()
