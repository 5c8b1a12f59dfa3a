"""Generated judged queries for which it is known what a model per query, or memory, adds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinrank.data.queryset import QuerySet
from kinrank.datasets import make_intents


def with_intents(n: int, seed: int = 0) -> QuerySet:
    """Return queries of three intents: weights per query gain."""
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


def in_families(family: NDArray[np.int64], seed: int = 0) -> QuerySet:
    """Return queries whose texts are alike within a family, and that have the relevant documents of their family."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, 12)) for _ in range(family.max() + 1)]
    texts = [f"{words[number]} {words[number][::-1]} {i}" for i, number in enumerate(family)]
    best = rng.integers(0, 6, family.max() + 1)
    return QuerySet.from_arrays(
        rng.standard_normal((6 * len(family), 3)),
        (np.arange(6) == best[family][:, None]).ravel().astype(int),
        group=np.full(len(family), 6),
        doc_id=np.tile([f"d{i}" for i in range(6)], len(family)),
        query_columns={"text": np.array(texts), "shop": np.array([f"s{i // 10}" for i in range(len(family))])},
    )
