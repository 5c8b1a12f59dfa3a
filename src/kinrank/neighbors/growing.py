"""An index that grows and shrinks without building its search structure again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank._growing import GrowingRows
from kinrank.arrays import Float32, Float64, Int64
from kinrank.neighbors.base import ExactIndex, NeighborIndex


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
