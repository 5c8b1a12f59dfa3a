"""Theorem 1's bound on the loss difference between two models, beside the differences measured: far from tight.

RankSVM with the plain hinge, λ = 0.01, generated intents (300 + 40 queries, 20 features), k = 100. For each test query
the model of KNN Online and that of Offline-2 score its pairs; the largest difference of their hinge losses is held
against κ²/λ · γ, κ the length of the longest pair difference.
"""

from __future__ import annotations

import numpy as np

from kinrank import KnnRanker
from kinrank.datasets import make_intents
from kinrank.learn.ranksvm import RankSVM
from kinrank.rankers.offline import change_ratio, loss_difference_bound

PENALTY, K = 0.01, 100


def run() -> dict[str, object]:
    """Medians and maxima over test queries."""
    world = make_intents(300, 40, n_docs=20, n_features=20, seed=1)
    train, test = world[:300], world[300:]
    learner = RankSVM(PENALTY, loss="hinge")
    ranker = KnnRanker(K, mode="offline-2", learner=learner, describe="mean", reference="reference").fit(train)
    points = ranker._points(test)
    chosen = ranker.offline_choice(points)
    offline, online = ranker.weights(test), ranker.set_params(mode="online").weights(test)
    scaled = [ranker.preparer_.transform(query.X) for query in test]
    to_scaled = 1.0 / ranker.preparer_.factor_
    pairs = [pair_differences(X, query.grades) for X, query in zip(scaled, test, strict=True)]
    radius = max(float(np.linalg.norm(each, axis=1).max(initial=0.0)) for each in pairs)
    found, bounds, ratios = [], [], []
    for query, (near, _) in enumerate(ranker.near(points)):
        losses = [np.maximum(0.0, 1.0 - pairs[query] @ (weights[query] * to_scaled)) for weights in (offline, online)]
        ratio = change_ratio(near, ranker.offline_.neighbors_of(chosen[query]), ranker.memory_.pairs)
        found.append(float(np.abs(losses[0] - losses[1]).max(initial=0.0)))
        bounds.append(loss_difference_bound(ratio, PENALTY, radius))
        ratios.append(ratio)
    return {
        "change ratio, median": round(float(np.median(ratios)), 3),
        "largest loss difference of a query, median": round(float(np.median(found)), 3),
        "largest loss difference of all": round(max(found), 3),
        "bound, median": round(float(np.median(bounds)), 1),
        "queries above their bound": int(np.sum(np.array(found) > np.array(bounds))),
    }


def pair_differences(X: np.ndarray, grades: np.ndarray) -> np.ndarray:
    """x_i - x_j of the pairs with y_i > y_j."""
    better, worse = np.nonzero(grades[:, None] > grades[None, :])
    return X[better].astype(np.float64) - X[worse]
