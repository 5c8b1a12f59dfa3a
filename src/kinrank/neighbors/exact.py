"""Exact index: a brute-force scan."""

from __future__ import annotations

from kinrank.neighbors.base import NeighborIndex


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
