"""The neighbors of many queries in flat arrays; the number of neighbors can differ between queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kinrank.arrays import Float32, Float64, Int64
from kinrank.neighbors import NeighborIndex, neighbor_weights


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
