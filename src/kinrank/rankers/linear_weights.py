"""Linear weights of queries, and how well they reproduce a ranker that is not linear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.learn.prepare import Missing


@dataclass(frozen=True, eq=False)
class LinearWeights:
    """One weight vector per query."""

    weights: Float64
    """For features as they were given; shape (queries, features)."""
    fidelity: Float64 | None = None
    """Kendall's τ between the ranker's scores of the given candidates and their weighted sums: 1 if both rank alike.
    None if the ranker is linear, so that the weights reproduce it exactly; shape (queries,).
    """


def exact_weights(queries: QuerySet, weights: Float64, missing: Missing) -> LinearWeights:
    """Return the weights of a linear ranker; raise if a missing feature is filled, which a weighted sum cannot do."""
    if missing == "mean":
        _check_not_filled(queries, weights)
    return LinearWeights(weights)


def _check_not_filled(queries: QuerySet, weights: Float64) -> None:
    """Raise if a feature with a weight is missing in some candidates of a query but not in others."""
    if not len(queries) or not np.isnan(queries.X).any():
        return
    share = np.add.reduceat(np.isnan(queries.X), queries.offsets[:-1], axis=0, dtype=np.int64) / queries.sizes[:, None]
    filled = (share > 0) & (share < 1) & (weights != 0)
    if filled.any():
        query, feature = np.argwhere(filled)[0]
        raise DataError(
            f"feature {queries.feature_names[feature]!r} is missing (NaN) in some candidates of query "
            f"{queries.qid[query].item()!r}. This ranker fills in the mean, but in a weighted sum the feature counts "
            "0. Fit with missing='zero' (--set missing=zero on the command line), or give all candidates the feature"
        )
