"""Geng et al. 2008, Table 1 and section 3.3.3: what ranking and training cost, counted as m and k grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kinrank import KnnRanker, QueryClassRanker, QuerySet, SingleRanker
from kinrank.kin.indexes import NeighborIndex
from kinrank.learn.ranksvm import RankSVM
from kinrank.rankers import Ranker, knn

PAIRS = 5.0  # p, of every query
SIZES = [(20, 3), (40, 3), (20, 6), (40, 6)]  # m, k
TYPES = 2


class Counts:
    """What was done since the last reset."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.trainings = 0
        self.pairs = 0.0
        self.distances = 0
        self.intersected = 0


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Count the models trained and the pairs that they learned from, the distances, and the queries intersected."""
    counted = Counts()

    def fit_pairs(self: RankSVM, rows: Any, index: Any, weights: Any, statistics: Any, **settings: Any) -> RankSVM:
        counted.trainings += 1
        counted.pairs += rows.pairs[index].sum()
        self.coef_ = np.arange(rows.X.shape[1], dtype=np.float64)
        return self

    proxies = NeighborIndex._proxies

    def count_proxies(self: NeighborIndex, queries: Any) -> Any:
        counted.distances += len(queries) * len(self.points_)
        return proxies(self, queries)

    def count_pairs(neighbors: Any, pairs: Any, models_of: Any, starts: Any, shared: Any) -> None:
        for neighbor in neighbors:
            for at in range(starts[neighbor], starts[neighbor + 1]):
                shared[models_of[at]] += pairs[neighbor]
                counted.intersected += 1

    monkeypatch.setattr(RankSVM, "fit_pairs", fit_pairs)
    monkeypatch.setattr(NeighborIndex, "_proxies", count_proxies)
    monkeypatch.setattr(knn, "_count_pairs", count_pairs)
    return counted


def queries(n: int, seed: int = 0) -> QuerySet:
    X = np.random.default_rng(seed).standard_normal((4 * n, 3))
    types = np.arange(n) % TYPES
    return QuerySet.from_arrays(X, [2, 1, 0, 0] * n, group=[4] * n, query_columns={"type": types})


def made(mode: str, k: int) -> Ranker:
    if mode == "single":
        return SingleRanker(RankSVM(loss="hinge"))
    if mode == "QC":
        return QueryClassRanker.as_published("type", reference=0)
    return KnnRanker.as_published(mode=mode, n_neighbors=k, reference=0, n_jobs=1)


@pytest.mark.parametrize(("m", "k"), SIZES)
@pytest.mark.parametrize("mode", ["single", "QC", "online", "offline-1", "offline-2"])
def test_training(mode: str, m: int, k: int, counts: Counts) -> None:
    # "(mp)^c for the single model approach, m(kp)^c for the KNN Offline methods": m models of kp pairs each. All local
    # rankers also learn the model of all queries, for those without neighbors.
    made(mode, k).fit(queries(m))
    local, learned = {"QC": (TYPES, m), "offline-1": (m, m * k), "offline-2": (m, m * k)}.get(mode, (0, 0))
    assert (counts.trainings, counts.pairs) == (1 + local, PAIRS * (m + learned))


@pytest.mark.parametrize(("m", "k"), SIZES)
@pytest.mark.parametrize("mode", ["single", "QC", "online", "offline-1", "offline-2"])
def test_ranking_a_query(mode: str, m: int, k: int, counts: Counts) -> None:
    ranker = made(mode, k).fit(queries(m))
    asked = queries(30, seed=1)
    counts.reset()
    ranker.predict(asked)
    n = len(asked)
    # Only KNN Online trains: one model of kp pairs for each query.
    trained = (n, PAIRS * n * k) if mode == "online" else (0, 0.0)
    assert (counts.trainings, counts.pairs) == trained
    # "Find k nearest neighbors": m distances, O(m log k) or O(m) with their order.
    assert counts.distances == (0 if mode in ("single", "QC") else n * m)
    # "Find offline model": O(mk) for Offline-1, nothing for Offline-2. Inverted lists read k of k models on average.
    if mode == "offline-1":
        assert 0 < counts.intersected <= n * m * k
        assert counts.intersected == pytest.approx(n * k**2, rel=0.5)
    else:
        assert counts.intersected == 0
