"""Find out when aTVT gains: a generated world with two dials, and real collections placed in it.

All queries of a world want the same ranking, but their judges differ: a judge's grades are shifted by a level of his
own. The dials are the standard deviation of the levels, in units of the standard deviation of the grades without them,
and the number of judged documents per query. Both readings of aTVT (`reproduction.experiments.atvt`) with λ_α = 10 and
λ_β = 1 are compared with the same trees without it, DCG@5 of the grades without levels, 200 training and 200 test
queries.

Real collections are placed by two statistics that are measured alike in generated data: the share of the variance of
the residuals y - h(x) that lies between queries (h learned on other queries; the estimate of a one-way analysis of
variance), and the median number of documents per query.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.papers.atvt import BoostedTrees
from reproduction.data_folder import MSRD_FILES, DataFolder, letor_files
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.experiments.atvt import MEASURE, OURS, PAPER, TREE, fitted
from reproduction.experiments.atvt_tables import gain
from reproduction.rows import per_query, pool

LEVELS = (0.0, 0.5, 1.0, 2.0)
DOCUMENTS = (5, 10, 20, 40)
N_QUERIES, N_FEATURES, N_TREES, SEEDS = 200, 10, 50, (0, 1)
NOISE = 1.0
READINGS = {"paper": PAPER, "ours": OURS}


def world(level: float, _: DataFolder) -> TaskResult:
    """Measure the worlds of one level, pooled over the seeds."""
    figures: dict[str, Any] = {}
    for n_docs in DOCUMENTS:
        results, shares = [], []
        for seed in SEEDS:
            rng = np.random.default_rng([seed, n_docs, round(100 * level)])
            train, test = generate(level, n_docs, rng), generate(0.0, n_docs, rng)
            rankers = {name: fitted(setting, N_TREES, train) for name, setting in READINGS.items()}
            rankers["plain"] = fitted(PAPER._replace(rounds=0), N_TREES, train)
            results.append(TaskResult(values={name: per_query(each, test, MEASURE) for name, each in rankers.items()}))
            shares.append(share_between_queries(train))
        values = pool(results)
        figures[str(n_docs)] = {
            "gains": {name: gain(values[name], values["plain"]) for name in READINGS},
            "share": round(float(np.mean(shares)), 4),
        }
    return TaskResult(figures)


def generate(level: float, n_docs: int, rng: np.random.Generator) -> QuerySet:
    """Generate queries with grades 0 to 4 plus a level per query."""
    X = rng.standard_normal((N_QUERIES, n_docs, N_FEATURES)).astype(np.float32)
    ideal = X[..., 0] + X[..., 1] * (X[..., 2] > 0) + 0.5 * np.abs(X[..., 3])
    judged = ideal + NOISE * ideal.std() * rng.standard_normal(ideal.shape)
    grades = np.digitize(judged, np.quantile(judged, [0.5, 0.75, 0.88, 0.95])).astype(np.float64)
    grades += level * grades.std() * rng.standard_normal((N_QUERIES, 1))
    return QuerySet.from_arrays(X.reshape(-1, N_FEATURES), grades.ravel(), group=np.full(N_QUERIES, n_docs))


def letor(collection: str, data: DataFolder) -> TaskResult:
    """Place a LETOR collection."""
    return placed(QuerySet.concat([data.letor_part(collection, part) for part in range(1, 6)]))


def movies(data: DataFolder) -> TaskResult:
    """Place MSRD, by 2,000 of its training queries."""
    train, _, _ = data.msrd()
    return placed(train[np.random.default_rng(0).permutation(len(train))[:2000]])


def placed(queries: QuerySet) -> TaskResult:
    """Measure both statistics of a collection."""
    sizes = np.diff(queries.offsets)
    return TaskResult({"share": round(share_between_queries(queries), 4), "documents": float(np.median(sizes))})


def share_between_queries(queries: QuerySet) -> float:
    """Return the share of the variance of y - h(x) that lies between queries, with h learned on the other half."""
    group = np.random.default_rng(0).permutation(len(queries)) % 2
    residual, query = np.empty(queries.n_rows), queries.query_of_row
    y = queries.grades.astype(np.float64)
    for part in (0, 1):
        held_out = group[query] == part
        h = BoostedTrees(N_TREES, **TREE).fit(queries.X[~held_out], y[~held_out])
        residual[held_out] = y[held_out] - h.predict(queries.X[held_out])
    return intraclass(residual, queries.offsets)


def intraclass(values: Float64, offsets: Any) -> float:
    """Return the intraclass correlation of values grouped by query; 0 if the estimate is negative."""
    sizes = np.diff(offsets).astype(np.float64)
    means = np.add.reduceat(values, offsets[:-1]) / sizes
    k, n = len(sizes), sizes.sum()
    within = np.sum((values - np.repeat(means, np.diff(offsets))) ** 2) / max(n - k, 1)
    between = np.sum(sizes * (means - values.mean()) ** 2) / max(k - 1, 1)
    typical = (n - np.sum(sizes**2) / n) / max(k - 1, 1)
    component = max((between - within) / typical, 0.0)
    return float(component / (component + within))


PLACES = {
    **{name: Task(partial(letor, name), letor_files(name), 0.1) for name in ("MQ2007", "MQ2008", "OHSUMED")},
    "MSRD": Task(movies, MSRD_FILES, 0.1),
}


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the map of each reading, the statistics of the worlds, and the places of the collections."""
    worlds = {f"{level:g}": results[f"level {level:g}"].figures for level in LEVELS}
    return {
        "level": LEVELS,
        "documents": DOCUMENTS,
        "gain %": {
            name: [
                [worlds[f"{level:g}"][str(n_docs)]["gains"][name]["gain %"] for level in LEVELS] for n_docs in DOCUMENTS
            ]
            for name in READINGS
        },
        "share between queries": [
            [worlds[f"{level:g}"][str(n_docs)]["share"] for level in LEVELS] for n_docs in DOCUMENTS
        ],
        "places": {name: results[name].figures for name in PLACES},
        "corners": {
            name: {
                "levels 2, 20 documents": worlds["2"]["20"]["gains"][name],
                "no levels, 20 documents": worlds["0"]["20"]["gains"][name],
            }
            for name in READINGS
        },
    }


EXPERIMENT = Experiment(
    "map-atvt",
    "atvt",
    {f"level {level:g}": Task(partial(world, level), minutes=0.4) for level in LEVELS} | PLACES,
    summary,
)
