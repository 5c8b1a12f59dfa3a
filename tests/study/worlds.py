"""Generated judged queries for which it is known what a model per query adds on top of trees."""

from __future__ import annotations

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.datasets import make_intents


def with_intents(n: int, seed: int = 0) -> QuerySet:
    """Return queries of three intents: the queries' own models gain."""
    return make_intents(n, 0, n_docs=20, n_features=10, spread=1.0, seed=seed)


def without_intents(n: int, seed: int = 1) -> QuerySet:
    """Return queries that all need the same weights: one linear model is best."""
    return make_intents(n, 0, n_docs=20, n_features=10, spread=0.0, seed=seed)


def for_trees(n: int, seed: int = 2) -> QuerySet:
    """Return queries that all need the same function, which is far from linear: one tree model is best."""
    queries = make_intents(n, 0, n_docs=20, n_features=10, spread=0.0, seed=seed)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(queries.X.shape).astype(np.float32)
    relevance = np.abs(X[:, 0]) + np.abs(X[:, 1]) + 0.5 * rng.standard_normal(len(X))
    grades = np.searchsorted(np.quantile(relevance, (0.5, 0.75, 0.9)), relevance)
    return queries.replace(X=X, y=grades.astype(np.float32))
