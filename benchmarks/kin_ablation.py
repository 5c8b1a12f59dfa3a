"""Which ingredients of KinRanker pay: MSRD's training and validation queries, three folds by movie, NDCG@10.

Every row is the default KinRanker with something left out or put in. The test queries are not read.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from benchmarks.common import msrd, say
from benchmarks.knn_msrd import per_query, row
from kinrank import KinRanker, QuerySet, fold_queries
from kinrank.describe import Describer
from kinrank.describe.standing import standings

SETTINGS = {"reference": "bm25_all", "group_column": "movie"}


class Bare(KinRanker):
    """Trees that see the features alone."""

    @staticmethod
    def _table(queries, local):  # noqa: ARG004
        return queries.X


class Standing(KinRanker):
    """Features and their standing."""

    @staticmethod
    def _table(queries, local):  # noqa: ARG004
        return np.hstack([queries.X, standings(queries.X, queries.offsets)])


class Local(KinRanker):
    """Features, the local score and its standing."""

    @staticmethod
    def _table(queries, local):
        score = local.astype(np.float32)[:, None]
        return np.hstack([queries.X, score, standings(score, queries.offsets)])


class Described(KinRanker):
    """Everything, and twenty numbers that describe the query."""

    def _fit(self, queries):
        self._describer = Describer("summaries+text", reference="bm25_all", n_components=20).fit(queries)
        super()._fit(queries)

    def _table(self, queries, local):
        points = self._describer.transform(queries)
        return np.hstack([KinRanker._table(queries, local), np.repeat(points, queries.sizes, axis=0)])


def run() -> dict[str, object]:
    """Every variant against trees on the features alone, with and without the blend."""
    parts = msrd()
    judged = QuerySet.concat([parts["train"], parts["vali"]])
    found: dict[str, list[np.ndarray]] = {}
    for train, test in fold_queries(judged, 3, group="movie", seed=7):
        for name, ranker in variants().items():
            ranker.fit(train)
            blended = per_query(ranker, test)
            found.setdefault(f"{name}, blended", []).append(blended)
            ranker.shares_ = {"trees": 1.0, "local": 0.0, "global": 0.0}
            found.setdefault(name, []).append(per_query(ranker, test))
            if name == "all":
                for part in ("local", "global"):
                    ranker.shares_ = {"trees": 0.0, "local": 0.0, "global": 0.0, part: 1.0}
                    found.setdefault(f"the {part} model alone", []).append(per_query(ranker, test))
            say(f"{name:30} {blended.mean():.4f}")
    quality = {name: np.concatenate(values) for name, values in found.items()}
    return {name: row(values, quality["features"]) for name, values in quality.items()}


def variants() -> dict[str, KinRanker]:
    """Unfitted."""
    return {
        "features": Bare(**SETTINGS),
        "features and standing": Standing(**SETTINGS),
        "features and local score": Local(**SETTINGS),
        "all": KinRanker(**SETTINGS),
        "all, and the description": Described(**SETTINGS),
        "all, two members": KinRanker(n_members=2, **SETTINGS),
    }
