"""Sets of judged queries, one per query: ragged, so that a radius serves as well as a count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kinrank.arrays import Float32, Float64, Int64
from kinrank.neighbors import NeighborIndex, neighbor_weights


@dataclass(frozen=True, eq=False)
class Neighborhoods:
    """Judged queries near some points.

    Attributes
    ----------
    members : int64 array
        Their positions, set after set, nearest first.
    starts : int64 array
        Set i is ``members[starts[i]:starts[i + 1]]``.
    distances : float64 array
        How far each is.
    shares : float64 array, or None
        What part of each belongs to the set: less than 1 for the last of a set of cells. None for all of each.
    """

    members: Int64
    starts: Int64
    distances: Float64
    shares: Float64 | None = None

    @classmethod
    def nearest(cls, index: NeighborIndex, points: Float32, k: int) -> Neighborhoods:
        """The k nearest of each point."""
        distances, members = index.query(points, k)
        return cls(members.ravel(), np.arange(len(points) + 1) * k, distances.ravel())

    @classmethod
    def within(cls, index: NeighborIndex, points: Float32, radius: float) -> Neighborhoods:
        """All within a radius of each point."""
        distances, members, starts = index.query_radius(points, radius)
        return cls(members, starts, distances)

    @classmethod
    def of_labels(cls, labels: Int64, n_labels: int) -> Neighborhoods:
        """One set per label: the positions that carry it."""
        members = np.argsort(labels, kind="stable")
        starts = np.searchsorted(labels[members], np.arange(n_labels + 1))
        return cls(members, starts, np.zeros(len(members)))

    @classmethod
    def concat(cls, parts: Iterable[Neighborhoods]) -> Neighborhoods:
        """The sets of several, one after the other."""
        every = list(parts)
        sizes = np.concatenate([np.diff(part.starts) for part in every])
        return cls(
            np.concatenate([part.members for part in every]),
            np.append(0, np.cumsum(sizes)),
            np.concatenate([part.distances for part in every]),
        )

    def weights(self, kind: str, radius: float | None) -> Float64:
        """What each member weighs: by distance, against the farthest of its set or the radius, and by its share."""
        if self.shares is not None:
            each = [neighbor_weights(distances, kind) for _, distances in self]
            return np.concatenate(each) * self.shares if each else self.shares
        if radius is not None:
            # One more at distance 0, taken off again: the rule for neighbors that all weigh nothing is for a set, and
            # these are many; sets without weight are ranked globally.
            return neighbor_weights(np.append(self.distances, 0.0), kind, radius)[:-1]
        return neighbor_weights(self.distances.reshape(len(self), -1), kind).ravel()

    def totals(self, values: Float64) -> Float64:
        """The sum over each set of one value per member; exactly 0 where all are."""
        running = np.append(0.0, np.cumsum(values))
        sums: Float64 = running[self.starts[1:]] - running[self.starts[:-1]]
        return sums

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[tuple[Int64, Float64]]:
        """Members and distances of each set."""
        return ((self.members[a:b], self.distances[a:b]) for a, b in pairwise(self.starts.tolist()))
