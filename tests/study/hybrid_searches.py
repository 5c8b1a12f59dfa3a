"""Judged queries of a hybrid search whose best weights depend on the query's text."""

from __future__ import annotations

import numpy as np

from kinrank import QuerySet


def two_kinds(n_queries: int = 80, n_docs: int = 12, *, seed: int = 0, noise: bool = False) -> QuerySet:
    """Return queries for part numbers, whose grades follow bm25, and questions, whose grades follow the vector.

    Every candidate has the same sum of both scores, so that equal weights say nothing. With `noise`, grades are random.
    """
    rng = np.random.default_rng(seed)
    bm25 = rng.uniform(0.0, 20.0, (n_queries, n_docs))
    vector = 1.0 - bm25 / 20.0
    lexical = np.arange(n_queries) % 2 == 0
    wanted = np.where(lexical[:, None], bm25, 20.0 * vector)
    order = rng.random(wanted.shape) if noise else wanted
    y = np.argsort(np.argsort(order, axis=1), axis=1) >= n_docs - 3
    texts = [f"part number {1000 + i // 2}" if each else f"how do I {1000 + i // 2}" for i, each in enumerate(lexical)]
    return QuerySet.from_arrays(
        np.stack([bm25, vector], axis=-1).reshape(-1, 2),
        y.ravel(),
        group=[n_docs] * n_queries,
        doc_id=np.arange(n_queries * n_docs),
        feature_names=["bm25", "vector"],
        query_columns={"text": texts, "topic": np.arange(n_queries) // 4},
    )
