"""How much of KNN's gain is due to kin: the nearest judged queries against random, shuffled and far ones.

MSRD, its fixed split by movie, NDCG@10, with the settings that ``knn_msrd`` chose on the validation queries. A placebo
is the same pipeline with other queries in the place of the neighbors: as many of them, with the same kernel weights and
the same shrinkage to the global model.

- *random*: drawn anew for each query (three draws, averaged);
- *shuffled*: the neighbors of another test query, so that neighborhoods stay as coherent as they are;
- *far*: the judged queries farthest from the query.

What a placebo gains over one linear model is the effect of smoothing; what KNN gains over the placebos is that of kin.
Tests are by movie.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from benchmarks.common import log_progress, msrd
from kinrank import KnnRanker, SingleRanker
from kinrank.kin.indexes.base import Neighborhoods
from reproduction.experiments.knn_msrd import CHOSEN, MOVIE, knn
from reproduction.rows import per_query, row, two_digits

DRAWS = 3


class RandomKin(KnnRanker):
    """Learns from judged queries drawn at random."""

    rng = np.random.default_rng(0)

    def near(self, points, n_neighbors=None):
        """Return random queries at the distances of the nearest."""
        near = super().near(points, n_neighbors)
        drawn = [self.rng.permutation(self.n_judged_)[:size] for size in np.diff(near.starts)]
        return Neighborhoods(np.concatenate(drawn), near.starts, near.distances)


class ShuffledKin(KnnRanker):
    """Learns from the neighbors of another query."""

    def near(self, points, n_neighbors=None):
        """Return the neighbors of the point half the list further on, at the distances of the own ones."""
        near = super().near(points, n_neighbors)
        members = near.members.reshape(len(points), -1)
        return Neighborhoods(np.roll(members, len(points) // 2, axis=0).ravel(), near.starts, near.distances)


class FarKin(KnnRanker):
    """Learns from the judged queries that are farthest away."""

    def near(self, points, n_neighbors=None):
        """Return the farthest queries at the distances of the nearest."""
        near = super().near(points, n_neighbors)
        k = len(near.members) // len(points)
        known = self.model_.index.points_
        squares = (known**2).sum(axis=1) - 2 * points @ known.T  # the square of the point itself changes no order
        far = np.argpartition(squares, -k, axis=1)[:, -k:]
        return Neighborhoods(far.ravel(), near.starts, near.distances)


PLACEBOS = {"random": (RandomKin, DRAWS), "shuffled": (ShuffledKin, 1), "far": (FarKin, 1)}


def run() -> dict[str, object]:
    """Compare KNN and the placebos with one linear model, and KNN with the placebos."""
    parts = msrd()
    train, test = parts["train"], parts["test"]
    ranker = knn(CHOSEN).fit(train)
    values = {"Single RankRLS": per_query(SingleRanker("rankrls").fit(train), test), "kin": per_query(ranker, test)}
    for name, (kind, draws) in PLACEBOS.items():
        placebo = copy(ranker)
        placebo.__class__ = kind
        values[name] = np.mean([per_query(placebo, test) for _ in range(draws)], axis=0)
        log_progress(f"{name}: {values[name].mean():.4f}, one model {values['Single RankRLS'].mean():.4f}")
    movies = test.query_columns[MOVIE]
    over_single = {name: row(each, values["Single RankRLS"], movies) for name, each in values.items()}
    over_placebo = {name: row(values["kin"], values[name], movies) for name in PLACEBOS}
    return {
        "queries": len(test),
        "movies": len(np.unique(movies)),
        "over one linear model": over_single,
        "kin over the placebo": over_placebo,
        "share of the gain that the placebo has": {
            name: two_digits(over_single[name]["gain"] / over_single["kin"]["gain"]) for name in PLACEBOS
        },
    }
