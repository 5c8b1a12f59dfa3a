"""Which ingredients of KinRanker help: MSRD's training and validation queries, three folds by movie, NDCG@10.

Each variant is the default KinRanker with one ingredient removed or added. The test queries are not read.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

from concurrent.futures import ProcessPoolExecutor

import numpy as np

from benchmarks.common import log_progress, msrd
from benchmarks.knn_msrd import per_query, row
from kinrank import KinRanker, QuerySet, fold_queries
from kinrank.describe import Describer
from kinrank.describe.within_query import relative_features

FOLDS = 3
SETTINGS = {"reference": "bm25_all", "group_column": "movie"}


class Bare(KinRanker):
    """The features alone."""

    @staticmethod
    def _table(queries, local):  # noqa: ARG004
        return queries.X


class Standing(KinRanker):
    """The features and their standing among the candidates."""

    @staticmethod
    def _table(queries, local):  # noqa: ARG004
        return np.hstack([queries.X, relative_features(queries.X, queries.offsets)])


class Local(KinRanker):
    """The features, the local score and its standing."""

    @staticmethod
    def _table(queries, local):
        score = local.astype(np.float32)[:, None]
        return np.hstack([queries.X, score, relative_features(score, queries.offsets)])


class Described(KinRanker):
    """All ingredients, and the description of the query."""

    def _fit(self, queries):
        self._describer = Describer("summaries+text", reference="bm25_all", n_components=46).fit(queries)
        super()._fit(queries)

    def _table(self, queries, local):
        points = np.repeat(self._describer.transform(queries), queries.sizes, axis=0)
        return np.hstack([super()._table(queries, local), points]).astype(np.float32)


class DescribedFeatures(Described):
    """The features and the description of the query: the information of the local score, without a local model."""

    def _table(self, queries, local):  # noqa: ARG002
        points = np.repeat(self._describer.transform(queries), queries.sizes, axis=0)
        return np.hstack([queries.X, points]).astype(np.float32)


def run() -> dict[str, object]:
    """Compare every variant, with and without the blend, with trees on the features alone."""
    collected: dict[str, list[np.ndarray]] = {}
    jobs = [(fold, name) for fold in range(FOLDS) for name in variants()]
    with ProcessPoolExecutor(2) as pool:
        for (fold, name), values in zip(jobs, pool.map(measured, jobs), strict=True):
            for label, each in values.items():
                collected.setdefault(label, []).append(each)
            log_progress(f"fold {fold} {name:30} {values[name].mean():.4f}")
    quality = {name: np.concatenate(values) for name, values in collected.items()}
    return {name: row(values, quality["features"]) for name, values in quality.items()}


def measured(job: tuple[int, str]) -> dict[str, np.ndarray]:
    """Measure NDCG@10 of a variant on a fold: its trees alone, and the blend."""
    fold, name = job
    parts = msrd()
    judged = QuerySet.concat([parts["train"], parts["vali"]])
    train, test = list(fold_queries(judged, FOLDS, group="movie", seed=7))[fold]
    ranker = variants()[name].fit(train)
    values = {f"{name}, blended": per_query(ranker, test)}
    alone = {name: "trees"} | ({"the local model": "local", "the global model": "global"} if name == "all" else {})
    for label, part in alone.items():
        ranker.shares_ = {"trees": 0.0, "local": 0.0, "global": 0.0, part: 1.0}
        values[label] = per_query(ranker, test)
    return values


def variants() -> dict[str, KinRanker]:
    """Return the unfitted rankers."""
    return {
        "features": Bare(**SETTINGS),
        "features and standing": Standing(**SETTINGS),
        "features and local score": Local(**SETTINGS),
        "all": KinRanker(**SETTINGS),
        "features and the description": DescribedFeatures(**SETTINGS),
        "all, and the description": Described(**SETTINGS),
        "all, described without text": KinRanker(describe="summaries", **SETTINGS),
        "all, two members": KinRanker(n_members=2, **SETTINGS),
    }
