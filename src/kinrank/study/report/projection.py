"""Queries as a landscape: where each lies, what each wants, which want the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64
from kinrank.data.queryset import QuerySet

_DIRECTIONS = 50  # principal components that the map is made from: the rest is mostly noise, and costs time
_PERPLEXITY = 30.0
_ROUNDS = 500
_KINDS = "ABCDEF"


@dataclass(frozen=True, eq=False)
class Kind:
    """Queries that want about the same of a ranking.

    Attributes
    ----------
    letter : str
        What it is called.
    members : int64 array
        The queries, most typical first.
    shares : float64 array of shape (features,)
        What decides their ranking, on average; see `deciding_shares`.
    """

    letter: str
    members: NDArray[np.int64]
    shares: Float64


def map_of(points: Float32, seed: int = 0) -> Float64:
    """Places of points on a plane, within the unit square: those near each other in many dimensions stay so.

    t-SNE from the first two principal components, so that the large lines are those of the data. How far two groups
    lie apart means little. A few points are placed by the components themselves.

    Examples
    --------
    >>> map_of(np.array([[0.0, 0.0, 5.0], [0.0, 4.0, 5.0], [2.0, 2.0, 5.0]], dtype=np.float32)).round(2).tolist()
    [[0.0, 0.25], [1.0, 0.25], [0.5, 0.75]]
    """
    from sklearn.manifold import TSNE

    flat = _principal(points)
    spread = float(flat[:, 0].std())
    if len(points) <= 3 * _PERPLEXITY or not spread:
        return _in_unit_square(flat[:, :2])
    # As small as scikit-learn's own start from components, which t-SNE needs to unfold.
    start = (flat[:, :2] / spread * 1e-4).astype(np.float32)
    tsne = TSNE(init=start, perplexity=_PERPLEXITY, max_iter=_ROUNDS, random_state=seed)
    return _in_unit_square(tsne.fit_transform(flat).astype(np.float64))


def _principal(points: Float32) -> Float64:
    """The first principal components, two at least; each has its largest loading upwards, so that signs are fixed."""
    centered = points.astype(np.float64) - points.mean(axis=0, dtype=np.float64)
    left, size, right = np.linalg.svd(centered, full_matrices=False)
    largest = right[np.arange(len(right)), np.abs(right).argmax(axis=1)]
    flat: Float64 = (left * size * np.where(largest < 0, -1.0, 1.0))[:, :_DIRECTIONS]
    return flat if flat.shape[1] > 1 else np.column_stack([flat, np.zeros(len(flat))])


def _in_unit_square(plane: Float64) -> Float64:
    low, high = plane.min(axis=0), plane.max(axis=0)
    placed: Float64 = 0.5 + (plane - (low + high) / 2) / (float((high - low).max()) or 1.0)
    return placed


def deciding_shares(weights: Float64, queries: QuerySet) -> Float64:
    """How much each feature decides: weight times the feature's usual spread within a query, as signed shares of 1.

    Weights of features with different units cannot be compared, and only their ratios matter to an order. The spread
    is the root of the mean variance within queries, missing values aside.

    Parameters
    ----------
    weights
        One vector per query, or one alone.
    queries
        Whose candidates tell the spread.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[0.0, 0.0], [2.0, 20.0]], qid=[1, 1])
    >>> deciding_shares(np.array([3.0, -0.1]), queries).tolist()
    [0.75, -0.25]
    """
    pull = weights * _spread_within(queries)
    totals = np.abs(pull).sum(axis=-1, keepdims=True)
    shares: Float64 = np.divide(pull, totals, out=np.zeros_like(pull), where=totals > 0)
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


def kinds_of(shares: Float64, seed: int = 0) -> list[Kind]:
    """Queries in at most six groups by what decides their ranking, the largest first.

    Examples
    --------
    >>> kinds = kinds_of(np.array([[1.0, 0.0], [0.9, 0.1], [1.0, 0.0], [0.0, 1.0]]))
    >>> [(kind.letter, sorted(kind.members.tolist())) for kind in kinds]
    [('A', [0, 1, 2]), ('B', [3])]
    """
    from sklearn.cluster import KMeans

    # Every group needs some members to have a mean worth showing.
    n = min(len(_KINDS), max(2, len(shares) // 50), len(np.unique(shares, axis=0)))
    found = KMeans(n, n_init=4, random_state=seed).fit(shares)
    distances = np.linalg.norm(shares - found.cluster_centers_[found.labels_], axis=1)
    order = np.argsort(distances, kind="stable")
    groups = sorted((order[found.labels_[order] == label] for label in range(n)), key=len, reverse=True)
    return [Kind(_KINDS[i], members, shares[members].mean(axis=0)) for i, members in enumerate(groups)]
