"""Neighbor indexes: the base class, the exact one, weights of neighbors, and the neighbors of many queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from kinrank.arrays import Float32, Float64, GrowingRows, Int64
from kinrank.errors import DataError, ParameterError

# --- weights of neighbors: uniform, or decreasing with distance -------------------------------------------------------


# A kernel maps u = distance / bandwidth to a weight; compact kernels are 0 beyond the bandwidth.
KERNELS: dict[str, Callable[[Float64], Float64]] = {
    "uniform": np.ones_like,
    "gaussian": lambda u: np.exp(-0.5 * (2 * u) ** 2),
    "tricube": lambda u: (1 - np.minimum(u, 1) ** 3) ** 3,
    "epanechnikov": lambda u: 1 - np.minimum(u, 1) ** 2,
    "inverse": lambda u: 0.01 / np.maximum(u, 0.01),
}


def neighbor_weights(distances: ArrayLike, kind: str = "uniform", bandwidth: ArrayLike | None = None) -> Float64:
    """Return the weight of each neighbor in the local model, between 0 and 1.

    Parameters
    ----------
    distances
        Distances of one query's neighbors, or one row per query, ascending.
    kind
        ``"uniform"``: 1, as in the KNN paper. ``"gaussian"``: exp(-2 u²), u = distance / bandwidth.
        ``"tricube"``: (1 - u³)³. ``"epanechnikov"``: 1 - u². ``"inverse"``: proportional to 1 / distance, with
        distances of at least 1% of the bandwidth, so that no single query dominates.
    bandwidth
        Distance at which the compact kernels reach 0: one number, or one per row. Defaults to the distance of the
        last neighbor; pass the radius if neighbors were found by radius.

    Returns
    -------
    float64 array of the shape of `distances`
        A row that would be all 0, because every neighbor is at the bandwidth, is all 1.

    Examples
    --------
    >>> neighbor_weights([0.0, 1.0, 2.0], "epanechnikov").tolist()
    [1.0, 0.75, 0.0]
    """
    if kind not in KERNELS:
        raise ParameterError(f"unknown weights {kind!r}: choose from {', '.join(map(repr, KERNELS))}")
    values = np.asarray(distances, dtype=np.float64)
    if values.shape[-1:] == (0,) or kind == "uniform":
        return np.ones_like(values)
    width = values[..., -1:] if bandwidth is None else np.asarray(bandwidth, dtype=np.float64)[..., None]
    u = np.divide(values, width, out=np.zeros_like(values), where=width > 0)
    weights = KERNELS[kind](u)
    weights[~weights.any(axis=-1)] = 1.0
    return weights


# --- the base class of neighbor indexes, with the exact scan ----------------------------------------------------------


_ROUNDING = 2.0**-24  # unit roundoff of float32
_CHUNK = 400_000  # distances computed at once in a batch: 1.6 MB, which fits a core's cache


class NeighborIndex(BaseEstimator):
    """Index of points that finds the nearest ones in Euclidean distance.

    Whatever structure proposes points, this class computes their distances in float64 and sorts them. So all indexes
    agree: distances ascend, ties are ordered by position, and single points equal a batch.

    Attributes
    ----------
    points_ : float32 array of shape (points, dim)
        The fitted points.
    recall : float
        The share of true neighbors that the index finds at least; 1.0 for exact indexes.
    """

    recall: ClassVar[float] = 1.0
    skips_excluded: ClassVar[bool] = False  # whether `_propose` leaves them out
    _excluded: NDArray[np.bool_] | None = None  # by position

    @classmethod
    def of_parts(cls, points: Float32, norms: Float32, longest: float) -> Self:
        """Return an index that scans points whose squared lengths are known."""
        index = cls()
        index.points_, index._norms, index._longest = points, norms, longest
        return index

    def excluding(self, positions: Int64) -> Self:
        """Return an index that shares the points of this one and finds none at these positions.

        Queries must ask for at most as many neighbors as are left.
        """
        other = copy(self)
        excluded = np.zeros(len(self.points_), dtype=np.bool_) if self._excluded is None else self._excluded.copy()
        excluded[positions] = True
        other._excluded, other._norms = excluded, self._norms.copy()
        other._norms[positions] = np.inf
        return other

    def fit(self, points: ArrayLike) -> Self:
        """Index the points, replacing any earlier ones."""
        self._set_points(as_points(points))
        self._build()
        return self

    @property
    def n_points(self) -> int:
        """The number of points that can be found."""
        return len(self.points_)

    def query(self, points: ArrayLike, k: int) -> tuple[Float64, Int64]:
        """Return the `k` nearest fitted points of each given point.

        Parameters
        ----------
        points
            One point per row.
        k
            Number of neighbors, at most the number of fitted points.

        Returns
        -------
        distances : float64 array of shape (rows, k)
            Ascending.
        indices : int64 array of shape (rows, k)
            Positions of the fitted points; ties are in ascending order of position.
        """
        queries = self._as_queries(points)
        if not 1 <= k <= len(self.points_):
            raise ParameterError(f"k must be between 1 and the {len(self.points_)} points of the index, got {k}")
        distances = np.empty((len(queries), k))
        indices = np.empty((len(queries), k), dtype=np.int64)
        self._nearest(queries, distances, indices)
        return distances, indices

    def query_radius(self, points: ArrayLike, radius: float) -> tuple[Float64, Int64, Int64]:
        """Return all fitted points within `radius` of each given point, by an exact scan in every index.

        Returns
        -------
        distances, indices
            Neighbors of point ``i`` at ``offsets[i]:offsets[i + 1]``, sorted as in `query`.
        offsets : int64 array of shape (rows + 1,)
            Start of each point's neighbors.
        """
        queries = self._as_queries(points)
        if not radius >= 0:
            raise ParameterError(f"radius must not be negative, got {radius}")
        distances, indices = [np.empty(0)], [np.empty(0, dtype=np.int64)]
        offsets = np.zeros(len(queries) + 1, dtype=np.int64)
        for row, query in enumerate(queries):
            proxies = self._proxies(query[None])[0]
            # The proxy of a distance r is r^2 - |q|^2, up to rounding.
            limit = radius**2 - float(query.astype(np.float64) @ query) + self._rounding(query[None])[0]
            positions = np.flatnonzero(proxies <= _above(limit))
            found = np.sqrt(squared_distances(self.points_, query, positions))
            positions, found = positions[found <= radius], found[found <= radius]
            order = found.argsort(kind="stable")
            indices.append(positions[order])
            distances.append(found[order])
            offsets[row + 1] = offsets[row] + len(order)
        return np.concatenate(distances), np.concatenate(indices), offsets

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that `set_state` needs."""
        return {"points": self.points_}

    def set_state(self, state: dict[str, NDArray[Any]]) -> Self:
        """Restore the index from what `get_state` returned."""
        return self.fit(state["points"])

    def _build(self) -> None:
        """Build the search structure of all points."""

    def _propose(self, queries: Float32, k: int) -> Iterable[Int64 | None]:  # noqa: ARG002
        """Yield positions for each query that include its `k` nearest, in any order, or None to request a scan."""
        return [None] * len(queries)

    def _nearest(self, queries: Float32, distances: Float64, indices: Int64) -> None:
        """Fill in the nearest points of each query: of those proposed, measured exactly, or by a scan of all."""
        k = distances.shape[1]
        if self._excluded is not None and not self.skips_excluded:
            k = min(k + int(self._excluded.sum()), len(self.points_))
        proposals = list(self._propose(queries, k))
        if all(proposed is None for proposed in proposals):
            self._scan(queries, distances, indices)
            return
        for row, proposed in enumerate(proposals):
            if proposed is None:
                self._scan(queries[row : row + 1], distances[row : row + 1], indices[row : row + 1])
            else:
                ascending = np.sort(proposed)
                if self._excluded is not None:
                    ascending = ascending[~self._excluded[ascending]]
                squares = squared_distances(self.points_, queries[row], ascending)
                _keep_nearest(squares[None], ascending[None], distances[row : row + 1], indices[row : row + 1])

    def _scan(self, queries: Float32, distances: Float64, indices: Int64) -> None:
        """Fill in the nearest points of each query, as many as there are columns, by an exact scan."""
        k = distances.shape[1]
        step = max(1, _CHUNK // len(self.points_))
        for start in range(0, len(queries), step):
            rows = slice(start, start + step)
            proxies = self._proxies(queries[rows])
            # Both the k-th value and the one compared with it can be off by the rounding error.
            limits = _above(np.partition(proxies, k - 1, axis=1)[:, k - 1] + 2 * self._rounding(queries[rows]))
            squares, positions = _within(self.points_, queries[rows], proxies, limits)
            _keep_nearest(squares, positions, distances[rows], indices[rows])

    def _proxies(self, queries: Float32) -> Float32:
        """Return |p|^2 - 2 p.q for every query q and point p: squared distances minus the constant |q|^2."""
        proxies: Float32 = (-2 * queries) @ self.points_.T
        proxies += self._norms
        return proxies

    def _rounding(self, queries: Float32) -> Float64:
        """Return the largest rounding error of a proxy of each query.

        A float32 product of d terms is off by at most d u |p| |q| (u being the unit roundoff); the norm and the sum
        round once each. Distances of points within this margin are recomputed in float64, so float32 rounding never
        decides the order.
        """
        lengths: Float64 = np.sqrt(np.einsum("ij,ij->i", queries, queries, dtype=np.float64))
        bounds: Float64 = 2 * self._longest**2 + (2 * queries.shape[1] + 4) * self._longest * lengths
        return 1.01 * _ROUNDING * bounds

    def _set_points(self, points: Float32) -> None:
        self.points_ = points
        norms = np.einsum("ij,ij->i", points, points, dtype=np.float64)
        self._norms = norms.astype(np.float32)
        self._longest = float(np.sqrt(norms.max()))

    def _as_queries(self, points: ArrayLike) -> Float32:
        if not hasattr(self, "points_"):
            raise ParameterError(f"this {type(self).__name__} is not fitted: call fit first")
        queries = as_points(points)
        if queries.shape[1] != self.points_.shape[1]:
            raise DataError(f"the index has {self.points_.shape[1]} dimensions, got points of {queries.shape[1]}")
        return queries


def as_points(points: ArrayLike) -> Float32:
    """Return points as a float32 array; raise unless it has two dimensions and finite coordinates below 1e15."""
    array = np.ascontiguousarray(points, dtype=np.float32)
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(f"points must be a non-empty array with two dimensions, got shape {array.shape}")
    # Squares must fit into float32; the comparison is also False for NaN.
    if not max(array.max(), -array.min()) < 1e15:
        row = int(np.argmin((np.abs(array) < 1e15).all(axis=1)))
        raise DataError(f"point {row} has a coordinate that is missing or beyond 1e15: give finite coordinates")
    return array


def _above(values: Any) -> Any:
    """Return the next larger float32, so that a limit is never rounded down."""
    return np.nextafter(np.float32(values), np.float32(np.inf))


@numba.njit(cache=True, nogil=True)
def _keep_nearest(squares, positions, distances, indices):  # type: ignore[no-untyped-def]
    """Fill in the nearest of each row's ascending positions, sorted by distance and then by position."""
    for row in range(len(squares)):
        order = np.argsort(squares[row], kind="mergesort")  # stable, so ties keep the order of positions
        for place in range(distances.shape[1]):
            distances[row, place] = np.sqrt(squares[row, order[place]])
            indices[row, place] = positions[row, order[place]]


@numba.njit(cache=True, nogil=True)
def _within(points, queries, proxies, limits):  # type: ignore[no-untyped-def]
    """Return squared distances and positions of the points whose proxy is within the limit, padded with infinity."""
    width = 0
    for q in range(len(queries)):
        n = 0
        for p in range(len(points)):
            n += proxies[q, p] <= limits[q]
        width = max(width, n)
    squares = np.full((len(queries), width), np.inf)
    positions = np.zeros((len(queries), width), dtype=np.int64)
    for q in range(len(queries)):
        n = 0
        for p in range(len(points)):
            if proxies[q, p] <= limits[q]:
                positions[q, n] = p
                n += 1
        squares[q, :n] = squared_distances(points, queries[q], positions[q, :n])
    return squares, positions


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def squared_distances(points, query, positions):  # type: ignore[no-untyped-def]
    """Return squared Euclidean distances from `query` to ``points[positions]``, in float64."""
    squares = np.empty(len(positions))
    for c in range(len(positions)):
        total = 0.0
        for j in range(points.shape[1]):
            gap = np.float64(points[positions[c], j]) - np.float64(query[j])
            total += gap * gap
        squares[c] = total
    return squares


# --- the exact index --------------------------------------------------------------------------------------------------


class ExactIndex(NeighborIndex):
    """Exact index that scans all points with BLAS.

    The scan runs in float32 with cached norms; distances that rounding could misorder are recomputed in float64. It is
    the fastest index up to a few hundred thousand points and has no optional dependencies.

    Examples
    --------
    >>> index = ExactIndex().fit([[0.0], [1.0], [5.0]])
    >>> distances, indices = index.query([[2.0]], k=2)
    >>> distances.tolist(), indices.tolist()
    ([[1.0, 2.0]], [[1, 0]])
    >>> index.query_radius([[2.0]], radius=1.5)[1].tolist()
    [1]
    """


# --- the neighbors of many queries in flat arrays; their number can differ between queries ----------------------------


@dataclass(frozen=True, eq=False)
class Neighborhoods:
    """Sets of judged queries (or cells), one set per point."""

    members: Int64
    """The positions of all sets, one set after the other, nearest first."""
    starts: Int64
    """Set i is ``members[starts[i]:starts[i + 1]]``."""
    distances: Float64
    """The distance of each member from its point."""
    shares: Float64 | None = None
    """The fraction of each member that belongs to the set, below 1 only for the last cell of a set. None if all members
    belong entirely.
    """

    @classmethod
    def nearest(cls, index: NeighborIndex, points: Float32, k: int) -> Neighborhoods:
        """Return the k nearest neighbors of each point."""
        distances, members = index.query(points, k)
        return cls(members.ravel(), np.arange(len(points) + 1) * k, distances.ravel())

    @classmethod
    def within(cls, index: NeighborIndex, points: Float32, radius: float) -> Neighborhoods:
        """Return all neighbors within a radius of each point."""
        distances, members, starts = index.query_radius(points, radius)
        return cls(members, starts, distances)

    @classmethod
    def of_labels(cls, labels: Int64, n_labels: int) -> Neighborhoods:
        """Return one set per label: the positions that have it."""
        members = np.argsort(labels, kind="stable")
        starts = np.searchsorted(labels[members], np.arange(n_labels + 1))
        return cls(members, starts, np.zeros(len(members)))

    @classmethod
    def concat(cls, parts: Iterable[Neighborhoods]) -> Neighborhoods:
        """Concatenate the sets of several parts."""
        every = list(parts)
        if len(every) == 1:
            return every[0]
        if not every:
            return cls(np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64), np.empty(0))
        sizes = np.concatenate([np.diff(part.starts) for part in every])
        return cls(
            np.concatenate([part.members for part in every]),
            np.append(0, np.cumsum(sizes)),
            np.concatenate([part.distances for part in every]),
        )

    def weights(self, kind: str, radius: float | None) -> Float64:
        """Return the weight of each member.

        It depends on the distance, relative to the farthest member of the set or to the radius, and on the share.
        """
        if self.shares is not None:
            weights_of_sets = [neighbor_weights(distances, kind) for _, distances in self]
            return np.concatenate(weights_of_sets) * self.shares if weights_of_sets else self.shares
        if radius is not None:
            # neighbor_weights treats its input as one set and replaces weights that are all 0. These are many sets,
            # so a member at distance 0 is added and dropped again. Sets without weight use the global model.
            return neighbor_weights(np.append(self.distances, 0.0), kind, radius)[:-1]
        return neighbor_weights(self.distances.reshape(len(self), -1), kind).ravel()

    def totals(self, values: Float64) -> Float64:
        """Return the sum of one value per member over each set; exactly 0 if all values are 0."""
        running = np.append(0.0, np.cumsum(values))
        sums: Float64 = running[self.starts[1:]] - running[self.starts[:-1]]
        return sums

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[tuple[Int64, Float64]]:
        """Yield the members and distances of each set."""
        return ((self.members[a:b], self.distances[a:b]) for a, b in pairwise(self.starts.tolist()))


class GrowingIndex(NeighborIndex):
    """An index with further points behind those it was built of, which are scanned, and without removed ones.

    Positions never move: added points come after all others, a removed one leaves its position empty. Copies made by
    `copy.copy` change independently and share their memory.
    """

    def __init__(self, built: NeighborIndex) -> None:
        self.built = built
        self._there = built
        self._n = len(built.points_)
        self._added = GrowingRows(built.points_[:0])
        self._lengths = GrowingRows(np.zeros(0, dtype=np.float32))  # squared
        self._longest_added = 0.0
        self._gone = np.zeros(0, dtype=np.int64)
        self._tail: ExactIndex | None = None
        self._n_there, self._n_tail = self._n, 0

    @property
    def points_(self) -> Float32:  # type: ignore[override]
        """All points, with the removed ones."""
        return np.concatenate([self.built.points_, self._added.rows])

    @property
    def n_points(self) -> int:
        """The number of points that are not removed."""
        return self._n_there + self._n_tail

    def add(self, points: ArrayLike) -> GrowingIndex:
        """Append points after the last position."""
        new = self.built._as_queries(points)
        lengths = np.einsum("ij,ij->i", new, new, dtype=np.float64)
        self._added, self._lengths = self._added.append(new), self._lengths.append(lengths.astype(np.float32))
        self._longest_added = max(self._longest_added, float(np.sqrt(lengths.max(initial=0.0))))
        self._n_tail += len(new)
        self._update_tail()
        return self

    def exclude(self, positions: Int64) -> None:
        """Remove the points at these positions from all searches; others keep their positions."""
        self._gone = np.concatenate([self._gone, positions])
        first = positions[positions < self._n]
        if len(first):
            self._there = self._there.excluding(first)
        self._n_there -= len(first)
        self._n_tail -= len(positions) - len(first)
        self._update_tail()

    def _update_tail(self) -> None:
        self._tail = None
        if self._n_tail:
            tail = ExactIndex.of_parts(self._added.rows, self._lengths.rows, self._longest_added)
            gone = self._gone[self._gone >= self._n] - self._n
            self._tail = tail.excluding(gone) if len(gone) else tail

    def query(self, points: ArrayLike, k: int) -> tuple[Float64, Int64]:
        """Return the `k` nearest points of each given point; see `NeighborIndex.query`."""
        if self._tail is None:
            return self._there.query(points, k)
        tail_distances, tail = self._tail.query(points, min(k, self._n_tail))
        if not self._n_there:
            return tail_distances, tail + self._n
        distances, positions = self._there.query(points, min(k, self._n_there))
        distances = np.concatenate([distances, tail_distances], axis=1)
        positions = np.concatenate([positions, tail + self._n], axis=1)
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(distances, order, axis=1), np.take_along_axis(positions, order, axis=1)

    def query_radius(self, points: ArrayLike, radius: float) -> tuple[Float64, Int64, Int64]:
        """Return all points within `radius` of each given point; see `NeighborIndex.query_radius`."""
        if self._tail is None:
            return self._there.query_radius(points, radius)
        parts = [self._there.query_radius(points, radius), self._tail.query_radius(points, radius)]
        parts[1] = (parts[1][0], parts[1][1] + self._n, parts[1][2])
        owner = np.concatenate([np.repeat(np.arange(len(starts) - 1), np.diff(starts)) for _, _, starts in parts])
        distances, positions = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        order = np.lexsort((positions, distances, owner))
        return distances[order], positions[order], parts[0][2] + parts[1][2]

    def kept_points(self) -> Float32:
        """Return the points that are not removed, in the order of their positions."""
        return np.delete(self.points_, self._gone, axis=0)

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of an index of `kept_points`: empty positions are not saved."""
        return {"points": self.kept_points()}
