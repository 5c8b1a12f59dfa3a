"""Geng et al., Theorem 1: the bound on the loss difference between two models, compared with measured differences.

RankSVM with the plain hinge, λ = 0.01, generated intents (300 + 40 queries, 20 features), k = 100. The models of KNN
Online and Offline-2 score the pairs of each test query. The largest difference of their hinge losses is compared with
κ²/λ · γ, where κ is the length of the longest pair difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.datasets import make_intents
from kinrank.learn.ranksvm import RankSVM
from kinrank.rankers.knn.offline import change_ratio, loss_difference_bound
from kinrank.rankers.knn.ranker import KnnRanker
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, Task, TaskResult

PENALTY, K = 0.01, 100


def measured(_: DataFolder) -> TaskResult:
    """Measure the change ratio, the largest loss difference and the bound of each test query."""
    queries = make_intents(300, 40, n_docs=20, n_features=20, seed=1)
    train, test = queries[:300], queries[300:]
    learner = RankSVM(PENALTY, loss="hinge")
    ranker = KnnRanker.as_published(
        K, mode="offline-2", learner=learner, describe="mean", reference="reference", n_jobs=1
    )
    ranker.fit(train)
    points = ranker.points(test)
    chosen = ranker.offline_choice(points)
    offline, online = ranker.weights(test), ranker.set_params(mode="online").weights(test)
    pairs = [pair_differences(ranker.preparer_.transform(query.X), query.grades) for query in test]
    radius = max(float(np.linalg.norm(each, axis=1).max(initial=0.0)) for each in pairs)
    to_scaled = 1.0 / ranker.preparer_.factor_
    differences, bounds, ratios = [], [], []
    for query, (near, _distances) in enumerate(ranker.near(points)):
        losses = [np.maximum(0.0, 1.0 - pairs[query] @ (weights[query] * to_scaled)) for weights in (offline, online)]
        ratio = change_ratio(near, ranker.offline_models.neighbors_of(chosen[query]), ranker.training_set_.pairs)
        differences.append(float(np.abs(losses[0] - losses[1]).max(initial=0.0)))
        bounds.append(loss_difference_bound(ratio, PENALTY, radius))
        ratios.append(ratio)
    return TaskResult(
        values={"ratio": np.array(ratios), "difference": np.array(differences), "bound": np.array(bounds)}
    )


def pair_differences(X: NDArray[Any], grades: NDArray[Any]) -> Float64:
    """Return x_i - x_j of the pairs with y_i > y_j."""
    better, worse = np.nonzero(grades[:, None] > grades[None, :])
    differences: Float64 = X[better].astype(np.float64) - X[worse]
    return differences


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return medians and maxima over the test queries."""
    values = results["all"].values
    ratio, difference, bound = values["ratio"], values["difference"], values["bound"]
    return {
        "change ratio, median": round(float(np.median(ratio)), 3),
        "largest loss difference of a query, median": round(float(np.median(difference)), 3),
        "largest loss difference of all": round(float(difference.max()), 3),
        "bound, median": round(float(np.median(bound)), 1),
        "queries above their bound": int(np.sum(difference > bound)),
    }


EXPERIMENT = Experiment("bound", "geng", {"all": Task(measured, minutes=0.3)}, summary)
