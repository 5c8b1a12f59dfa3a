"""Which ingredients of KinRanker help: MSRD's training and validation queries, three folds by movie, NDCG@10.

Each variant is the default KinRanker with one ingredient removed or added. The test queries are not read.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np

from benchmarks.common import log_progress, msrd
from benchmarks.knn_msrd import per_query, row
from kinrank import KinRanker, QuerySet, fold_queries
from kinrank.kin import Describer
from kinrank.kin.blocks import relative_features
from kinrank.rankers.kin._trees import TreeView

FOLDS = 3
NAMES = (
    *("features", "features and standing", "features and local score", "all"),
    *("features and the description", "all, and the description"),
    *("all, described without text", "all, two members"),
)
SETTINGS = {"reference": "bm25_all"}
PARAMETERS = {"group_column": "movie", "memory": False, "local": True}


Table = Callable[[QuerySet, np.ndarray | None], np.ndarray]


everything = partial(TreeView.table, TreeView(), memory=None)
"""What trees see usually: features, the local score, and the standing of both."""


def features(queries, local):  # noqa: ARG001
    """Return the features alone."""
    return queries.X


def features_and_standing(queries, local):  # noqa: ARG001
    """Return the features and their standing among the candidates."""
    return np.hstack([queries.X, relative_features(queries.X, queries.offsets)])


def features_and_local_score(queries, local):
    """Return the features, the local score and its standing."""
    score = local.astype(np.float32)[:, None]
    return np.hstack([queries.X, score, relative_features(score, queries.offsets)])


def with_description(table: Table, train: QuerySet) -> Table:
    """Return a table with the description of the query as further columns."""
    describer = Describer("summaries+text", reference="bm25_all", n_components=46).fit(train)

    def described(queries, local):
        points = np.repeat(describer.transform(queries), queries.sizes, axis=0)
        return np.hstack([table(queries, local), points]).astype(np.float32)

    return described


@contextmanager
def trees_that_see(table: Table) -> Iterator[None]:
    """Let the trees of rankers that are fitted or used within the block see another table."""
    with patch.object(TreeView, "table", lambda _, queries, local, __: table(queries, local)):
        yield


def run() -> dict[str, object]:
    """Compare every variant, with and without the blend, with trees on the features alone."""
    collected: dict[str, list[np.ndarray]] = {}
    jobs = [(fold, name) for fold in range(FOLDS) for name in NAMES]
    with ProcessPoolExecutor(2) as pool:
        for (fold, name), values in zip(jobs, pool.map(measured, jobs), strict=True):
            for label, each in values.items():
                collected.setdefault(label, []).append(each)
            log_progress(f"fold {fold} {name:30} {values[name].mean():.4f}")
    quality = {name: np.concatenate(values) for name, values in collected.items()}
    movies = np.concatenate([test.query_columns["movie"] for _, test in folds()])
    return {name: row(values, quality["features"], movies) for name, values in quality.items()}


def folds() -> list[tuple[QuerySet, QuerySet]]:
    """Return the training and test queries of three folds by movie."""
    parts = msrd()
    judged = QuerySet.concat([parts["train"], parts["vali"]])
    return list(fold_queries(judged, FOLDS, group="movie", seed=7))


def measured(job: tuple[int, str]) -> dict[str, np.ndarray]:
    """Measure NDCG@10 of a variant on a fold: its trees alone, and the blend."""
    fold, name = job
    train, test = folds()[fold]
    table, ranker = variants(train)[name]
    with trees_that_see(table):
        ranker.fit(train)
        values = {f"{name}, blended": per_query(ranker, test)}
        alone = {name: "trees"} | ({"the local model": "local", "the global model": "global"} if name == "all" else {})
        for label, part in alone.items():
            shares = {"trees": 0.0, "local": 0.0, "global": 0.0, part: 1.0}
            ranker.model_ = replace(ranker.model_, shares=shares)
            values[label] = per_query(ranker, test)
    return values


def variants(train: QuerySet) -> dict[str, tuple[Table, KinRanker]]:
    """Return what the trees see and the unfitted ranker, by name."""
    usual = KinRanker(**PARAMETERS, settings=SETTINGS)
    return {
        "features": (features, usual),
        "features and standing": (features_and_standing, usual),
        "features and local score": (features_and_local_score, usual),
        "all": (everything, usual),
        "features and the description": (with_description(features, train), usual),
        "all, and the description": (with_description(everything, train), usual),
        "all, described without text": (everything, KinRanker(describe="summaries", **PARAMETERS, settings=SETTINGS)),
        "all, two members": (everything, KinRanker(**PARAMETERS, settings={**SETTINGS, "n_members": 2})),
    }
