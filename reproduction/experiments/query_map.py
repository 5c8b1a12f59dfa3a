"""Geng et al., Figure 1 on web search: queries of different intents in two dimensions.

The paper's point: query categories are mixed and cannot be separated by a line, but a query mostly has the category of
its neighbors. The paper shows 225 queries and three categories of TREC 2004. This experiment uses the 849 queries and
eight intents of mwmbl, described in two ways (the mean of the candidates' features, as in the paper, and summaries with
query text) and projected to two principal components.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import NearestNeighbors

from kinrank.arrays import Float32
from kinrank.kin import Describer
from reproduction.data_folder import DataFolder, text_files
from reproduction.experiment import Experiment, Task, TaskResult

DESCRIPTIONS = ("mean", "summaries+text")
K = 10
SHUFFLES = 999
SHOWN = ("navigational", "informational", "transactional")
"""The intents colored in the plot: those of the paper's introduction."""


def described(description: str, data: DataFolder) -> TaskResult:
    """Project the queries to two dimensions, and measure how neighbors and linear classifiers agree with intents."""
    queries, fold = data.judged_text("mwmbl")
    points = Describer(description).fit(queries).transform(queries)
    intent = queries.query_columns["intent"]
    plane = PCA(2, svd_solver="full").fit(points)
    flat = plane.transform(points)
    figures = {
        "queries": len(queries),
        "numbers per query": points.shape[1],
        "variance in two dimensions": round(float(plane.explained_variance_ratio_.sum()), 4),
        "neighbors of the same intent": agreement(points, intent),
        "F1 of lines in two dimensions": _f1(flat, intent, fold),
        "F1 of lines in all dimensions": _f1(points, intent, fold),
    }
    return TaskResult(figures, {"x": flat[:, 0], "y": flat[:, 1], "intent": intent})


def agreement(points: Float32, intent: NDArray[Any]) -> dict[str, float]:
    """Return the share of neighbors with the same intent, and the share for shuffled intents."""
    near = NearestNeighbors(n_neighbors=K + 1).fit(points).kneighbors(points, return_distance=False)[:, 1:]
    share = float((intent[near] == intent[:, None]).mean())
    rng = np.random.default_rng(0)
    shuffled = [rng.permutation(intent) for _ in range(SHUFFLES)]
    chance = np.array([(labels[near] == labels[:, None]).mean() for labels in shuffled])
    return {
        "share": round(share, 4),
        "by chance": round(float(chance.mean()), 4),
        "p": round((1 + int((chance >= share).sum())) / (1 + SHUFFLES), 4),
    }


def _f1(points: NDArray[Any], intent: NDArray[Any], fold: NDArray[np.int64]) -> float:
    """Return the macro F1 of logistic regression, cross-validated over the folds."""
    folds = [(np.flatnonzero(fold != held_out), np.flatnonzero(fold == held_out)) for held_out in np.unique(fold)]
    classified = cross_val_predict(LogisticRegression(max_iter=1000), points, intent, cv=folds)
    return round(float(f1_score(intent, classified, average="macro")), 4)


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the figures of each description, and the points to plot."""
    figures: dict[str, Any] = {}
    for description, result in results.items():
        values = result.values
        points = {
            name: np.column_stack([values["x"], values["y"]])[values["intent"] == name].round(2).tolist()
            for name in np.unique(values["intent"]).tolist()
        }
        figures[description] = {**result.figures, "points": points}
    return figures


EXPERIMENT = Experiment(
    "query-map",
    "geng",
    {description: Task(partial(described, description), text_files("mwmbl"), 0.05) for description in DESCRIPTIONS},
    summary,
)
