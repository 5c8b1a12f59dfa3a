"""Exact indexes: a scan, and a kd-tree, which is faster only in a few dimensions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.spatial import cKDTree

from kinrank.arrays import Float32, Int64
from kinrank.neighbors.base import NeighborIndex


class KDTreeIndex(NeighborIndex):
    """Exact index on a kd-tree (suggested by Geng et al. 2008, future work 2).

    With hundreds of neighbors in dozens of dimensions it visits nearly every leaf and is slower than the scan.

    Examples
    --------
    >>> KDTreeIndex().fit([[0.0], [1.0], [5.0]]).query([[2.0]], k=1)[1].tolist()
    [[1]]
    """

    def _build(self) -> None:
        self._tree = cKDTree(self.points_.astype(np.float64))

    def _propose(self, queries: Float32, k: int) -> Iterable[Int64 | None]:
        wanted = min(k + 1, len(self.points_))
        for query in queries:
            near, found = self._tree.query(query.astype(np.float64)[None], np.arange(1, wanted + 1))
            distances = np.ravel(near)
            # With a tie at the k-th place, the tree returns any of the tied points, not the first ones.
            tied = wanted > k and distances[k] <= distances[k - 1] * (1 + 1e-12)
            yield None if tied else np.ravel(found)


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
