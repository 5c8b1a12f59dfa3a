"""Share of each feature in a ranking, and groups of queries with similar shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet

LETTERS = "ABCDEF"
"""Short names of kinds."""

_MIN_MEMBERS = 50  # average size of a group, so that its mean is worth showing


@dataclass(frozen=True, eq=False)
class Kind:
    """A group of queries that are ranked by similar features.

    Attributes
    ----------
    letter : str
        Name of the group.
    members : int64 array
        The queries, most typical first.
    shares : float64 array of shape (features,)
        Mean shares of its queries; see `feature_shares`.
    name : str
        The words or the value of a column that its queries have in common; empty if there are none.
    """

    letter: str
    members: NDArray[np.int64]
    shares: Float64
    name: str = ""

    @property
    def label(self) -> str:
        """Letter and name."""
        return kind_label(self.letter, self.name)


def kind_label(letter: str, name: str) -> str:
    """Return the letter and the name of a kind.

    Examples
    --------
    >>> kind_label("A", "movie, with"), kind_label("B", "")
    ('A: movie, with', 'Kind B')
    """
    return f"{letter}: {name}" if name else f"Kind {letter}"


def feature_shares(weights: Float64, queries: QuerySet) -> Float64:
    """Return how much each feature decides a ranking, as signed shares whose absolute values sum to 1.

    A share is the weight of a feature times its typical spread among the candidates of a query. Weights alone cannot
    be compared between features with different units. The spread is the root of the mean variance within queries;
    missing values are ignored.

    Parameters
    ----------
    weights
        One weight vector per query, or a single one.
    queries
        Queries whose candidates define the spread.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0, 0.0], [2.0, 20.0]], qid=[1, 1])
    >>> feature_shares(np.array([3.0, -0.1]), queries).tolist()
    [0.75, -0.25]
    """
    effects = weights * _spread_within(queries)
    totals = np.abs(effects).sum(axis=-1, keepdims=True)
    shares: Float64 = np.divide(effects, totals, out=np.zeros_like(effects), where=totals > 0)
    return shares


def _spread_within(queries: QuerySet) -> Float64:
    X = queries.X.astype(np.float64)
    known = np.isfinite(X)
    filled = np.where(known, X, 0.0)
    starts = queries.offsets[:-1]
    counts = np.maximum(np.add.reduceat(known, starts, axis=0, dtype=np.float64), 1.0)
    means = np.add.reduceat(filled, starts, axis=0) / counts
    deviations = np.where(known, X - np.repeat(means, queries.sizes, axis=0), 0.0)
    spread: Float64 = np.sqrt((deviations**2).sum(axis=0) / np.maximum(known.sum(axis=0), 1))
    return spread


def group_by_shares(shares: Float64, seed: int = 0) -> list[Kind]:
    """Group queries by their feature shares into at most six groups, the largest first.

    Examples
    --------
    >>> kinds = group_by_shares(np.array([[1.0, 0.0], [0.9, 0.1], [1.0, 0.0], [0.0, 1.0]]))
    >>> [(kind.letter, sorted(kind.members.tolist())) for kind in kinds]
    [('A', [0, 1, 2]), ('B', [3])]
    """
    from sklearn.cluster import KMeans

    n = min(len(LETTERS), max(2, len(shares) // _MIN_MEMBERS), len(np.unique(shares, axis=0)))
    found = KMeans(n, n_init=4, random_state=seed).fit(shares)
    distances = np.linalg.norm(shares - found.cluster_centers_[found.labels_], axis=1)
    order = np.argsort(distances, kind="stable")
    groups = sorted((order[found.labels_[order] == label] for label in range(n)), key=len, reverse=True)
    return [Kind(LETTERS[i], members, shares[members].mean(axis=0)) for i, members in enumerate(groups)]
