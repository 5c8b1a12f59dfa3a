"""Linear weights of queries, and how well they reproduce a ranker that is not linear."""

from __future__ import annotations

from dataclasses import dataclass

from kinrank.arrays import Float64


@dataclass(frozen=True, eq=False)
class LinearWeights:
    """One weight vector per query.

    Attributes
    ----------
    weights : float64 array of shape (queries, features)
        For features as they were given.
    fidelity : float64 array of shape (queries,), or None
        Kendall's τ between the ranker's scores of the given candidates and their weighted sums: 1 if both rank alike.
        None if the ranker is linear, so that the weights reproduce it exactly.
    """

    weights: Float64
    fidelity: Float64 | None = None
