"""XGBoost and CatBoost behind the interface of `kinrank.study.peers`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.measure.base import query_means
from kinrank.registry import import_extra
from kinrank.study.peers import Peer


def _query_weights(queries: QuerySet) -> Float64 | None:
    """Return the mean weight of each query's rows, for libraries that weigh whole queries."""
    return None if queries.sample_weight is None else query_means(queries.sample_weight, queries.offsets)


class XGBoostPeer(Peer):
    """XGBoost's ``rank:ndcg`` with early stopping on NDCG@10.

    Parameters are those of `Peer`.
    """

    library = "xgboost"

    def _shape_params(self, leaves: int, least: int) -> dict[str, Any]:  # noqa: ARG002 - it has no such least
        return {"max_leaves": leaves, "max_depth": 0, "grow_policy": "lossguide"}

    def _grow(self, queries: QuerySet, validation: QuerySet | None, n_trees: int) -> int:
        xgboost = import_extra("xgboost", "xgboost")
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
        xgboost = import_extra("xgboost", "xgboost")
        return xgboost.DMatrix(
            np.asarray(queries.X),
            queries.grades,
            qid=queries.query_of_row,
            weight=_query_weights(queries),
            nthread=self.n_threads,
        )

    def _score(self, X: NDArray[Any]) -> NDArray[Any]:
        xgboost = import_extra("xgboost", "xgboost")
        self.model_.set_param({"nthread": self.n_threads})
        scores: NDArray[Any] = self.model_.predict(xgboost.DMatrix(X, nthread=self.n_threads))
        return scores


class CatBoostPeer(Peer):
    """CatBoost's ``LambdaMart`` on NDCG@10 with early stopping on NDCG@10.

    Parameters are those of `Peer`.
    """

    library = "catboost"

    def _shape_params(self, leaves: int, least: int) -> dict[str, Any]:  # noqa: ARG002 - symmetric trees have none
        # Symmetric trees are weaker for the same number of leaves: one more level.
        return {"depth": leaves.bit_length() + 1}

    def _grow(self, queries: QuerySet, validation: QuerySet | None, n_trees: int) -> int:
        catboost = import_extra("catboost", "catboost")
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
        catboost = import_extra("catboost", "catboost")
        weights = _query_weights(queries)
        return catboost.Pool(
            np.asarray(queries.X),
            queries.grades,
            group_id=queries.query_of_row,
            group_weight=None if weights is None else np.repeat(weights, queries.sizes),
        )

    def _score(self, X: NDArray[Any]) -> NDArray[Any]:
        scores: NDArray[Any] = self.model_.predict(X, thread_count=self.n_threads)
        return scores
