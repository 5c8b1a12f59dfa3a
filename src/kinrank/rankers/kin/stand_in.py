"""Linear weights that rank the candidates of one query as `KinRanker` does, for a search engine.

Trees have no weights, but on the few candidates of one query a weighted sum of the features comes close to their
scores. No grade is involved: the weights w minimize

    1/n Σ_i (s_i - w·z_i)² + λ |w - α w0|²

over the n candidates, with s and z the scores and features centered within the query, which is least squares over all
pairs of candidates. w0 are the weights of the query's local model, and α scales them to the scores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.learn.statistics import PairStatistics
from kinrank.rankers.kendall import kendall_tau

RIDGE = 0.1  # λ. Less is closer to the scores of these candidates, more to the local model, which knows other documents


def fit_stand_ins(
    queries: QuerySet, scores: Float64, prior: Float64, factor: Float64, signs: NDArray[np.int8] | None
) -> tuple[Float64, Float64]:
    """Return the weights that come closest to the scores of each query's candidates, and their fidelity.

    A missing value counts as 0, as in an engine's weighted sum. The prior is the weights of each query's local model,
    for features multiplied by `factor`; for `signs` see `PairStatistics.solve`.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[1.0, 0.0], [2.0, 1.0], [4.0, 0.0]], group=[3])
    >>> weights, fidelity = fit_stand_ins(queries, np.array([0.0, 1.0, 2.0]), np.array([[1.0, 0.0]]), np.ones(2), None)
    >>> weights.round(2).tolist(), fidelity.tolist()
    ([[0.66, 0.23]], [1.0])
    """
    X = np.nan_to_num(queries.X.astype(np.float64), nan=0.0)
    weights, fidelity = np.empty((len(queries), queries.n_features)), np.empty(len(queries))
    upper = np.triu_indices(queries.n_features)
    for query in range(len(queries)):
        rows = slice(queries.offsets[query], queries.offsets[query + 1])
        features, wanted = (X[rows] - X[rows].mean(axis=0)) * factor, scores[rows] - scores[rows].mean()
        by_prior = features @ prior[query]
        size = by_prior @ by_prior
        # With nothing to fit, such as before any search, the local weights stay.
        stretch = max(by_prior @ wanted / size, 0.0) if size > 0 else 1.0
        gram, moment = features.T @ features / len(features), features.T @ wanted / len(features)
        one = PairStatistics(gram[upper][None], moment[None], np.ones(1))
        weights[query] = one.solve(RIDGE, stretch * prior[query], signs)[0] * factor
        fidelity[query] = kendall_tau(X[rows] @ weights[query], scores[rows])
    return weights, fidelity
