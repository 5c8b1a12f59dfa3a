"""Small samples of judged queries for the checks."""

from __future__ import annotations

import numpy as np

from kinrank.data.queryset import QuerySet


def linear_queries(n_queries: int = 40, n_features: int = 5, seed: int = 0) -> QuerySet:
    """Return queries that one linear model can rank: grades 0 to 2 from one weight vector and a little noise."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(8, 15, n_queries)
    X = rng.standard_normal((sizes.sum(), n_features))
    signal = X @ np.linspace(1.0, -1.0, n_features) + 0.3 * rng.standard_normal(len(X))
    y = np.digitize(signal, [0.5, 1.5])
    qid = np.repeat([f"q{i}" for i in range(n_queries)], sizes)
    return QuerySet.from_arrays(X, y, qid=qid)


def require(condition: bool, message: str) -> None:
    """Raise AssertionError if a condition does not hold."""
    if not condition:
        raise AssertionError(message)
