"""The contract of every index, and the exact scan behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from kinrank.arrays import Float32, Float64, Int64
from kinrank.errors import DataError, ParameterError

_ROUNDING = 2.0**-24  # unit roundoff of float32
_CHUNK = 400_000  # distances held at once in a batch: 1.6 MB, which a core's cache holds


class NeighborIndex(BaseEstimator):
    """Points, and the nearest of them to any other point in Euclidean distance.

    Whatever finds the candidates, they are measured in float64 and sorted here. So all indexes answer alike:
    distances ascend, equal distances go by position, one point at a time equals a batch.

    Attributes
    ----------
    points_ : float32 array of shape (points, dim)
        What was fitted and added.
    recall : float
        The share of the true neighbors that the index promises to find; 1.0 where it is exact.
    """

    recall: ClassVar[float] = 1.0

    def fit(self, points: ArrayLike) -> Self:
        """Take the points; earlier ones are forgotten."""
        self._take(as_points(points))
        self._build()
        return self

    def query(self, points: ArrayLike, k: int) -> tuple[Float64, Int64]:
        """The `k` nearest of the fitted points to each given one.

        Parameters
        ----------
        points
            One point per row.
        k
            How many; at most the number of fitted points.

        Returns
        -------
        distances : float64 array of shape (rows, k)
            Ascending.
        indices : int64 array of shape (rows, k)
            Positions among the fitted points; equal distances in ascending order of position.
        """
        queries = self._as_queries(points)
        if not 1 <= k <= len(self.points_):
            raise ParameterError(f"k must be between 1 and the {len(self.points_)} points of the index, got {k}")
        distances = np.empty((len(queries), k))
        indices = np.empty((len(queries), k), dtype=np.int64)
        self._nearest(queries, distances, indices)
        return distances, indices

    def query_radius(self, points: ArrayLike, radius: float) -> tuple[Float64, Int64, Int64]:
        """All fitted points within `radius` of each given one, found by an exact scan in every index.

        Returns
        -------
        distances, indices
            Of row ``i`` at ``offsets[i]:offsets[i + 1]``, sorted as `query` sorts them.
        offsets : int64 array of shape (rows + 1,)
            Where each row begins.
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
            candidates = np.flatnonzero(proxies <= _above(limit))
            found = np.sqrt(squared_distances(self.points_, query, candidates))
            candidates, found = candidates[found <= radius], found[found <= radius]
            order = found.argsort(kind="stable")
            indices.append(candidates[order])
            distances.append(found[order])
            offsets[row + 1] = offsets[row] + len(order)
        return np.concatenate(distances), np.concatenate(indices), offsets

    def add(self, points: ArrayLike) -> Self:
        """Append points; they take the positions after the last."""
        new = self._as_queries(points)
        self._take(np.concatenate([self.points_, new]))
        self._extend(new)
        return self

    def remove(self, indices: ArrayLike) -> Self:
        """Drop the points at these positions, move later ones up, and build again."""
        drop = np.atleast_1d(np.asarray(indices))
        out = (drop < -len(self.points_)) | (drop >= len(self.points_))
        if out.any():
            raise ParameterError(f"position {drop[out][0]} is not among the {len(self.points_)} points of the index")
        return self.fit(np.delete(self.points_, drop, axis=0))

    def get_state(self) -> dict[str, NDArray[Any]]:
        """The arrays that `set_state` needs."""
        return {"points": self.points_}

    def set_state(self, state: dict[str, NDArray[Any]]) -> Self:
        """Become the index that `get_state` was asked of."""
        return self.fit(state["points"])

    def _build(self) -> None:
        """Make the search structure of all points."""

    def _extend(self, new: Float32) -> None:  # noqa: ARG002
        """Bring points that were appended into the search structure."""
        self._build()

    def _nearest(self, queries: Float32, distances: Float64, indices: Int64) -> None:
        """Fill in the nearest points of each query, as many as there are columns, by a scan."""
        k = distances.shape[1]
        step = max(1, _CHUNK // len(self.points_))
        for start in range(0, len(queries), step):
            rows = slice(start, start + step)
            proxies = self._proxies(queries[rows])
            # Both the k-th value and the one compared with it may be off by the rounding.
            limits = _above(np.partition(proxies, k - 1, axis=1)[:, k - 1] + 2 * self._rounding(queries[rows]))
            squares, candidates = _within(self.points_, queries[rows], proxies, limits)
            _keep_nearest(squares, candidates, distances[rows], indices[rows])

    def _proxies(self, queries: Float32) -> Float32:
        """|p|^2 - 2 p.q for every query q and point p: squared distances short of the constant |q|^2."""
        proxies: Float32 = (-2 * queries) @ self.points_.T
        proxies += self._norms
        return proxies

    def _rounding(self, queries: Float32) -> Float64:
        """How far a value of each query's scan can be from the truth.

        A float32 product of d terms errs by at most d u |p| |q| (u the unit roundoff); the norm and the sum
        round once each. Candidates within this margin are measured again in float64, so float32 decides nothing.
        """
        lengths: Float64 = np.sqrt(np.einsum("ij,ij->i", queries, queries, dtype=np.float64))
        bounds: Float64 = 2 * self._longest**2 + (2 * queries.shape[1] + 4) * self._longest * lengths
        return 1.01 * _ROUNDING * bounds

    def _take(self, points: Float32) -> None:
        self.points_ = points
        norms = np.einsum("ij,ij->i", points, points, dtype=np.float64)
        self._norms = norms.astype(np.float32)
        self._longest = float(np.sqrt(norms.max()))

    def _as_queries(self, points: ArrayLike) -> Float32:
        if not hasattr(self, "points_"):
            raise ParameterError(f"this {type(self).__name__} has no points yet: call fit first")
        queries = as_points(points)
        if queries.shape[1] != self.points_.shape[1]:
            raise DataError(f"the index has {self.points_.shape[1]} dimensions, got points of {queries.shape[1]}")
        return queries


def as_points(points: ArrayLike) -> Float32:
    """Points as an index takes them: float32, two dimensions, no coordinate missing or beyond 1e15."""
    array = np.ascontiguousarray(points, dtype=np.float32)
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(f"points must have two dimensions, rows and coordinates, and none empty, got {array.shape}")
    # Squares must fit into float32; the comparison is False for NaN too.
    if not max(array.max(), -array.min()) < 1e15:
        row = int(np.argmin((np.abs(array) < 1e15).all(axis=1)))
        raise DataError(f"point {row} has a coordinate that is missing or beyond 1e15: describe queries with numbers")
    return array


def _above(values: Any) -> Any:
    """The float32 next above, so that a limit is never rounded below what it was."""
    return np.nextafter(np.float32(values), np.float32(np.inf))


class RefinedIndex(NeighborIndex, ABC):
    """An index with a search structure of its own, which proposes candidates; they are measured and sorted here."""

    @abstractmethod
    def _candidates(self, queries: Float32, k: int) -> Iterable[Int64 | None]:
        """Positions for each query, its `k` nearest among them in any order; None where a scan must decide."""

    def _nearest(self, queries: Float32, distances: Float64, indices: Int64) -> None:
        for row, candidates in enumerate(self._candidates(queries, distances.shape[1])):
            if candidates is None:
                super()._nearest(queries[row : row + 1], distances[row : row + 1], indices[row : row + 1])
            else:
                ascending = np.sort(candidates)
                squares = squared_distances(self.points_, queries[row], ascending)
                _keep_nearest(squares[None], ascending[None], distances[row : row + 1], indices[row : row + 1])


def _keep_nearest(squares: Float64, candidates: Int64, distances: Float64, indices: Int64) -> None:
    """The nearest of each row's ascending candidates, sorted by distance and, where equal, by position."""
    order = np.argsort(squares, axis=1)
    ranked = np.take_along_axis(squares, order, axis=1)
    # The quick sort leaves equal distances in any order; the slow one is needed only there.
    for row in np.flatnonzero((ranked[:, 1:] == ranked[:, :-1]).any(axis=1)):
        order[row] = np.argsort(squares[row], kind="stable")
    k = distances.shape[1]
    np.sqrt(ranked[:, :k], out=distances)
    indices[:] = np.take_along_axis(candidates, order[:, :k], axis=1)


@numba.njit(cache=True, nogil=True)
def _within(points, queries, proxies, limits):  # type: ignore[no-untyped-def]
    """Squared distances and positions of the points whose proxy is within the limit, filled up with infinity."""
    width = 0
    for q in range(len(queries)):
        n = 0
        for p in range(len(points)):
            n += proxies[q, p] <= limits[q]
        width = max(width, n)
    squares = np.full((len(queries), width), np.inf)
    candidates = np.zeros((len(queries), width), dtype=np.int64)
    for q in range(len(queries)):
        n = 0
        for p in range(len(points)):
            if proxies[q, p] <= limits[q]:
                candidates[q, n] = p
                n += 1
        squares[q, :n] = squared_distances(points, queries[q], candidates[q, :n])
    return squares, candidates


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def squared_distances(points, query, candidates):  # type: ignore[no-untyped-def]
    """Squared Euclidean distances from `query` to ``points[candidates]``, in float64."""
    squares = np.empty(len(candidates))
    for c in range(len(candidates)):
        total = 0.0
        for j in range(points.shape[1]):
            gap = np.float64(points[candidates[c], j]) - np.float64(query[j])
            total += gap * gap
        squares[c] = total
    return squares
