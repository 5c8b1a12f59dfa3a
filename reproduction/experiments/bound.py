"""Geng et al., Definition 1 and Theorem 1: stability of RankSVM, and the bound on the loss difference of two models.

RankSVM with the plain hinge, λ = 0.01, generated intents (300 + 40 queries, 20 features).

Definition 1: a RankSVM is trained on the pairs of a few queries, with and without one of them, by scikit-learn's
LinearSVC on explicit pairs. No loss may change by more than τ(p) = κ²/(λ p). Theorem 1: with k = 100, the models of KNN
Online and of both offline modes score the pairs of each test query; the largest difference of their hinge losses is
compared with κ²/λ · γ. κ is the length of the longest pair difference of all training and test queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import LinearSVC

from kinrank.arrays import Float64
from kinrank.datasets import make_intents
from kinrank.learn.ranksvm import RankSVM
from kinrank.rankers.knn import Mode
from reproduction.bounds import change_ratio, loss_difference_bound
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.knn import uniform_knn

PENALTY, K = 0.01, 100
MODES: tuple[Mode, ...] = ("offline-1", "offline-2")
STABILITY_QUERIES, LEFT_OUT = 5, 30


def measured(_: DataFolder) -> TaskResult:
    """Measure the change ratio, the largest loss difference and the bound of each test query, by mode."""
    queries = make_intents(300, 40, n_docs=20, n_features=20, seed=1)
    train, test = queries[:300], queries[300:]
    learner = RankSVM(PENALTY, loss="hinge")
    ranker = uniform_knn(K, mode="offline-1", learner=learner, describe="mean", reference="reference", n_jobs=1)
    ranker.fit(train)
    points = ranker.points(test)
    pairs, of_train = (
        [pair_differences(ranker.preparer_.transform(query.X), query.grades) for query in some]
        for some in (test, train)
    )
    radius = max(float(np.linalg.norm(each, axis=1).max(initial=0.0)) for each in (*pairs, *of_train))
    to_scaled = 1.0 / ranker.preparer_.factor_
    online = ranker.set_params(mode="online").weights(test)
    values: dict[str, Float64] = {}
    for mode in MODES:
        ranker.set_params(mode=mode)
        chosen, offline = ranker.offline_choice(points), ranker.weights(test)
        rows = []
        for query, (near, _distances) in enumerate(ranker.near(points)):
            losses = [hinge(pairs[query], weights[query] * to_scaled) for weights in (offline, online)]
            ratio = change_ratio(
                near, ranker.offline_models.neighbors_of(chosen[query]), ranker.model_.training_set.pairs
            )
            difference = float(np.abs(losses[0] - losses[1]).max(initial=0.0))
            rows.append((ratio, difference, loss_difference_bound(ratio, PENALTY, radius)))
        ratio, difference, bound = np.array(rows).T
        values |= {f"ratio, {mode}": ratio, f"difference, {mode}": difference, f"bound, {mode}": bound}
    stable = stability(np.concatenate(of_train[:STABILITY_QUERIES]), np.concatenate([*pairs, *of_train]), radius)
    return TaskResult({"κ": radius, "Definition 1": stable}, values)


def stability(pairs: Float64, every: Float64, radius: float) -> dict[str, float]:
    """Return the largest change of any pair's loss when one training pair is left out, and τ(p) (Definition 1)."""
    losses = hinge(every, explicit_svm(pairs))
    rng = np.random.default_rng(0)
    changes = [
        np.abs(hinge(every, explicit_svm(np.delete(pairs, left_out, axis=0))) - losses).max()
        for left_out in rng.choice(len(pairs), LEFT_OUT, replace=False)
    ]
    return {
        "pairs": len(pairs),
        "left out": LEFT_OUT,
        "largest change": round(float(max(changes)), 5),
        "τ(p)": round(radius**2 / (PENALTY * len(pairs)), 3),
    }


def explicit_svm(pairs: Float64) -> Float64:
    """Minimize λ/2 |w|² + (1/p) Σ hinge over explicit pairs."""
    sign = np.where(np.arange(len(pairs)) % 2 == 0, 1.0, -1.0)  # LinearSVC needs two classes
    svm = LinearSVC(C=1.0 / (PENALTY * len(pairs)), loss="hinge", fit_intercept=False, tol=1e-7, max_iter=200_000)
    weights: Float64 = svm.fit(pairs * sign[:, None], sign).coef_[0]
    return weights


def hinge(pairs: Float64, weights: Float64) -> Float64:
    """Return the loss of each pair."""
    return np.maximum(0.0, 1.0 - pairs @ weights)


def pair_differences(X: NDArray[Any], grades: NDArray[Any]) -> Float64:
    """Return x_i - x_j of the pairs with y_i > y_j."""
    better, worse = np.nonzero(grades[:, None] > grades[None, :])
    differences: Float64 = X[better].astype(np.float64) - X[worse]
    return differences


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return medians and maxima over the test queries."""
    result = results["all"]
    figures: dict[str, Any] = {"κ": round(result.figures["κ"], 3), "Definition 1": result.figures["Definition 1"]}
    for mode in MODES:
        ratio, difference, bound = (result.values[f"{name}, {mode}"] for name in ("ratio", "difference", "bound"))
        figures[mode] = {
            "change ratio, median": round(float(np.median(ratio)), 3),
            "largest loss difference of a query, median": round(float(np.median(difference)), 3),
            "largest loss difference of all": round(float(difference.max()), 3),
            "bound, median": round(float(np.median(bound)), 1),
            "queries above their bound": int(np.sum(difference > bound)),
        }
    stable = figures["Definition 1"]
    figures["largest change over τ(p)"] = round(stable["largest change"] / stable["τ(p)"], 4)
    return figures


EXPERIMENT = Experiment("bound", "geng", {"all": Task(measured, minutes=0.5)}, summary)
