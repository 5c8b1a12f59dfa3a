"""Find out when KNN gains: a generated world with two dials, and real collections placed in it.

The dials of `kinrank.datasets.make_intents`: how much the ideal weights of queries differ (*spread*), and how well the
features show which queries are alike (*revealed*). In every world KNN Online is compared with one RankRLS, NDCG@10 on
test queries.

Real collections do not have dials, but both can be measured from outside, in generated and real data alike. Let g_q be
the gradient of the pairwise loss of query q at the weights learned from all queries: what the query asks for beyond
them.

difference
    The agreement of g_q between two random halves of q's candidates. It is 0 if queries ask for nothing of their own.
agreement of neighbors
    The agreement of g_q of a test query with the mean of its k nearest training queries. It is 0 if the description
    does not tell which queries are alike.

Agreement is a cosine over all queries together, in the metric of the pooled second moments, so that correlated
features count once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import spearmanr

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.datasets import make_intents
from kinrank.learn.statistics import PairStatistics
from kinrank.measure import compare_paired
from kinrank.rankers.knn import KnnRanker
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import FOLDS, MSRD_FILES, DataFolder, letor_files, text_files
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.experiments.knn_letor import REFERENCE
from reproduction.experiments.knn_msrd import MOVIE
from reproduction.experiments.knn_msrd import REFERENCE as MOVIE_REFERENCE
from reproduction.knn import uniform_knn
from reproduction.rows import per_query, pool, two_digits

SPREADS = (0.0, 0.2, 0.4, 0.7, 1.0)
REVEALED = (0.0, 0.3, 0.6, 0.9)
N_TRAIN, N_TEST, SHARE = 600, 200, 6
"""Training and test queries of a world; neighborhoods hold one in `SHARE` training queries."""
PENALTY = 0.01


def world(spread: float, _: DataFolder) -> TaskResult:
    """Measure the worlds of one spread."""
    figures = {}
    for revealed in REVEALED:
        train, test = generate(spread, revealed)
        ranker = knn(train, "mean", "reference")
        single, local = (per_query(each, test) for each in (SingleRanker("rankrls").fit(train), ranker))
        figures[f"{revealed:g}"] = {**gain(local, single), **statistics(ranker, train, test)}
    return TaskResult(figures)


def generate(spread: float, revealed: float) -> tuple[QuerySet, QuerySet]:
    """Generate the training and test queries of a world."""
    queries = make_intents(
        N_TRAIN, N_TEST, n_docs=20, n_features=20, spread=spread, revealed=revealed, seed=round(100 * spread)
    )
    return queries[:N_TRAIN], queries[N_TRAIN:]


def letor(collection: str, data: DataFolder) -> TaskResult:
    """Place a LETOR collection, over its five folds."""
    values, measured = [], []
    for fold in FOLDS:
        train, _, test = data.letor_fold(collection, fold)
        ranker = knn(train, "mean", REFERENCE[collection], scale="none")
        single = SingleRanker("rankrls", scale="none").fit(train)
        values.append(TaskResult(values={"single": per_query(single, test), "local": per_query(ranker, test)}))
        measured.append(statistics(ranker, train, test))
    return _placed(values, measured)


def web(description: str, data: DataFolder) -> TaskResult:
    """Place mwmbl, over its five folds."""
    queries, fold = data.judged_text("mwmbl")
    values, measured = [], []
    for held_out in FOLDS:
        train, test = queries[fold != held_out], queries[fold == held_out]
        ranker = knn(train, description, None, missing="zero")
        single = SingleRanker("rankrls", missing="zero").fit(train)
        values.append(TaskResult(values={"single": per_query(single, test), "local": per_query(ranker, test)}))
        measured.append(statistics(ranker, train, test))
    return _placed(values, measured)


def movies(description: str, data: DataFolder) -> TaskResult:
    """Place MSRD."""
    train, _, test = data.msrd()
    ranker = knn(train, description, MOVIE_REFERENCE)
    single = SingleRanker("rankrls").fit(train)
    values = TaskResult(values={"single": per_query(single, test), "local": per_query(ranker, test)})
    return _placed([values], [statistics(ranker, train, test)], test.query_columns[MOVIE])


def knn(train: QuerySet, description: str, reference: str | int | None, **settings: Any) -> KnnRanker:
    """Fit KNN Online with the same settings everywhere: a sixth of the queries, shrunk to the global model."""
    return uniform_knn(
        len(train) // SHARE,
        describe=description,
        reference=reference,
        prior="global",
        prior_strength=0.1,
        n_jobs=1,
        **settings,
    ).fit(train)


def gain(values: Float64, baseline: Float64, groups: ArrayLike | None = None) -> dict[str, float]:
    """Return the mean gain in NDCG@10 and its p-value."""
    paired = compare_paired(values, baseline, groups=groups)
    return {"gain": round(paired.mean_difference, 4), "p": two_digits(paired.p)}


def _placed(values: list[TaskResult], measured: list[dict[str, float]], groups: ArrayLike | None = None) -> TaskResult:
    pooled = pool(values)
    means = {name: round(float(np.mean([each[name] for each in measured])), 4) for name in measured[0]}
    return TaskResult({**gain(pooled["local"], pooled["single"], groups), **means})


def statistics(ranker: KnnRanker, train: QuerySet, test: QuerySet) -> dict[str, float]:
    """Measure how much queries differ, and how well neighbors agree with a test query."""
    prepared = [ranker.preparer_.apply(queries) for queries in (train, test)]
    pooled = PairStatistics.from_queries(prepared[0])
    total = pooled.sum()
    pairs = float(total.pairs[0])
    weights = total.solve(PENALTY, np.zeros(train.n_features))[0]
    moments = total.matrix() / pairs
    metric = np.linalg.inv(moments + 0.01 * np.trace(moments) / len(moments) * np.eye(len(moments)))
    rng = np.random.default_rng(0)
    half = rng.random(prepared[1].n_rows) < 0.5
    first, second = (gradients(prepared[1], weights, kept) for kept in (half, ~half))
    of_train, whole = (gradients(each, weights) for each in prepared)
    near = np.array([of_train[members].mean(axis=0) for members, _ in ranker.near(ranker.points(test))])
    return {
        "difference": round(cosine(first, second, metric), 4),
        "agreement of neighbors": round(cosine(whole, near, metric), 4),
    }


def gradients(queries: QuerySet, weights: Float64, kept: NDArray[np.bool_] | None = None) -> Float64:
    """Return the mean of (1 - w·(x_i - x_j)) (x_i - x_j) over the pairs of each query; 0 without pairs."""
    result = np.zeros((len(queries), queries.n_features))
    for query in range(len(queries)):
        rows = np.arange(queries.offsets[query], queries.offsets[query + 1])
        if kept is not None:
            rows = rows[kept[rows]]
        X, y = queries.X[rows].astype(np.float64), queries.grades[rows]
        prefers = (y[:, None] > y[None, :]).astype(np.float64)
        count = prefers.sum()
        if count == 0:
            continue
        scores = X @ weights
        force = prefers * (1.0 - (scores[:, None] - scores[None, :]))
        result[query] = (force.sum(axis=1) - force.sum(axis=0)) @ X / count
    return result


def cosine(one: Float64, other: Float64, metric: Float64) -> float:
    """Return Σ one·other / √(Σ|one|² Σ|other|²) over the rows, in a metric."""
    products = [np.einsum("ij,jk,ik->", a, metric, b) for a, b in ((one, other), (one, one), (other, other))]
    return float(products[0] / np.sqrt(products[1] * products[2])) if products[1] * products[2] > 0 else 0.0


PLACES: dict[str, Task] = {
    **{name: Task(partial(letor, name), letor_files(name), 0.15) for name in REFERENCE},
    "mwmbl, mean": Task(partial(web, "mean"), text_files("mwmbl"), 0.1),
    "mwmbl, summaries and text": Task(partial(web, "summaries+text"), text_files("mwmbl"), 0.1),
    "MSRD, mean": Task(partial(movies, "mean"), MSRD_FILES, 0.3),
    "MSRD, summaries and text": Task(partial(movies, "summaries+text"), MSRD_FILES, 0.3),
}


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the map, the statistics of the worlds, and the places of the collections."""
    worlds = {f"{spread:g}": results[f"spread {spread:g}"].figures for spread in SPREADS}
    cells = {
        name: [[worlds[f"{spread:g}"][f"{revealed:g}"][name] for spread in SPREADS] for revealed in REVEALED]
        for name in ("gain", "difference", "agreement of neighbors")
    }
    return {
        "spread": SPREADS,
        "revealed": REVEALED,
        **cells,
        "places": {name: results[name].figures for name in PLACES},
        "corners": corners(worlds),
        "rank correlation of agreement and gain": round(
            float(spearmanr(np.ravel(cells["agreement of neighbors"]), np.ravel(cells["gain"])).statistic), 3
        ),
    }


def corners(worlds: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the worlds with and without difference, and with and without a description that shows it."""
    return {
        "differ, revealed": worlds["1"]["0.9"],
        "differ, not revealed": worlds["1"]["0"],
        "do not differ": worlds["0"]["0.9"],
    }


EXPERIMENT = Experiment(
    "map-local",
    "geng",
    {f"spread {spread:g}": Task(partial(world, spread), minutes=0.3) for spread in SPREADS} | PLACES,
    summary,
)
