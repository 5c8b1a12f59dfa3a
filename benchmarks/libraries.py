"""LambdaMART of XGBoost and CatBoost next to LightGBM and KinRanker, in folds of any judged queries.

``python -m benchmarks libraries --data judged.parquet --group customer`` compares the four on data of your own; by
default, on the movie search of the demo. All libraries try the same three shapes of trees with early stopping.
`kin_quality` and `confirmation` take the two adapters from here.
"""

from __future__ import annotations

import importlib
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.common import log_progress
from kinrank import KinRanker, QuerySet
from kinrank.data.source import Source
from kinrank.datasets import load_movies
from kinrank.measure.base import query_means
from kinrank.study.peers import LightGBMPeer
from kinrank.study.study import Study

INSTALL = "pip install 'xgboost>=2.1' 'catboost>=1.2.3'"
OPTIONS = {"data": "", "group": "", "folds": "5"}


def run(data: str = "", group: str = "", folds: str = "5") -> dict[str, object]:
    """Measure NDCG@10 of each library and of KinRanker, which is compared with each of them."""
    for name in ("xgboost", "catboost"):
        library(name)  # before the work
    queries = Source(data).read() if data else load_movies()
    column = group or (None if data else "movie")
    study = Study.split(queries, folds=int(folds), group=column)
    entrants = []
    for name, make in {"KinRanker": KinRanker, **LIBRARIES}.items():
        entrants.append(study.pool(study.fit(name, partial(make, group_column=column))))
        log_progress(f"{name}: {entrants[-1].evaluation[study.measures[0]]:.4f}")
    compared = study.compare(entrants)
    return {
        "queries": len(study.queries),
        **{each.name: round(each.evaluation[study.measures[0]], 4) for each in entrants},
        "over KinRanker": {
            each.name: {
                "difference": round(each.paired.mean_difference, 4),
                "95% interval": [round(limit, 4) for limit in each.paired.interval],
                "p, Holm": float(f"{each.p_holm:.2g}"),
            }
            for each in compared.differences
        },
    }


def library(name: str) -> ModuleType:
    """Import a library that is not among the dependencies for development."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise SystemExit(f"{name} is not installed: {INSTALL}") from None


def _query_weights(queries: QuerySet) -> np.ndarray | None:
    """Return the mean weight of each query's rows, for libraries that weigh whole queries."""
    return None if queries.sample_weight is None else query_means(queries.sample_weight, queries.offsets)


class XGBoostPeer(LightGBMPeer):
    """XGBoost's ``rank:ndcg`` with early stopping on NDCG@10.

    Parameters are those of `kinrank.study.peers.LightGBMPeer`.
    """

    def _shape_params(self, leaves: int, least: int) -> dict[str, Any]:  # noqa: ARG002 - it has no such least
        return {"max_leaves": leaves, "max_depth": 0, "grow_policy": "lossguide"}

    def _grow(self, queries: QuerySet, validation: QuerySet | None, n_trees: int) -> int:
        xgboost = library("xgboost")
        # Not through XGBRanker: its learning_rate would win over an eta of params.
        settings = {
            "objective": "rank:ndcg",
            "eval_metric": "ndcg@10",
            "tree_method": "hist",
            "eta": self.learning_rate,
            "nthread": self.n_threads,
            "seed": self.seed,
            "verbosity": 0,
            **self._own,
        }
        stopping: dict[str, Any] = {}
        if validation is not None:
            stopping = {"evals": [(self._matrix(validation), "validation")], "early_stopping_rounds": self.patience}
        self.model_ = xgboost.train(settings, self._matrix(queries), n_trees, verbose_eval=False, **stopping)
        if validation is None:
            return n_trees
        found = int(self.model_.best_iteration) + 1
        self.model_ = self.model_[:found]
        return found

    def _matrix(self, queries: QuerySet) -> Any:
        xgboost = library("xgboost")
        return xgboost.DMatrix(
            np.asarray(queries.X),
            queries.grades,
            qid=queries.query_of_row,
            weight=_query_weights(queries),
            nthread=self.n_threads,
        )

    def _score(self, X: np.ndarray) -> np.ndarray:
        xgboost = library("xgboost")
        self.model_.set_param({"nthread": self.n_threads})
        scores: np.ndarray = self.model_.predict(xgboost.DMatrix(X, nthread=self.n_threads))
        return scores


class CatBoostPeer(LightGBMPeer):
    """CatBoost's ``LambdaMart`` on NDCG@10 with early stopping on NDCG@10.

    Parameters are those of `kinrank.study.peers.LightGBMPeer`.
    """

    def _shape_params(self, leaves: int, least: int) -> dict[str, Any]:  # noqa: ARG002 - symmetric trees have none
        # Symmetric trees are weaker for the same number of leaves: one more level.
        return {"depth": leaves.bit_length() + 1}

    def _grow(self, queries: QuerySet, validation: QuerySet | None, n_trees: int) -> int:
        catboost = library("catboost")
        settings = {
            "loss_function": "LambdaMart:metric=NDCG;top=10",
            "eval_metric": "NDCG:top=10;type=Exp",
            "learning_rate": self.learning_rate,
            "iterations": n_trees,
            "thread_count": self.n_threads,
            "random_seed": self.seed,
            "verbose": False,
            "allow_writing_files": False,
            **self._own,
        }
        stopping: dict[str, Any] = {}
        if validation is not None:
            stopping = {"eval_set": self._pool(validation), "early_stopping_rounds": self.patience}
        self.model_ = catboost.CatBoost(settings).fit(self._pool(queries), **stopping)
        return int(self.model_.tree_count_)  # CatBoost keeps the best trees

    def _pool(self, queries: QuerySet) -> Any:
        catboost = library("catboost")
        weights = _query_weights(queries)
        return catboost.Pool(
            np.asarray(queries.X),
            queries.grades,
            group_id=queries.query_of_row,
            group_weight=None if weights is None else np.repeat(weights, queries.sizes),
        )

    def _score(self, X: np.ndarray) -> np.ndarray:
        scores: np.ndarray = self.model_.predict(X, thread_count=self.n_threads)
        return scores


LIBRARIES = {"lightgbm": LightGBMPeer, "xgboost": XGBoostPeer, "catboost": CatBoostPeer}
